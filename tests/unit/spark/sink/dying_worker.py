"""A worker that writes one task and kills itself at a given moment of its commit, for test_killed_in_commit.py.

dying_worker.py BOOTSTRAP BATCH MICROSECONDS
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sink_world import options_for, task_of, write

from penstock.spark.sink.transaction import TransactionalProducer


def main() -> None:
    bootstrap, batch, microseconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    until = TransactionalProducer._until

    def die_on_the_way(
        self: TransactionalProducer, call: Callable[[float], object], doing: str, seconds: float
    ) -> None:
        if doing == "committing":
            threading.Thread(target=die).start()
        until(self, call, doing, seconds)

    def die() -> None:
        time.sleep(microseconds / 1e6)
        os.kill(os.getpid(), signal.SIGKILL)

    TransactionalProducer._until = die_on_the_way
    write(options_for(bootstrap), task_of(batch, run=f"run-{batch}"))
    # The commit was quicker than the death that is on its way.
    signal.pause()


if __name__ == "__main__":
    main()
