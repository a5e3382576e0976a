"""`penstock configs`: the settings of topics, brokers and groups, shown and changed while they run.

Called by cli.app; cli.topics uses the two functions at the end.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.arguments import parse_pairs
from penstock.cli.cluster import Cluster
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say

app = typer.Typer(no_args_is_help=True, help="Show and change the settings of topics, brokers and groups.")

KINDS = ("topic", "broker", "group")


class Resource(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name or '(all)'}"


ResourceArgument = Annotated[
    str | None,
    typer.Argument(metavar="[topic:NAME | broker:ID | group:NAME]", show_default=False, help="Whose settings."),
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
    entries = sorted(_describe(cluster, chosen).values(), key=lambda entry: entry.name)
    documents = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": _source(entry),
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in entries
        if everything or not _is_default(entry)
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


@app.command("set")
@with_cluster
def set_configs(
    cluster: Cluster,
    arguments: Annotated[
        list[str], typer.Argument(metavar="[RESOURCE] NAME=VALUE...", show_default=False, help="As topic:orders a=1.")
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
        list[str], typer.Argument(metavar="[RESOURCE] NAME...", show_default=False, help="As topic:orders a.")
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
        if not colon or kind not in KINDS or not name:
            raise typer.BadParameter(f"{resource!r} is none of topic:NAME, broker:ID and group:NAME")
        flags.append(Resource(kind, name))
    if len(flags) != 1:
        raise typer.BadParameter("name one topic, broker or group, as topic:orders or --topic orders")
    # Kafka's empty broker name stands for all brokers; nobody can see an empty argument.
    return Resource("broker", "") if flags[0] == Resource("broker", "default") else flags[0]


def _split(
    arguments: list[str], topic: str | None, broker: str | None, group: str | None
) -> tuple[Resource, list[str]]:
    is_flagged = any(flag is not None for flag in (topic, broker, group))
    first, rest = (None, arguments) if is_flagged else (arguments[0], arguments[1:])
    return choose_resource(first, topic, broker, group), rest


def overridden_configs(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """The settings that are the resource's own, not defaults of anything above it."""
    own = {"topic": "DYNAMIC_TOPIC_CONFIG", "broker": "DYNAMIC_BROKER_CONFIG", "group": "GROUP_CONFIG"}[kind]
    entries = _describe(cluster, Resource(kind, name)).values()
    return {entry.name: entry.value for entry in sorted(entries, key=lambda one: one.name) if _source(entry) == own}


def change_configs(cluster: Cluster, kind: str, name: str, pairs: Mapping[str, str], unset: Iterable[str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in pairs.items()]
    # librdkafka insists on a value that it does not send.
    changes += [ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(ResourceType[kind.upper()], name, incremental_configs=changes)
    futures = cluster.ask(cluster.admin.incremental_alter_configs, [resource])
    for future in futures.values():
        cluster.result(future, f"changing {Resource(kind, name)}")


def _describe(cluster: Cluster, resource: Resource) -> dict[str, Any]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    futures = cluster.ask(
        cluster.admin.describe_configs, [ConfigResource(ResourceType[resource.kind.upper()], resource.name)]
    )
    (entries,) = (cluster.result(future, f"describing {resource}") for future in futures.values())
    return entries


def _source(entry: Any) -> str:
    """librdkafka hands out the number where it is one of a topic's, the name where it is not."""
    from confluent_kafka.admin import ConfigSource

    return ConfigSource(entry.source).name if isinstance(entry.source, int) else entry.source.name


def _is_default(entry: Any) -> bool:
    return entry.is_default or _source(entry) == "DEFAULT_CONFIG"


def _change(document: Mapping[str, Any]) -> str:
    return "at start only" if document["read_only"] else "yes"


def _report(cluster: Cluster, resource: Resource, changes: Mapping[str, str | None]) -> None:
    if cluster.as_json:
        print_json({"resource": resource.kind, "name": resource.name, "changed": changes})
        return
    for name, value in changes.items():
        typer.echo(f"{resource}: {name} is {'the default again' if value is None else f'now {value}'}")
