"""Record batches, as a broker keeps them, into Arrow batches, as Spark wants them."""

from penstock.spark.arrow.decoder import ArrowDecoder, warm_up
from penstock.spark.arrow.errors import MalformedBatch, NoNumba
from penstock.spark.arrow.schema import RAW_SCHEMA, RAW_SCHEMA_WITH_HEADERS

__all__ = ["RAW_SCHEMA", "RAW_SCHEMA_WITH_HEADERS", "ArrowDecoder", "MalformedBatch", "NoNumba", "warm_up"]
