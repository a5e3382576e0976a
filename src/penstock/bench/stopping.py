"""Ctrl-C and SIGTERM as a wish that is looked at between two messages, so that what was measured is still shown.

Called by cli.bench. Not as an exception: one raised inside a callback of librdkafka would lose acknowledgements.
A second signal does interrupt, for whoever no longer wants to wait.
"""

import signal
from types import FrameType, TracebackType
from typing import Any, Self


class Stop:
    """with Stop() as stop:
    while not stop.is_wanted: ...
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True
