"""penstock beside other systems, from one run on one machine.

`python benchmarks/compare.py [--only produce,…] [--peers kafka,…] [--rounds 5] [--quick]`, run by `make bench`.
The work is in benchmarks/beside; this file only makes the two folders importable as one package.
"""

import signal
import sys
from pathlib import Path
from types import FrameType


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.beside.command import main as compare

    # Ended from outside, it ends what it started: the exception runs every `finally`.
    signal.signal(signal.SIGTERM, _interrupt)
    return compare(sys.argv[1:])


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
