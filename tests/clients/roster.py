"""The clients tried, and what each of them cannot do by itself.

Called by conftest and the tests. A feature a client does not have is no test of it; a client whose toolchain is not on
this machine is a skipped test that says so.
"""

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from toolchains import BUILD_DEADLINE_S, go_driver, java_driver, node_driver, python_driver

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    command: Callable[[], list[str]]  # how to start its driver; makes it first where it has to be made
    lacks: frozenset[str] = frozenset()
    codec_packages: Mapping[str, str] = field(default_factory=dict[str, str])


KINDS = (
    Kind(
        "confluent",
        functools.partial(python_driver, "confluent_driver.py"),
        lacks=frozenset({"log_dirs", "quotas", "delete_offsets", "version_2"}),
    ),
    Kind(
        "kafka-python",
        functools.partial(python_driver, "kafka_python_driver.py"),
        # Its alter_configs fills in what was set before, so it cannot replace all settings at once.
        # What it wanted of a transaction's coordinator that cannot be reached it forgets, and waits for the answer.
        lacks=frozenset({"odd_headers", "quotas", "replace_config", "version_2", "lost_coordinators"}),
        codec_packages={"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"},
    ),
    Kind(
        "aiokafka",
        functools.partial(python_driver, "aiokafka_driver.py"),
        # No fencing: its heartbeats and commits are too old to name the static member they come from.
        # A transaction of it names the group whose offsets it takes, but no member.
        lacks=frozenset(
            {
                "fencing",
                "group_metadata",
                "version_2",
                "cooperative",
                "alter_config",
                "delete_group",
                "alter_offsets",
                "delete_offsets",
                "max_timestamp",
                "log_dirs",
                "quotas",
            }
        ),
    ),
    Kind(
        "kafkajs",
        node_driver,
        # Where a record went is known only if the caller chose it: the answer names partitions, not records.
        # After half a reply it takes the first bytes of the next connection for the other half.
        # The end of a transaction is asked for once; if the connection breaks then, the application is told.
        # When leaders move in the middle of a send to several partitions, it forgets some of them (docs/clients.md).
        lacks=frozenset(
            {
                "sends_across_partitions",
                "half_replies",
                "end_retries",
                "group_metadata",
                "version_2",
                "odd_headers",
                "keyed_partitions",
                "cooperative",
                "static_members",
                "alter_config",
                "delete_offsets",
                "max_timestamp",
                "log_dirs",
                "quotas",
            }
        ),
    ),
    # The newest, whose transactions are of version 2 (KIP-890), and the one inside Spark, whose are of version 1.
    Kind("java-4.4", functools.partial(java_driver, "4.4.0"), lacks=frozenset({"replace_config"})),
    Kind("java-3.9", functools.partial(java_driver, "3.9.2"), lacks=frozenset({"replace_config", "version_2"})),
    # By design it never follows a topic to a new id: the application has to drop the topic first.
    # Offsets go into a transaction only through a session that owns consumer and producer both.
    Kind(
        "franz-go",
        functools.partial(go_driver, "franz"),
        lacks=frozenset({"recreated_topics", "transactional_offsets", "group_metadata"}),
    ),
    # At an offset that is gone its reader stops and says so; there is no policy to follow.
    Kind(
        "sarama",
        functools.partial(go_driver, "sarama"),
        lacks=frozenset({"reset_policy", "max_timestamp", "group_metadata", "version_2"}),
    ),
)


def needs_codec(kind: Kind, codec: str) -> None:
    """Skip where a client keeps this compression in a package that is not installed."""
    package = kind.codec_packages.get(codec)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{kind.name} compresses with {codec} only if the Python package {package} is installed")


def clients(*features: str, only: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run a test with every client that has these features, or with those that are named."""
    unknown = set(features).difference(*(kind.lacks for kind in KINDS))
    assert not unknown, f"every client has {unknown}: no need to ask for it"
    able = [kind for kind in KINDS if not kind.lacks.intersection(features) and (not only or kind.name in only)]
    # The first test of a client may have to build its driver first, which takes what the network takes.
    patience = pytest.mark.timeout(3 * BUILD_DEADLINE_S)
    return pytest.mark.parametrize(
        "driver", [pytest.param(kind, id=kind.name, marks=patience) for kind in able], indirect=True
    )
