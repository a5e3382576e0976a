"""Makes format("penstock") known to a session, so that many queries of one driver may use it at once.

Called by session.build_session, by pipeline.building for the session of a pipeline, and by users through
penstock.spark.register.

A Python data source is one function to Spark, shared by all queries, and each stream that starts writes into the
environment of that function (PythonStreamingSourceRunner.init). Where Spark has found or been given the source itself,
that is a map without locks: two streams that start at the same moment may break it, and then every job that reads the
source fails with `Task not serializable`, until the driver is started anew. Here the function gets a concurrent map.
"""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"


def register(spark: "SparkSession") -> None:
    """Make `format("penstock")` known to this session; a Spark Connect server keeps the map it makes by itself."""
    from pyspark.sql import udf
    from pyspark.sql.utils import is_remote

    from penstock.spark.source import PenstockDataSource

    if is_remote():
        spark.dataSource.register(PenstockDataSource)
        return
    jvm = cast(Any, spark.sparkContext)._jvm
    function = cast(Any, udf)._wrap_function(spark.sparkContext, PenstockDataSource)
    shared = function.copy(
        function.command(),
        jvm.java.util.concurrent.ConcurrentHashMap(function.envVars()),
        function.pythonIncludes(),
        function.pythonExec(),
        function.pythonVer(),
        function.broadcastVars(),
        function.accumulator(),
    )
    source = getattr(jvm, _SOURCE)(shared)
    cast(Any, spark)._jsparkSession.dataSource().registerPython(PenstockDataSource.name(), source)
