"""kcat as a command: one that ends, a member of a group that stays, and a producer that is fed line by line.

Called by test_kcat and test_cluster.
"""

import re
import signal
import subprocess
import threading
from collections.abc import Iterable, Sequence

from client import WAIT_DEADLINE_S
from steady_load import BATCH, PACE_S, Outcome, Progress, group_of

DEADLINE_S = 45
# Without it kcat ends when every broker it knows has been away once, though they have come back.
STAYS = ("-E",)
IDEMPOTENT = ("enable.idempotence=true", "reconnect.backoff.max.ms=100")


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def options(settings: Iterable[str]) -> list[str]:
    return [word for setting in settings for word in ("-X", setting)]


class GroupMember:
    """A kcat in a group, that runs until it is told to leave. It commits by itself."""

    def __init__(self, bootstrap: str, group: str, topic: str, form: str = "%s", flags: Sequence[str] = ()) -> None:
        quick = ("heartbeat.interval.ms=200", "auto.offset.reset=earliest", "auto.commit.interval.ms=100")
        self.values: list[str] = []
        self.news: list[str] = []
        self.assigned: set[int] = set()
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            ["kcat", "-b", bootstrap, "-u", *flags, *options(quick), "-f", f"{form}\n", "-G", group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for listen in (self._hear_values, self._hear_news):
            threading.Thread(target=listen, daemon=True).start()

    def wait_until(self, what: str, count: int = 0, assigned: int = 0) -> None:
        """Wait for so many different values, and partitions."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: len(set(self.values)) >= count and (assigned == 0 or len(self.assigned) == assigned), DEADLINE_S
            ), f"waited in vain for {what}: {len(self.values)} values, owns {self.assigned}, says {self.news}"

    def leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(DEADLINE_S)

    def _hear_values(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.values.append(line.strip())
                self._changed.notify_all()

    def _hear_news(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.news.append(line.strip())
            if "rebalanced" not in line:
                continue
            partitions = {int(index) for index in re.findall(r"\[(\d+)\]", line)}
            with self._changed:
                self.assigned = partitions if "assigned" in line else self.assigned - partitions
                self._changed.notify_all()


class KcatLoad:
    """As SteadyLoad, with one kcat that produces and one in a group. What is acknowledged shows when it has ended."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._written = 0
        self._progress = Progress()
        self._is_over = threading.Event()
        self._member = GroupMember(bootstrap, group_of(topic), topic, "%p %o %s", STAYS)
        self._process = subprocess.Popen(
            ["kcat", "-b", bootstrap, "-P", *STAYS, "-t", topic, *options(IDEMPOTENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._feeding = threading.Thread(target=self._feed, daemon=True)
        self._feeding.start()

    def advance(self) -> None:
        # Its acknowledgements are not told; what is read was acknowledged, or could be.
        self._progress.wait_for_more(2, "kcat", lambda: not self._feeding.is_alive())
        self._member.wait_until("what was written", count=self._written)

    def finish(self) -> Outcome:
        self._is_over.set()
        self._feeding.join(WAIT_DEADLINE_S)
        _, complaints = self._process.communicate(timeout=DEADLINE_S)  # closes its input
        failures = [] if self._process.returncode == 0 else [complaints]
        try:
            self._member.wait_until("everything", count=self._written)
        except AssertionError as error:
            failures.append(str(error))
        self._member.leave()
        outcome = Outcome(failures=failures)
        outcome.acknowledged = dict.fromkeys(range(self._written))
        for line in self._member.values:
            partition, offset, value = map(int, line.split())
            outcome.read[partition, offset] = value
        return outcome

    def _feed(self) -> None:
        assert self._process.stdin is not None
        while not self._is_over.wait(PACE_S):
            batch = range(self._written, self._written + BATCH)
            self._process.stdin.write("".join(f"{number}\n" for number in batch))
            self._process.stdin.flush()
            self._written = batch.stop
            self._progress.grow()
