"""`penstock configs`: the settings of topics, brokers, groups and client metrics, shown and changed while they run.

Called by cli.app; cli.topics uses the two functions at the end.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster, admin_types
from penstock.cli.arguments import parse_pairs
from penstock.cli.config_requests import (
    ALL_BROKERS,
    CLIENT_METRICS,
    Entry,
    Resource,
    change_over_own,
    describe_over_own,
    list_resources,
    source_name,
)
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say

app = typer.Typer(
    no_args_is_help=True, help="Show and change the settings of topics, brokers, groups and client metrics."
)

# In the order of the options that name them.
KINDS = ("topic", "broker", "group")

ResourceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="topic:NAME|broker:ID|group:NAME|client-metrics:NAME", show_default=False, help="Whose settings."
    ),
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="The same as topic:NAME.")]
BrokerOption = Annotated[str | None, typer.Option("--broker", help="The same as broker:ID; `default` is all brokers.")]
GroupOption = Annotated[str | None, typer.Option("--group", help="The same as group:NAME.")]


@app.command("describe")
@with_cluster
def describe(
    cluster: Cluster,
    resource: ResourceArgument = None,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that nobody has set.")] = False,
) -> None:
    """Settings, and where each value comes from."""
    chosen = choose_resource(resource, topic, broker, group)
    entries = sorted(_describe(cluster, chosen))
    documents = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": entry.source,
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in entries
        if everything or entry.source != "DEFAULT_CONFIG"
    ]
    if cluster.as_json:
        print_json({"resource": chosen.kind, "name": chosen.name, "configs": documents})
    elif documents:
        rows = [
            [one["name"], "(hidden)" if one["sensitive"] else one["value"], one["source"], _change(one)]
            for one in documents
        ]
        print_table(["SETTING", "VALUE", "FROM", "CHANGEABLE"], rows)
    else:
        say(f"Nobody has changed a setting of {chosen}; --all shows the defaults.")


@app.command("list")
@with_cluster
def list_configs(
    cluster: Cluster,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="topic, broker, group or client-metrics; all without it.")
    ] = None,
) -> None:
    """What has settings: topics, brokers, and the groups and client metrics that were given some."""
    kinds = (*KINDS, CLIENT_METRICS)
    if kind is not None and kind not in kinds:
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(kinds)}")
    found = list_resources(cluster, kinds if kind is None else (kind,))
    if cluster.as_json:
        print_json([{"resource": one.kind, "name": one.name} for one in found])
    elif found:
        print_table(["RESOURCE", "NAME"], [[one.kind, one.name] for one in found])
    else:
        say("Nothing of that kind has settings.")


@app.command("set")
@with_cluster
def set_configs(
    cluster: Cluster,
    arguments: Annotated[
        list[str], typer.Argument(metavar="[RESOURCE] NAME=VALUE", show_default=False, help="As topic:orders a=1.")
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
) -> None:
    """Change settings; the others stay as they are."""
    chosen, rest = _split(arguments, topic, broker, group)
    pairs = parse_pairs(rest)
    if not pairs:
        raise typer.BadParameter("nothing to set; give NAME=VALUE")
    change_configs(cluster, chosen.kind, chosen.name, pairs, ())
    _report(cluster, chosen, pairs)


@app.command("unset")
@with_cluster
def unset_configs(
    cluster: Cluster,
    arguments: Annotated[
        list[str], typer.Argument(metavar="[RESOURCE] NAME", show_default=False, help="As topic:orders a.")
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
) -> None:
    """Back to the default."""
    chosen, names = _split(arguments, topic, broker, group)
    if not names:
        raise typer.BadParameter("nothing to unset; give the names of settings")
    change_configs(cluster, chosen.kind, chosen.name, {}, names)
    _report(cluster, chosen, dict.fromkeys(names))


def choose_resource(resource: str | None, topic: str | None, broker: str | None, group: str | None) -> Resource:
    """The one resource that was named, in one of the two ways."""
    flags = [Resource(kind, name) for kind, name in zip(KINDS, (topic, broker, group), strict=True) if name is not None]
    if resource is not None:
        kind, colon, name = resource.partition(":")
        if not colon or kind not in (*KINDS, CLIENT_METRICS) or not name:
            raise typer.BadParameter(
                f"{resource!r} is none of topic:NAME, broker:ID, group:NAME and client-metrics:NAME"
            )
        flags.append(Resource(kind, name))
    if len(flags) != 1:
        raise typer.BadParameter("name one topic, broker or group, as topic:orders or --topic orders")
    return ALL_BROKERS if flags[0] == Resource("broker", "default") else flags[0]


def _split(
    arguments: list[str], topic: str | None, broker: str | None, group: str | None
) -> tuple[Resource, list[str]]:
    is_flagged = any(flag is not None for flag in (topic, broker, group))
    first, rest = (None, arguments) if is_flagged else (arguments[0], arguments[1:])
    return choose_resource(first, topic, broker, group), rest


def overridden_configs(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """The settings that are the resource's own, not defaults of anything above it."""
    own = {"topic": "DYNAMIC_TOPIC_CONFIG", "broker": "DYNAMIC_BROKER_CONFIG", "group": "GROUP_CONFIG"}[kind]
    entries = sorted(_describe(cluster, Resource(kind, name)))
    return {entry.name: entry.value or "" for entry in entries if entry.source == own}


def change_configs(cluster: Cluster, kind: str, name: str, pairs: Mapping[str, str], unset: Iterable[str]) -> None:
    resource = Resource(kind, name)
    if resource.is_unknown_to_librdkafka:
        change_over_own(cluster, resource, pairs, unset)
        return
    types = admin_types()
    put, remove = types.AlterConfigOpType.SET, types.AlterConfigOpType.DELETE
    changes = [types.ConfigEntry(key, value, incremental_operation=put) for key, value in pairs.items()]
    # librdkafka insists on a value that it does not send.
    changes += [types.ConfigEntry(key, "", incremental_operation=remove) for key in unset]
    asked = types.ConfigResource(types.ResourceType[kind.upper()], name, incremental_configs=changes)
    futures = cluster.ask(cluster.admin.incremental_alter_configs, [asked])
    for future in futures.values():
        cluster.result(future, f"changing {resource}")


def _describe(cluster: Cluster, resource: Resource) -> list[Entry]:
    if resource.is_unknown_to_librdkafka:
        return describe_over_own(cluster, resource)
    types = admin_types()
    asked = types.ConfigResource(types.ResourceType[resource.kind.upper()], resource.name)
    futures = cluster.ask(cluster.admin.describe_configs, [asked])
    (entries,) = (cluster.result(future, f"describing {resource}") for future in futures.values())
    return [
        Entry(entry.name, entry.value, source_name(entry.source), bool(entry.is_read_only), bool(entry.is_sensitive))
        for entry in entries.values()
    ]


def _change(document: Mapping[str, Any]) -> str:
    return "at start only" if document["read_only"] else "yes"


def _report(cluster: Cluster, resource: Resource, changes: Mapping[str, str | None]) -> None:
    if cluster.as_json:
        print_json({"resource": resource.kind, "name": resource.name, "changed": changes})
        return
    for name, value in changes.items():
        typer.echo(f"{resource}: {name} is {'the default again' if value is None else f'now {value}'}")
