"""RabbitMQ with its stream plugin, from Debian's rabbitmq-server and Erlang, unpacked and not installed.

Listed in roster.py. Streams are acknowledged when they are in the page cache and are never synced on purpose, so there
is no FSYNC. The port mapper of Erlang runs in the same process group on a port of its own, so that it ends with
the node.
"""

from pathlib import Path

from . import getting
from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

ERLANG = (
    *(
        "base",
        "asn1",
        "crypto",
        "public-key",
        "mnesia",
        "runtime-tools",
        "ssl",
        "eldap",
        "ftp",
        "tftp",
        "inets",
        "snmp",
    ),
    *("os-mon", "parsetools", "syntax-tools", "tools", "xmerl"),
)
# Both in the foreground of one process group; the node is what is waited for.
START = 'epmd -port "$ERL_EPMD_PORT" & exec "$RABBITMQ_SCRIPTS/rabbitmq-server"'
ERL = """#!/bin/sh
export ROOTDIR="{root}" BINDIR="{runtime}" EMU=beam PROGNAME=erl
exec "$BINDIR/erlexec" "$@"
"""


class RabbitStreams:
    name = "rabbitmq"
    driver = Driver.RABBITMQ
    abilities = frozenset({Ability.RESTART})

    def ready(self) -> Path | Missing:
        clients = getting.client_python()
        if isinstance(clients, Missing):
            return clients
        return getting.debian("rabbitmq", "rabbitmq-server", [f"erlang-{part}" for part in ERLANG])

    def version(self, home: Path) -> str:
        return f"RabbitMQ {getting.version_of(home)} (Debian)"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        if mode is Mode.FSYNC:
            return Missing("its streams are never synced before they are acknowledged")
        if nodes > 1:
            return Missing("the harness starts one node of it")
        scripts = sorted(home.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"))
        if not scripts:
            return Missing("Debian's package does not hold its scripts where they used to be")
        port, other, distribution, mapper = free_port(), free_port(), free_port(), free_port()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")
        config = folder / "rabbitmq.conf"
        config.write_text(
            f"listeners.tcp.1 = {HOST}:{other}\nstream.listeners.tcp.1 = {HOST}:{port}\n"
            f"stream.advertised_host = {HOST}\nstream.advertised_port = {port}\n"
        )
        erlang = home / "usr" / "lib" / "erlang"
        runtime = next(iter(sorted(erlang.glob("erts-*/bin"))), erlang / "bin")
        own = folder / "bin"
        own.mkdir()
        # Debian's own `erl` looks for the runtime where the package would have been installed.
        (own / "erl").write_text(ERL.format(root=erlang, runtime=runtime))
        (own / "erl").chmod(0o755)
        environment = {
            "PATH": f"{own}:{runtime}:/usr/local/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": getting.libraries(home),
            "HOME": str(folder),  # its cookie
            "ESCRIPT_EMULATOR": str(own / "erl"),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_SCRIPTS": str(scripts[0]),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }
        return Plan(f"{HOST}:{port}", (Node(("sh", "-c", START), port, folder, environment),))
