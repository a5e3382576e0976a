"""What commands on Spark share: is Spark installed, and where the cluster is, as options of the source.

Called by cli.sql and cli.report.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterable
from typing import ParamSpec

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.cli.arguments import parse_pairs

P = ParamSpec("P")

_NEEDED = ("pyspark", "pyarrow", "numba")


def needs_spark(command: Callable[P, None]) -> Callable[P, None]:
    """The command, which says what to install where the extra `spark` is missing."""

    @functools.wraps(command)
    def run(*positional: P.args, **named: P.kwargs) -> None:
        require_spark()
        command(*positional, **named)

    return run


def require_spark() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"this needs Spark, and {', '.join(missing)} cannot be found",
            "Install it with: pip install 'penstock[spark]'",
        )


def cluster_options(cluster: Cluster, more: Iterable[str] = ()) -> dict[str, str]:
    """-b and -X as the source takes them; what is given as an option of the source itself comes last and wins."""
    kafka = {f"kafka.{name}": value for name, value in cluster.properties.items()}
    return {"kafka.bootstrap.servers": cluster.bootstrap, **kafka, **parse_pairs(more)}
