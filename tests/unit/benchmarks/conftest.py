"""The comparison is a folder of scripts beside the package: the checkout itself must be importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
