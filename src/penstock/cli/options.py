"""The options every client command has: --bootstrap, -X, --json, --timeout.

Called by the command files. `with_cluster` adds them to a command and gives it a Cluster in their place, so that
they are written down once:

    @app.command("list")
    @with_cluster
    def list_topics(cluster: Cluster, internal: ...) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from penstock.admin.cluster import Cluster
from penstock.cli.arguments import parse_pairs

P = ParamSpec("P")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 10.0
_PANEL = "Connection and output"


def _common_options(
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", help="HOST:PORT of a broker.", rich_help_panel=_PANEL
        ),
    ] = DEFAULT_BOOTSTRAP,
    properties: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="NAME=VALUE", help="A setting for librdkafka; repeatable.", rich_help_panel=_PANEL),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.", rich_help_panel=_PANEL)] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.", rich_help_panel=_PANEL)
    ] = DEFAULT_TIMEOUT_S,
) -> Cluster:
    return Cluster(bootstrap, parse_pairs(properties or ()), timeout, as_json)


def with_cluster(command: Callable[Concatenate[Cluster, P], None]) -> Callable[..., None]:
    """The command with the common options. One that has a --timeout of its own keeps it."""
    signature = inspect.signature(command)
    own = list(signature.parameters.values())[1:]
    names = {parameter.name for parameter in own}
    common = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(_common_options).parameters.values()
        if parameter.name not in names
    ]

    @functools.wraps(command)
    def run(*positional: Any, **arguments: Any) -> None:
        chosen = {parameter.name: arguments.pop(parameter.name) for parameter in common if parameter.name in arguments}
        command(_common_options(**chosen), *positional, **arguments)

    # Typer reads both to learn a command's options.
    run.__dict__["__signature__"] = signature.replace(parameters=[*own, *common])
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *common)}
    return run
