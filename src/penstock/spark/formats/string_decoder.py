"""Values as text: bytes that are no UTF-8 are a bad record, where Spark's cast would let them by.

Called by row_decoder.
"""

import pyarrow as pa
from pyspark.sql import types as t

from penstock.spark.formats.columns import Decoded


class StringDecoder:
    spark_type: t.DataType = t.StringType()

    def decode(self, values: pa.Array) -> Decoded:
        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        bad: dict[int, str] = {}
        for row, raw in enumerate(values.to_pylist()):
            try:
                texts.append(None if raw is None else raw.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                bad[row] = f"it is no UTF-8: {error.reason} at byte {error.start}"
        return Decoded(pa.array(texts, type=pa.string()), bad)
