"""`penstock cluster up`: a cluster on this machine, to try things with; Ctrl-C stops it, the next `up` finds its data.

Called by cli.cluster_app. Brokers are processes of their own (cli.supervise); with `--metadata etcd` so are three etcd
members. All of it lives in one directory:

    broker-1/ broker-2/ …    their logs            logs/broker-1.log …    what they say
    metadata.db or etcd/     the metadata
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.admin.failures import ASKED_WRONGLY, CommandFailed
from penstock.cli.gateway_choice import GatewayChoice, choose_gateway
from penstock.cli.gateway_keeper import GatewayKeeper, start_gateway
from penstock.cli.output import print_json, say
from penstock.cli.serve_many import METADATA_FILE, counted
from penstock.cli.supervise import BrokerPlan, Ready, Supervisor, run_until_stopped
from penstock.config import BrokerConfig
from penstock.errors import PenstockError
from penstock.model import Endpoint

HOST = "127.0.0.1"
NODES_MAX = 16
REPLICAS = 3
HTTP_PORT = 9644
ETCD_STOP_DEADLINE_S = 30.0


class Metadata(Enum):
    SQLITE = "sqlite"
    ETCD = "etcd"


def up(
    data_dir: Annotated[Path, typer.Option("--data-dir", show_default=False, help="Where all of it is kept.")],
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=NODES_MAX, help="How many brokers.")] = REPLICAS,
    metadata: Annotated[Metadata, typer.Option("--metadata", help="Where the metadata is kept.")] = Metadata.SQLITE,
    base_port: Annotated[
        int, typer.Option("--base-port", min=0, max=65535, help="The first broker's port; 0 takes free ones.")
    ] = 9092,
    gateway: Annotated[
        str | None,
        typer.Option(
            "--gateway",
            metavar="HOST:PORT",
            help="Where the console, REST and the schema registry are.",
            show_default="127.0.0.1:8080",
        ),
    ] = None,
    no_gateway: Annotated[bool, typer.Option("--no-gateway", help="None of these: brokers alone.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("-o", metavar="NAME=VALUE", help="A setting of all brokers; repeatable.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print where everything is as JSON, once it is ready.")
    ] = False,
) -> None:
    """Start a cluster on this machine; Ctrl-C stops it."""
    _require_same_store(data_dir, metadata)
    choice = _choose(gateway, no_gateway, settings or (), log_level)
    plans = plan_cluster(data_dir, nodes, base_port, settings or (), log_level)
    with contextlib.ExitStack() as closing:
        url = f"sqlite:{(data_dir / METADATA_FILE).absolute()}"
        if metadata is Metadata.ETCD:
            etcd = closing.enter_context(_Etcd(data_dir / "etcd"))
            url = etcd.url
        for plan in plans:
            plan.settings["penstock.metadata"] = url

        def on_ready(ready: list[Ready]) -> GatewayKeeper | None:
            keeper = start_gateway(choice, ready, _tell, _tell, data_dir / "logs" / "gateway.log")
            started = None if keeper is None else choice
            if as_json:
                print_json(_document(data_dir, url, plans, ready, started))
                sys.stdout.flush()
            else:
                _print_ready(data_dir, url, ready, started)
            return keeper

        code = asyncio.run(run_until_stopped(Supervisor(plans, _tell), on_ready, _tell))
    raise typer.Exit(code)


def _choose(gateway: str | None, no_gateway: bool, settings: Sequence[str], log_level: str) -> GatewayChoice | None:
    if gateway is not None and no_gateway:
        raise CommandFailed("--gateway and --no-gateway were both given", "Leave one of them away.", ASKED_WRONGLY)
    try:
        config = BrokerConfig.load(None, settings, gateway=gateway)
        return choose_gateway(config, no_gateway, ("--log-level", log_level))
    except PenstockError as error:
        raise CommandFailed(str(error), "", ASKED_WRONGLY) from None


def plan_cluster(
    data_dir: Path, nodes: int, base_port: int, settings: Sequence[str], log_level: str
) -> list[BrokerPlan]:
    arguments = ["--log-level", log_level]
    for setting in settings:
        arguments += ["-o", setting]
    try:
        # Told here, once and before anything is started, and not by each broker in its log.
        BrokerConfig.load(None, settings)
        first, first_http = Endpoint(HOST, base_port), Endpoint(HOST, HTTP_PORT if base_port else 0)
        plans: list[BrokerPlan] = []
        for number in range(nodes):
            node_id = number + 1
            own = {
                "node.id": str(node_id),
                "log.dirs": str(data_dir / f"broker-{node_id}"),
                "listeners": str(counted(first, number)),
                "penstock.http.listen": str(counted(first_http, number)),
            }
            if not any(setting.partition("=")[0].strip() == "default.replication.factor" for setting in settings):
                own["default.replication.factor"] = str(min(REPLICAS, nodes))
            log_file = data_dir / "logs" / f"broker-{node_id}.log"
            plans.append(BrokerPlan(node_id, tuple(arguments), own, data_dir / f"broker-{node_id}", log_file))
        return plans
    except PenstockError as error:
        raise CommandFailed(str(error), "", ASKED_WRONGLY) from None


class _Etcd:
    """Three etcd members, held by a process that ends them when this one ends: see penstock.testing.etcd_keeper."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = ""

    def __enter__(self) -> "_Etcd":
        if find_spec("grpc") is None:
            raise CommandFailed("brokers cannot speak to etcd", 'Install what it needs: pip install "penstock[etcd]".')
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "penstock.testing.etcd_keeper", str(theirs.fileno()), str(self._directory)]
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )
        try:
            with self._ours.makefile("rb") as answers:
                told: dict[str, str] = json.loads(answers.readline() or b'{"error": "it ended without a word"}')
            if "error" in told:
                raise CommandFailed(f"etcd does not run: {told['error']}", "Leave --metadata away to do without it.")
        except BaseException:
            self.__exit__()
            raise
        self.url = told["url"]
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ETCD_STOP_DEADLINE_S)


