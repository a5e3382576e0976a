"""What keeps record batches from becoming rows.

Raised by arrow.batch_list, arrow.decoder and arrow.compiling.
"""

from penstock.spark.errors import SparkFailure


class MalformedBatch(SparkFailure):
    """Bytes of a partition that are no record batch, or one that does not add up."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(
            f"the record batch at offset {offset} of {topic}-{partition} cannot be read: {why}; "
            f"start behind it (startingOffsets) or check the broker's disk"
        )
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __reduce__(self) -> tuple[type["MalformedBatch"], tuple[str, int, int, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.why)


class NoNumba(SparkFailure):
    """The compiler that decoding needs is not installed."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f'decoding records needs numba, which cannot be imported here ({why}): install "penstock[spark]"'
        )
        self.why = why

    def __reduce__(self) -> tuple[type["NoNumba"], tuple[str]]:
        return type(self), (self.why,)
