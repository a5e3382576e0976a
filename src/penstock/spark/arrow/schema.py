"""The rows of Spark's own `kafka` source as Arrow has them.

Read by arrow.decoder and by the readers of the data source. Spark compares the schema of the first batch with its own
and takes the rest on trust, so these must be equal to what it makes of its `kafka` schema, down to names inside lists.
"""

import pyarrow as pa

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", _HEADER))

RAW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
RAW_SCHEMA_WITH_HEADERS = RAW_SCHEMA.append(pa.field("headers", HEADERS_TYPE))
