"""Writes docs/configuration.md from the tables of settings.

python scripts/configuration_table.py            write it
python scripts/configuration_table.py --check    exit 1 when it is stale
python scripts/configuration_table.py --unread   list settings said to be honoured that no part reads
"""

import sys
from collections.abc import Iterable

from generated_page import DOCS, write_or_check
from penstock.config import SETTINGS, Kind, Scope, Setting

PAGE = DOCS / "configuration.md"
SOURCE = DOCS.parent / "src" / "penstock"

INTRODUCTION = """\
# Configuration

Settings have Kafka's names, meanings and defaults; where a default differs, its row says so. What is ours alone starts
with `penstock.`. This page is written from the tables in `src/penstock/config/` by `scripts/configuration_table.py`.

A broker takes its settings from a TOML file and the command line; the later wins:

    penstock serve --config broker.toml --node-id 2 -o log.retention.hours=24 -o num.partitions=3

In the file, dotted keys and tables are the same thing. Where one name begins another, quote both:

    num.partitions = 3
    "max.connections" = 5000
    "max.connections.per.ip" = 100

    [log]
    retention.hours = 24
    cleanup.policy = ["compact", "delete"]

A name that is no setting, or a value it cannot have, keeps the broker from starting; the error names the nearest one.

A topic's own setting wins over the broker's default for topics. A broker setting that can change while the broker runs
is looked for in this order: set for this broker, set for all brokers, given at start, the default here. *Change* says
how: `read-only` at start only; `per-broker` for one broker; `cluster-wide` for one or for all.

Settings marked † are accepted, kept and shown, because clients and tools set them, and have no effect.
"""


def page() -> str:
    return "\n".join(
        [
            INTRODUCTION,
            "## Topics\n",
            *table(
                ("Setting", "Default", "Values", "Broker's default", "Meaning"),
                (topic_row(setting) for setting in SETTINGS[Scope.TOPIC].values()),
            ),
            "\n## Brokers\n",
            *table(
                ("Setting", "Default", "Values", "Change", "Importance", "Meaning"),
                (broker_row(setting) for setting in SETTINGS[Scope.BROKER].values()),
            ),
            "\n## Groups\n",
            *table(
                ("Setting", "Default", "Values", "Meaning"),
                ((name(s), default(s), values(s), s.doc) for s in SETTINGS[Scope.GROUP].values()),
            ),
            "\n## Client metrics\n",
            *table(
                ("Setting", "Default", "Values", "Meaning"),
                ((name(s), default(s), values(s), s.doc) for s in SETTINGS[Scope.CLIENT_METRICS].values()),
            ),
            "",
        ]
    )


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in sorted(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def topic_row(setting: Setting) -> tuple[str, ...]:
    brokers = ", ".join(f"`{broker_name}`" for broker_name, _ in setting.broker_names)
    return name(setting), default(setting), values(setting), brokers, setting.doc


def broker_row(setting: Setting) -> tuple[str, ...]:
    return (
        name(setting),
        default(setting),
        values(setting),
        setting.dynamic.value,
        setting.importance.value,
        setting.doc,
    )


def name(setting: Setting) -> str:
    return f"`{setting.name}`" + ("" if setting.honoured else " †")


def default(setting: Setting) -> str:
    return "unset" if setting.default_text is None else f"`{setting.default_text}`" if setting.default_text else "empty"


def values(setting: Setting) -> str:
    kind = {Kind.LONG: " (64 bit)", Kind.INT: " (32 bit)"}.get(setting.kind, "")
    return setting.allowed + kind


def unread() -> list[str]:
    """Honoured settings whose attribute appears nowhere outside the tables."""
    files = [path for path in SOURCE.rglob("*.py") if path.parent.name != "config"]
    code = "\n".join(path.read_text("utf-8") for path in files)
    code += (SOURCE / "config" / "broker_config.py").read_text("utf-8")
    # These reach a topic as the default of its own setting.
    through_topics = {broker_name for s in SETTINGS[Scope.TOPIC].values() for broker_name, _ in s.broker_names}
    return [
        f"{scope.value}: {setting.name}"
        for scope, settings in SETTINGS.items()
        for setting in settings.values()
        if setting.honoured
        and not (scope is Scope.BROKER and setting.name in through_topics)
        and f".{setting.attribute}" not in code
    ]


def main() -> int:
    if "--unread" in sys.argv:
        print("\n".join(unread()))
        return 0
    return write_or_check(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
