"""Apache Kafka in KRaft mode, from its jars in Maven, with the settings and JVM flags its own distribution ships.

Listed in roster.py. Each node is broker and controller at once, as its `config/server.properties` has it. The shipped
file lowers the replication of the internal topics to one; with three nodes they have three replicas.
"""

import base64
import shutil
import uuid
from pathlib import Path

from . import getting
from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

VERSION = "4.1.0"
# What kafka-server-start.sh and kafka-run-class.sh give the JVM.
JVM_FLAGS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# What config/server.properties sets, beyond addresses and folders.
SHIPPED = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class Kafka:
    name = "kafka"
    driver = Driver.KAFKA
    abilities = frozenset(Ability)

    def ready(self) -> Path | Missing:
        if shutil.which("java") is None:
            return Missing("java is not installed")
        return getting.maven_jars("kafka", "org.apache.kafka:kafka_2.13", VERSION)

    def version(self, home: Path) -> str:
        return f"Apache Kafka {getting.version_of(home)}"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        java = shutil.which("java") or "java"
        classpath = f"{home / 'jars'}/*"
        cluster_id = base64.urlsafe_b64encode(uuid.UUID(int=uuid.uuid4().int >> 2).bytes).decode().rstrip("=")
        ports = [free_port() for _ in range(nodes)]
        controllers = [free_port() for _ in range(nodes)]
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(controllers, 1))
        made: list[Node] = []
        prepare: list[tuple[str, ...]] = []
        for number, (port, controller) in enumerate(zip(ports, controllers, strict=True), 1):
            data = folder / f"node-{number}"
            data.mkdir(parents=True)
            settings = {
                **SHIPPED,
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
                "inter.broker.listener.name": "PLAINTEXT",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": str(data / "logs"),
                **_internal_topics(nodes),
                **_flushing(mode),
            }
            properties = data / "server.properties"
            properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            prepare.append(
                (java, "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
            )
            made.append(Node((java, *JVM_FLAGS, "-cp", classpath, "kafka.Kafka", str(properties)), port, data))
        return Plan(",".join(f"{HOST}:{port}" for port in ports), tuple(made), tuple(prepare))


def _internal_topics(nodes: int) -> dict[str, str]:
    replicas = {
        f"{topic}.replication.factor": str(nodes)
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    }
    in_sync = "2" if nodes > 1 else "1"
    return {**replicas, "transaction.state.log.min.isr": in_sync, "share.coordinator.state.topic.min.isr": in_sync}


def _flushing(mode: Mode) -> dict[str, str]:
    """Its default leaves flushing to the kernel, so page-cache is the default by another name."""
    return {"log.flush.interval.messages": "1"} if mode is Mode.FSYNC else {}
