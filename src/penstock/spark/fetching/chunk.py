"""What one Fetch brought of one partition: the only thing that fetching hands to decoding.

Made by fetching.partition_fetcher, read by arrow.decoder.
"""

from typing import NamedTuple


class FetchedChunk(NamedTuple):
    """`records` is a part of the frame that came: whole batches, of which the last may be cut off."""

    records: memoryview
    aborted: list[tuple[int, int]]  # (producer id, first offset) of the aborted transactions that reach in here
    log_start: int
    last_stable: int
    high_watermark: int
