"""What the query is called, as far as a data source can find out. What PySpark 4.3 was seen to tell, and to whom:

- The reader that plans a stream lives in a Python process of its own on the driver. It is given the options of the
  reader and nothing of the query: no name, no id, no checkpoint, no local properties, no way into the JVM.
- A task's TaskContext has the local properties of the thread that runs the query: `sql.streaming.queryId`, which a
  restart keeps, and `spark.job.description`, whose first line is the query's name (empty without one) and whose second
  is the id.

So it is the tasks that know. How the driver's reader learns it from them is told in progress_group.py.
"""

from collections.abc import Callable

QUERY_ID = "sql.streaming.queryId"
DESCRIPTION = "spark.job.description"


def query_label(local_property: Callable[[str], str | None]) -> str | None:
    """The query's name, else its id, else None where no query runs."""
    query_id = local_property(QUERY_ID)
    if not query_id:
        return None
    before, found, _ = (local_property(DESCRIPTION) or "").partition(f"id = {query_id}")
    # A job whose description somebody else has set says nothing of the query.
    name = before.replace("<br/>", "\n").strip() if found else ""
    return name or query_id


def label_of_this_task() -> str | None:
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else query_label(context.getLocalProperty)
