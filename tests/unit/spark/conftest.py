"""The parts that tests of several rooms share lie here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
