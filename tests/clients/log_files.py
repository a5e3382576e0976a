"""What lies in a broker's log, read past the broker.

Called by the tests of messages, which would otherwise take an uncompressed batch for a compressed one.
"""

from penstock.records.batch import read_header
from penstock.records.compression import Codec
from penstock.testing import EmbeddedBroker


def codecs_in_log(broker: EmbeddedBroker, topic: str) -> set[str]:
    """The compressions of a topic's batches as they lie on disk."""
    codecs: set[str] = set()
    for file in broker.data_dir.rglob(f"{topic}-*/*.log"):
        data = file.read_bytes()
        position = 0
        while position < len(data):
            header = read_header(data, position)
            codecs.add(Codec(header.compression).name.lower())
            position += header.size
    return codecs
