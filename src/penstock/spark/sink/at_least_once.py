"""One task without transactions: acknowledged by the brokers before it counts as done, doubled if Spark repeats it.

Called by the writers for delivery=at-least-once, in Spark's Python workers.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.spark.sink.columns import RowShape, key_and_value, row_lists
from penstock.spark.sink.producing import RowProducer

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.options import WriteOptions

# Workers live on between batches; by process too, since a client does not survive a fork.
_kept: dict[tuple[int, frozenset[tuple[str, str]]], RowProducer] = {}


def write_at_least_once(options: "WriteOptions", shape: RowShape, batches: "Iterator[pa.RecordBatch]") -> int:
    """How many rows were written and acknowledged. Any that was not fails the task."""
    key = (os.getpid(), frozenset(options.librdkafka.items()))
    producer = _kept.pop(key, None) or RowProducer(options)
    rows = 0
    try:
        for batch in batches:
            producer.send(row_lists(batch, shape, options.topic, *key_and_value(batch, shape)))
            rows += batch.num_rows
        producer.flush()
    except BaseException:
        producer.drop()
        raise
    _kept[key] = producer
    return rows
