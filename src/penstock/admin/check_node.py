"""Can the cluster be reached, by every address it hands out; is it ready; are its partitions and disks all right.

Called by admin.doctor.
"""

import asyncio
import json

from penstock.admin.check_directory import check_space
from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.finding import Report
from penstock.admin.offsets import LATEST, describe_log_dirs, find_offsets
from penstock.admin.reach import Reached, reach
from penstock.client.connection import ClientConnection
from penstock.errors import PenstockError
from penstock.model import Endpoint, TopicPartition

# Asking every partition of a very large cluster for its end would take longer than anybody waits for a diagnosis.
PARTITIONS_ASKED_MAX = 20_000
_NAMED_MAX = 10

_REFUSED_TODO = {
    Reached.REFUSED: "Start the broker (`penstock serve`), or compare --bootstrap with what it printed.",
    Reached.NO_ANSWER: "Check that the machine is up, and the firewall and security groups between here and there.",
    Reached.UNKNOWN_HOST: "Check the spelling of --bootstrap, and DNS or /etc/hosts of this machine.",
    Reached.UNREACHABLE: "Check this machine's network: routes, VPN.",
}


def check_connection(cluster: Cluster, report: Report, holder: int | None) -> bool:
    """Whether a client can begin at all."""
    answered = False
    for endpoint in cluster.endpoints:
        attempt = reach(endpoint, cluster.timeout_s)
        if attempt.state is not Reached.YES:
            why = "Clients cannot begin: this is the first address they ask."
            todo = _REFUSED_TODO[attempt.state]
            if holder is not None:
                why += f" Process {holder} has the data directory, so a broker runs, but not at this address."
                todo = "It may still be reading its logs (see its stderr), or it was started with another --listen."
            report.find(f"cannot connect to {attempt}", why, todo)
        elif not cluster.is_plaintext or _speaks_kafka(endpoint, cluster.timeout_s, report):
            report.sound.append(f"{endpoint} answers")
            answered = True
    return answered


def _speaks_kafka(endpoint: Endpoint, timeout_s: float, report: Report) -> bool:
    async def shake_hands() -> None:
        await (await ClientConnection.connect(endpoint, client_id="penstock-cli", timeout_s=timeout_s)).close()

    try:
        asyncio.run(shake_hands())
    except TimeoutError:
        report.find(
            f"{endpoint} accepts connections and then says nothing",
            "The process is there but does not get on: stopped, swapped out, or waiting for its disk. A TLS listener "
            "that waits for a handshake looks the same.",
            "Look at the broker's stderr, CPU and disk; if it expects TLS, give -X security.protocol=ssl.",
        )
    except ConnectionError:
        report.find(
            f"{endpoint} hangs up at once",
            "It takes no plaintext Kafka connections from here.",
            "Give -X security.protocol=… if it expects TLS or SASL; else look for `too many are open` in its log.",
        )
    except (OSError, PenstockError) as error:
        report.find(
            f"what listens at {endpoint} does not speak Kafka: {error}",
            "Clients would misread it in the same way.",
            "Check the port: --http of a broker is not where clients connect.",
        )
    else:
        return True
    return False


