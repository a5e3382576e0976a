"""`penstock quotas`: how much users and clients may send, fetch and ask, shown and changed.

Called by cli.app. librdkafka has no request for quotas, so this goes over a connection of our own, in plaintext.
"""

from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.offsets import error_name
from penstock.cli.arguments import parse_pairs
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.model import Endpoint
from penstock.wire.apis import ApiKey

app = typer.Typer(no_args_is_help=True, help="Show and change quotas of users and clients.")

UserOption = Annotated[str | None, typer.Option("--user", help="A user's name; `default` is every other user.")]
ClientOption = Annotated[str | None, typer.Option("--client-id", help="A client.id; `default` is every other client.")]
AddressOption = Annotated[str | None, typer.Option("--ip", help="An address; `default` is every other address.")]

DEFAULT = "default"
_EXACT, _DEFAULT_NAME, _ANY = 0, 1, 2
_KINDS = ("user", "client-id", "ip")


@app.command("describe")
@with_cluster
def describe(
    cluster: Cluster, user: UserOption = None, client_id: ClientOption = None, ip: AddressOption = None
) -> None:
    """All quotas, or those of one user, client or address."""
    cluster.require_plaintext("quotas")
    components = [
        {
            "entity_type": kind,
            "match_type": _DEFAULT_NAME if name == DEFAULT else _EXACT,
            "match": None if name == DEFAULT else name,
        }
        for kind, name in _named(user, client_id, ip).items()
    ]
    reply = cluster.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": False})
    _require_done(reply, "describing quotas")
    documents = [
        {
            "entity": {part.entity_type: part.entity_name or DEFAULT for part in entry.entity},
            "quotas": {value.key: value.value for value in entry.values},
        }
        for entry in reply.entries or ()
    ]
    if cluster.as_json:
        print_json(documents)
    elif documents:
        rows = [
            [*(document["entity"].get(kind) for kind in _KINDS), name, value]
            for document in documents
            for name, value in document["quotas"].items()
        ]
        print_table(["USER", "CLIENT", "ADDRESS", "QUOTA", "VALUE"], rows)
    else:
        say("No quotas are set.")


@app.command("set")
@with_cluster
def set_quotas(
    cluster: Cluster,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE",
            show_default=False,
            help="producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; "
            "with --ip connection_creation_rate.",
        ),
    ],
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: AddressOption = None,
) -> None:
    """Set quotas of a user, a client, or a client of a user."""
    values: dict[str, float] = {}
    for name, text in parse_pairs(pairs).items():
        try:
            values[name] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{name}: {text!r} is no number") from None
    ops = [{"key": name, "value": value, "remove": False} for name, value in values.items()]
    _alter(cluster, _named(user, client_id, ip), ops)


@app.command("unset")
@with_cluster
def unset_quotas(
    cluster: Cluster,
    names: Annotated[list[str], typer.Argument(metavar="NAME", show_default=False)],
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: AddressOption = None,
) -> None:
    """Take quotas away."""
    ops = [{"key": name, "value": 0.0, "remove": True} for name in names]
    _alter(cluster, _named(user, client_id, ip), ops)


def _named(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    return {kind: name for kind, name in zip(_KINDS, (user, client_id, ip), strict=True) if name is not None}


def _alter(cluster: Cluster, named: dict[str, str], ops: list[dict[str, Any]]) -> None:
    if not named:
        raise typer.BadParameter("say whose quotas: --user, --client-id or --ip")
    cluster.require_plaintext("quotas")
    entity = [{"entity_type": kind, "entity_name": None if name == DEFAULT else name} for kind, name in named.items()]
    body = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    metadata = cluster.metadata()
    controller = metadata.brokers.get(metadata.controller_id)
    reply = cluster.request(
        ApiKey.ALTER_CLIENT_QUOTAS, body, Endpoint(controller.host, controller.port) if controller else None
    )
    for entry in reply.entries:
        _require_done(entry, "changing quotas")
    if cluster.as_json:
        print_json({"entity": named, "changed": {op["key"]: None if op["remove"] else op["value"] for op in ops}})
        return
    whose = ", ".join(f"{kind} {name}" for kind, name in named.items())
    for op in ops:
        typer.echo(f"{whose}: {op['key']} is {'no longer limited' if op['remove'] else op['value']}")


def _require_done(reply: Any, doing: str) -> None:
    if int(reply.error_code):
        raise CommandFailed(f"{doing}: {reply.error_message or error_name(int(reply.error_code))}")
