"""Trying again when another writer was faster: the one loop of all sinks that commit against others.

Called by delta, iceberg and compaction.
Law: each attempt looks at the table anew, so that a batch that was stored meanwhile is seen before it is written twice.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.spark.tables.failures import CommitConflict
from penstock.spark.tables.model import COMMIT_ATTEMPTS, COMMIT_WAIT_S

T = TypeVar("T")


def commit_until_done(table: str, attempt: Callable[[], T], conflicts: tuple[type[BaseException], ...]) -> T:
    """`attempt` opens the table, checks and commits; it raises one of `conflicts` when it must be made again."""
    last: BaseException | None = None
    for number in range(COMMIT_ATTEMPTS):
        try:
            return attempt()
        except conflicts as conflict:
            last = conflict
        # Writers that collided part by chance.
        time.sleep(random.uniform(0, min(COMMIT_WAIT_S, 0.02 * 2**number)))
    raise CommitConflict(table, COMMIT_ATTEMPTS) from last
