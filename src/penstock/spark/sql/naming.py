"""Which topics a query reads, found by Spark's own parser.

Called by cli.sql, before anything is asked of a broker. Laws:
- A name is a topic's unless a WITH clause has given it away earlier in the same scope.
- Only queries: whatever would change something (INSERT, DROP, SET …) is refused before it is run, wherever it stands;
  so are functions that call any method there is in Java, which may do anything.
- Nothing here analyses or runs the query; a name that is no topic is somebody else's error.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `csv.`/data/zones.csv``: Spark reads a file where a relation has two parts and the first is one of these.
FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "binaryfile", "avro", "xml"})
_COMMANDS = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)
# What changes something, or starts a process, and is neither of these: by Spark's names for them.
_NO_QUERIES = frozenset(
    {
        "InsertIntoDir",
        "Call",
        "UnresolvedExecuteImmediate",
        "ScriptTransformation",
        "AutoCdcInto",
        "CompoundBody",
        "CreateTable",
        # IDENTIFIER(…) may stand for the target of an INSERT, and is no topic's name until the query is run.
        "PlanWithUnresolvedIdentifier",
    }
)
# Functions that call a method of any class, by a name that is known only when it is called.
_METHOD_CALLERS = frozenset({"reflect", "java_method", "try_reflect"})
# A name that is made up may become any of them.
_MADE_UP = "ExpressionWithUnresolvedIdentifier"
# Without one of these in it, no query names them; ${…} is replaced by a setting's value before it is parsed.
_SUSPICIOUS = ("reflect", "java_method", "identifier", "${")


class BadQuery(SparkFailure):
    """A query that cannot be run, and where in it the fault is."""


def topics_of(spark: "SparkSession", query: str) -> list[str]:
    """In the order they are named, each once. Raises Spark's ParseException, or BadQuery for what is no query."""
    session: Any = spark
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    _refuse_commands(session._jvm, plan)
    if any(word in query.lower() for word in _SUSPICIOUS):
        _refuse_methods(session._jvm, plan)
    found: dict[str, None] = {}
    for parts in _relations(plan, frozenset()):
        if len(parts) == 1:
            found[parts[0]] = None
        elif parts[0].lower() not in FILE_FORMATS:
            whole = ".".join(parts)
            raise BadQuery(f"{whole} would be a table of a database; write a topic with dots in backticks: `{whole}`")
    _refuse_twins(found)
    return list(found)


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names that may have been meant."""
    import difflib

    by_lower: dict[str, str] = {}
    for one in sorted(known):
        by_lower.setdefault(one.lower(), one)
    return [by_lower[near] for near in difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)]


def _relations(plan: Any, hidden: frozenset[str]) -> Iterator[list[str]]:
    """The names of all relations below a node, subqueries included, that no WITH clause has defined."""
    kind = plan.getClass().getSimpleName()
    if kind == "UnresolvedRelation":
        parts = [str(part) for part in _each(plan.multipartIdentifier())]
        if len(parts) > 1 or parts[0].lower() not in hidden:
            yield parts
        return
    if kind == "UnresolvedWith":
        # Each definition sees those before it; `WITH orders AS (SELECT … FROM orders)` reads the topic.
        is_recursive = bool(plan.allowRecursion())
        for definition in _each(plan.innerChildren()):
            name = str(definition.alias()).lower()
            yield from _relations(definition, hidden | {name} if is_recursive else hidden)
            hidden = hidden | {name}
    else:
        # Subqueries of expressions, as IN (SELECT …).
        for inner in _each(plan.innerChildren()):
            yield from _relations(inner, hidden)
    for child in _each(plan.children()):
        yield from _relations(child, hidden)


def _each(sequence: Any) -> Iterator[Any]:
    for slot in range(sequence.size()):
        yield sequence.apply(slot)


def _refuse_commands(jvm: Any, plan: Any) -> None:
    """Wherever in the plan they are: WITH … INSERT and FROM … INSERT have something else at its root."""
    loader = plan.getClass().getClassLoader()
    commands = [jvm.java.lang.Class.forName(name, False, loader) for name in _COMMANDS]
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() in _NO_QUERIES or any(command.isInstance(node) for command in commands):
            raise _no_query()
        waiting += [*_each(node.children()), *_each(node.innerChildren())]


def _refuse_methods(jvm: Any, plan: Any) -> None:
    """Through every part of every node, not only its expressions: those of a named window are not among them."""
    loader = plan.getClass().getClassLoader()
    product, iterable = (
        jvm.java.lang.Class.forName(name, False, loader) for name in ("scala.Product", "scala.collection.Iterable")
    )
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if not hasattr(node, "getClass"):
            continue  # a text or a number, which Python has as its own
        kind = node.getClass().getSimpleName()
        if kind == _MADE_UP:
            raise _no_query()
        if kind == "UnresolvedFunction" and [*_each(node.nameParts())][-1].lower() in _METHOD_CALLERS:
            raise _no_query()
        if iterable.isInstance(node):
            waiting += _all(node.iterator())
        elif product.isInstance(node):
            waiting += _all(node.productIterator())


def _all(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


def _no_query() -> BadQuery:
    return BadQuery(
        "only queries are run here: SELECT, WITH, FROM, TABLE or VALUES, and in them nothing that writes, calls a "
        "program or a method (reflect) or makes up a name (IDENTIFIER)"
    )


def _refuse_twins(names: Iterable[str]) -> None:
    """Spark does not tell `Orders` from `orders`, but a cluster does."""
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            raise BadQuery(f"`{twin}` and `{name}` differ in case only, which SQL does not see: use one in a query")
