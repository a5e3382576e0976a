"""`penstock gateway`: HTTP for a cluster, in this process, until a signal ends it.

Called by cli.main, with argparse as cli.serve; by cli.gateway_keeper with --supervised-by, whose end ends it.
It starts whether the cluster is there or not, and /health/ready says when it is.
A first SIGINT or SIGTERM stops cleanly; a second one ends the process at once.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from penstock.cli.log_format import FORMATS, LEVELS, log_to_stderr
from penstock.config.addresses import parse_bootstrap, parse_endpoint
from penstock.gateway.listening import DEFAULT_LISTEN, address_fault
from penstock.gateway.settings import GatewaySettings

USAGE_ERROR = 2
ORPHAN_DEADLINE_S = 15.0
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

_DESCRIPTION = """Serve a cluster over HTTP: schema registry, REST (Confluent's v2 and v3), streams, console.

Any Kafka cluster will do. It need not run yet: the gateway waits for it."""


def main(arguments: Sequence[str]) -> int:
    """The exit code of what was asked wrongly; otherwise it ends the process itself."""
    options = _parser().parse_args(arguments)
    try:
        settings = _settings(options)
    except ValueError as fault:
        return _refuse(str(fault))
    log_to_stderr(options.log_level, options.log_format)
    # uvicorn tells at length what we tell in a line.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    from penstock.cli.serve import raise_file_limit

    raise_file_limit()
    import uvloop

    code = uvloop.run(_serve(settings, options.supervised_by))
    # All is closed. Threads that still ask a cluster which does not answer would hold up the end until they give up.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


async def _serve(settings: GatewaySettings, supervisor: int | None) -> int:
    from penstock.cli.held_process import tell_holder, watch_holder

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    def be_orphaned() -> None:
        assert held is not None
        loop.remove_reader(held)
        stopping.set()
        loop.call_later(ORPHAN_DEADLINE_S, os._exit, 1)

    held = None if supervisor is None else watch_holder(supervisor, be_orphaned)
    # Before the signals are ours: while all of it is imported there is nothing to end cleanly.
    try:
        from penstock.gateway.errors import KafkaFailed
        from penstock.gateway.server import GatewayServer
    except ImportError as error:
        return _refuse(f"{error}: this installation of penstock is not whole; install it anew with pip", held)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        server = GatewayServer(settings)
        endpoint = await server.start()
    except OSError as error:
        fault = address_fault(error, settings.listen)
        return _refuse(fault if held is not None else f"--listen {fault}: choose another address", held)
    except KafkaFailed as failure:
        return _refuse(f"{failure}; check --bootstrap and -X", held)
    if held is None:
        _say("penstock: the gateway is listening")
        _say(f"  http      http://{endpoint}/  (REST, registry, console; /openapi.json, /metrics, /health/ready)")
        _say(f"  cluster   {settings.bootstrap}")
        _say(f"  stop      Ctrl-C, or: kill {os.getpid()}")
    else:
        tell_holder(held, {"endpoint": str(endpoint), "url": f"http://{endpoint}", "process_id": os.getpid()})
    await stopping.wait()
    if held is None:
        _say("penstock: stopping the gateway; a second signal ends it at once")
    await server.stop()
    return 0


def _settings(options: argparse.Namespace) -> GatewaySettings:
    """Raises ValueError with what is wrong."""
    parse_bootstrap(options.bootstrap)
    for origin in options.allow_origin:
        if not origin.startswith(("http://", "https://")) or origin.endswith("/"):
            raise ValueError(f"--allow-origin {origin!r}: write it as a browser does, as https://console.example.com")
    return GatewaySettings(
        bootstrap=options.bootstrap,
        listen=parse_endpoint(options.listen),
        properties=dict(_property(one) for one in options.property),
        allowed_origins=tuple(options.allow_origin),
        allowed_hosts=tuple(host.lower() for host in options.allow_host),
        schemas_topic=options.schemas_topic,
        metrics_addresses=tuple(f"http://{parse_endpoint(address)}/metrics" for address in options.metrics),
        read_only=options.read_only,
        request_log=options.request_log,
    )


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"-X {text!r} is no NAME=VALUE")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock gateway",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        default=os.environ.get("PENSTOCK_BOOTSTRAP", DEFAULT_BOOTSTRAP),
        help=f"brokers of the cluster; default: $PENSTOCK_BOOTSTRAP or {DEFAULT_BOOTSTRAP}",
    )
    add(
        "--listen",
        metavar="HOST:PORT",
        default=str(DEFAULT_LISTEN),
        help=f"where to serve HTTP; port 0 takes a free one; default: {DEFAULT_LISTEN}",
    )
    add(
        "-X",
        dest="property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of librdkafka; repeatable",
    )
    add(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="pages of this origin may use the gateway; repeatable; default: none but its own",
    )
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name the gateway is reached by; repeatable; on a loopback address only its names are answered",
    )
    add("--schemas-topic", default="_schemas", metavar="NAME", help="where schemas are kept; default: _schemas")
    add(
        "--metrics",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="where a broker shows its metrics, for the console's charts; repeatable",
    )
    add("--read-only", action="store_true", help="console, REST and registry show everything and change nothing")
    add("--request-log", action="store_true", help="a log line for every request")
    add("--log-level", choices=LEVELS, default="info", help="default: info")
    add("--log-format", choices=FORMATS, default="plain", help="default: plain")
    add("--supervised-by", type=int, help=argparse.SUPPRESS)
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _refuse(why: str, held: socket.socket | None = None) -> int:
    """Whoever holds this process is told, and does the talking."""
    if held is None:
        sys.stderr.write(f"penstock gateway: {why}\n")
    else:
        from penstock.cli.held_process import REFUSED, tell_holder

        tell_holder(held, {REFUSED: why})
    return USAGE_ERROR