def check_ready(address: str, timeout_s: float, report: Report) -> None:
    """The broker's own word on whether it should get traffic."""
    import urllib.error
    import urllib.request

    url = f"{address if '://' in address else f'http://{address}'}/health/ready"
    try:
        with urllib.request.urlopen(url, timeout=timeout_s):
            report.sound.append(f"{url} says it is ready")
    except urllib.error.HTTPError as refusal:
        report.find(
            f"the broker says it is not ready: {_problems(refusal.read(64 * 1024))}",
            "A load balancer sends it nothing, and clients wait.",
            "If it has just started, wait; else its log says what failed, and partitions that are offline stay so "
            "until it is restarted.",
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        report.find(
            f"{url} cannot be asked: {reason}",
            "Nothing is known of whether the broker is ready.",
            "Check --http against what the broker printed when it started.",
        )


def _problems(body: bytes) -> str:
    try:
        return "; ".join(json.loads(body)["problems"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()


def check_advertised(cluster: Cluster, report: Report) -> bool:
    """Clients ask --bootstrap once and from then on connect to what the brokers say of themselves."""
    all_reached = True
    brokers = cluster.metadata().brokers.values()
    for broker in brokers:
        attempt = reach(Endpoint(broker.host, broker.port), cluster.timeout_s)
        if attempt.state is Reached.YES:
            continue
        all_reached = False
        report.find(
            f"broker {broker.id} advertises an address that cannot be reached from here ({attempt})",
            "Clients get this address in the first answer and connect to it from then on: they stand still, although "
            "--bootstrap works.",
            "Start the broker with --advertise HOST:PORT (advertised.listeners), an address that clients can reach.",
        )
    if all_reached:
        report.sound.append(f"every advertised address can be reached ({len(brokers)} brokers)")
    return all_reached


def check_partitions(cluster: Cluster, topic: str | None, report: Report) -> dict[str, int]:
    """Partitions without a leader, with too few replicas or on a broken disk; gives every topic's partitions."""
    topics = cluster.metadata().topics
    if topic is not None and topic not in topics:
        report.find(
            f"topic {topic} does not exist",
            "Producers and consumers of it wait or fail.",
            f"`penstock topics create {topic}`, or check the spelling with `penstock topics list`.",
        )
    chosen = {name: found for name, found in topics.items() if topic in (None, name)}
    parts = [
        (TopicPartition(name, number), one)
        for name, found in chosen.items()
        for number, one in found.partitions.items()
    ]
    leaderless = [at for at, one in parts if one.leader < 0]
    _find_many(
        leaderless,
        "have no leader",
        "They can be neither written nor read.",
        "Start the brokers that hold them; `penstock topics describe` names the replicas.",
        report,
    )
    _find_many(
        [at for at, one in parts if len(one.isrs) < len(one.replicas) and one.leader >= 0],
        "have fewer replicas in sync than they should",
        "The next failure may make them unavailable, or acks=all refuse writes.",
        "Start the missing brokers, or wait until they have caught up.",
        report,
    )
    asked = [at for at, one in parts if one.leader >= 0][:PARTITIONS_ASKED_MAX]
    broken = {at: found.error for at, found in find_offsets(cluster, asked, LATEST).items() if found.error is not None}
    _find_many(
        sorted(broken),
        f"do not answer ({next(iter(broken.values()), '')})",
        "They can be neither written nor read. After a failed write or fsync a log stays offline, so that nothing "
        "is lost unseen.",
        "See the broker's log for the first error; check the disk, look with `penstock log dump`, restart the broker.",
        report,
    )
    if not leaderless and not broken:
        report.sound.append(f"{len(parts)} partitions of {len(chosen)} topics have a leader that answers")
    return {name: len(found.partitions) for name, found in topics.items()}


def _find_many(partitions: list[TopicPartition], what: str, why: str, todo: str, report: Report) -> None:
    if partitions:
        more = f" and {len(partitions) - _NAMED_MAX} more" if len(partitions) > _NAMED_MAX else ""
        report.find(f"{', '.join(map(str, partitions[:_NAMED_MAX]))}{more} {what}", why, todo)


def check_disks(cluster: Cluster, report: Report) -> None:
    """What the brokers say of their disks, where they say it."""
    try:
        log_dirs = describe_log_dirs(cluster)
    except CommandFailed:
        return
    for log_dir in log_dirs:
        where = f"broker {log_dir.broker}, {log_dir.path}"
        if log_dir.error is not None:
            report.find(
                f"{where} is offline ({log_dir.error})",
                "Every partition in it can be neither written nor read.",
                "Check the disk, then restart the broker.",
            )
        elif log_dir.usable_bytes is not None and log_dir.total_bytes is not None:
            check_space(where, log_dir.usable_bytes, log_dir.total_bytes, report)
