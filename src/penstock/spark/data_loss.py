"""One place for what happens when records are gone: the query fails, or a warning says what is missing.

Called by the readers, in the driver when a batch is planned and in a worker when it is read.
"""

import logging
from collections.abc import Sequence

from penstock.spark.errors import DataLost

log = logging.getLogger("penstock.spark")


def report_losses(losses: Sequence[str], is_failing: bool) -> None:
    """DataLost where failOnDataLoss is true, else a line for each in the log."""
    if losses and is_failing:
        more = f" (and {len(losses) - 1} more like it)" if len(losses) > 1 else ""
        raise DataLost(f"{losses[0]}{more}; failOnDataLoss=false would go on behind what is missing")
    for loss in losses:
        log.warning("%s; going on, since failOnDataLoss is false", loss)