def _require_same_store(data_dir: Path, metadata: Metadata) -> None:
    """With another store than last time the brokers would find no topics, and take their logs for somebody else's."""
    for other, trace in ((Metadata.SQLITE, METADATA_FILE), (Metadata.ETCD, "etcd")):
        if other is not metadata and (data_dir / trace).exists():
            raise CommandFailed(
                f"{data_dir} holds a cluster whose metadata is in {other.value}",
                f"Start it with --metadata {other.value}, or choose another --data-dir.",
                ASKED_WRONGLY,
            )


def _document(
    data_dir: Path, url: str, plans: Sequence[BrokerPlan], ready: Sequence[Ready], gateway: GatewayChoice | None
) -> dict[str, Any]:
    return {
        "bootstrap": ",".join(one.endpoint for one in ready),
        "metadata": url,
        "data_dir": str(data_dir.absolute()),
        "process_id": os.getpid(),
        # Where it was told to be; with a port of 0 the line that it is ready says which it took.
        "gateway": None if gateway is None else str(gateway.listen),
        "brokers": [
            {
                "node_id": one.node_id,
                "endpoint": one.endpoint,
                "http": one.http,
                "process_id": one.process_id,
                "data_dir": str(plan.data_dir.absolute()),
                "log_file": str(plan.log_file.absolute()) if plan.log_file else None,
            }
            for plan, one in zip(plans, ready, strict=True)
        ],
    }


def _print_ready(data_dir: Path, url: str, ready: Sequence[Ready], gateway: GatewayChoice | None) -> None:
    typer.echo(f"penstock: a cluster of {len(ready)} brokers is ready")
    typer.echo(f"  clients   {','.join(one.endpoint for one in ready)}  (bootstrap.servers)")
    typer.echo(f"  data      {data_dir.resolve()}  (logs/ has what the brokers say)")
    typer.echo(f"  metadata  {url}")
    for one in ready:
        typer.echo(f"  broker {one.node_id}  {one.endpoint}  process {one.process_id}  http://{one.http}/metrics")
    if gateway is not None:
        typer.echo(gateway.line)
    typer.echo(f"  status    penstock cluster status --bootstrap {ready[0].endpoint}")
    typer.echo(f"  stop      Ctrl-C, or: kill {os.getpid()}")
    sys.stdout.flush()


def _tell(line: str) -> None:
    say(f"penstock: {line}")
