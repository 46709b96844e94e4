"""Plans and expressions of Spark's JVM: how they are read, made and run.

Spark promises none of what is used here, and a new version may change it. The rest of the runtime
knows only the names and fields of a plan's nodes; how these are reached, put together and evaluated
is known only here. :mod:`backfill.runtime.batch.spark_compatibility` tries it before the first
query depends on it.
"""

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, _parse_datatype_json_string

from backfill.runtime.java_classes import java_classes
from backfill.runtime.spark_versions import (
    ClassicColumn,
    appended,
    column_of_expression,
    dataset_class,
    expression_of_column,
    hint_of,
    inline_cte,
    java_array,
    logical_rdd,
    no_rows,
    session_class,
    updated,
    valid_string,
    with_expressions_rewritten,
    with_parameters,
)

SPARK_CATALOG = "spark_catalog"
"""Name of the catalog that Spark has by itself."""
_NULL = -(2**63)
_PUSHING = (
    "BooleanSimplification",
    "EliminateOuterJoin",
    "PushDownPredicates",
    "PushExtraPredicateThroughJoin",
)
"""Rules that split conditions and move them towards the sources."""
_BETWEEN = "\x01,\x01"
_NULLS = ("null AS ", "cast(null as ")
"""How Spark writes columns that may be null by themselves."""
_ATTRIBUTE = re.compile(r"(?P<name>.*)#(?P<id>\d+)L?(-T-?\d+ms)?", re.DOTALL)
"""An attribute as Spark writes it: its type and a watermark's delay may follow."""
_LONG_BYTES = 8
_MOMENT_MS = 1_700_000_000_000
"""Any watermark, to ask Spark which rows it would remove."""


def kind_of(node: JavaObject) -> str:
    """Class name of a node or an expression."""
    return str(_kept(node, "kind", lambda: _utils().getFormattedClassName(node)))


def id_of(attribute: JavaObject) -> int:
    """Id of an attribute, which distinguishes it from others of the same name."""
    return int(_kept(attribute, "id", lambda: attribute.exprId().id()))


def children_of(node: JavaObject) -> list[JavaObject]:
    """The children of a node, or the operands of an expression."""
    return list(_kept(node, "children", lambda: elements(node.children())))


def _kept(of: Any, what: str, find: Callable[[], Any]) -> Any:
    """What never changes of something in the JVM, or of a DataFrame. It is asked for once, since
    every call of the JVM takes a fifth of a millisecond.
    """
    known, name = vars(of), f"_backfill_{what}"
    if name not in known:
        known[name] = find()
    return known[name]


def elements(sequence: JavaObject) -> list[JavaObject]:
    """The elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def ids_of(attributes: JavaObject) -> list[int]:
    """The ids of a Scala collection of attributes."""
    return [number for number, _ in ids_and_names(attributes)]


def ids_and_names(attributes: JavaObject) -> list[tuple[int, str]]:
    """The ids and names of a Scala collection of attributes, by one call of the JVM however many
    there are: a call for each column of a wide table would take minutes.
    """
    return [
        (int(found["id"]), found["name"])
        for found in map(_ATTRIBUTE.fullmatch, attributes.mkString(_BETWEEN).split(_BETWEEN))
        if found is not None  # no attributes are an empty text
    ]


def names_of(attributes: JavaObject) -> list[str]:
    """The names of a Scala collection of attributes."""
    return [name for _, name in ids_and_names(attributes)]


def columns_with_values(frame: DataFrame) -> tuple[str, ...]:
    """Names of a frame's columns, without those that are null because the program says so
    (``lit(None)``).
    """
    plan = node = analyzed(frame)
    null: set[int] = set()
    while True:
        if kind_of(node) == "Project":
            columns = node.projectList()
            for place, text in enumerate(columns.mkString(_BETWEEN).split(_BETWEEN)):
                if text.startswith(_NULLS):  # or a text that begins so
                    value = columns.apply(place).child()
                    if value.foldable() and value.eval(None) is None:
                        null.add(id_of(columns.apply(place)))
        children = children_of(node)
        if len(children) != 1:
            break
        (node,) = children
    return tuple(name for number, name in ids_and_names(plan.output()) if number not in null)


def made_or_handed_on(project: JavaObject) -> list[JavaObject | int]:
    """The columns of a Project in their order: the id of one that it only passes on, and the
    expression of any other one.
    """
    columns = project.projectList()
    in_words = columns.mkString(_BETWEEN).split(_BETWEEN)
    given = project.output()
    same = zip(in_words, given.mkString(_BETWEEN).split(_BETWEEN), ids_of(given), strict=True)
    return [
        number if column == attribute else columns.apply(place)
        for place, (column, attribute, number) in enumerate(same)
    ]


def selected(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """The rows of a frame with columns that are given in SQL, by one call of the JVM."""
    spark = frame.sparkSession
    text = f"SELECT {', '.join(columns)}"
    project = parsed(spark, text)
    child = frame._jdf.queryExecution().analyzed()
    return frame_of(spark, project.withNewChildren(java_classes(spark).PythonUtils.toSeq([child])))


def quoted(name: str) -> str:
    """The name of a column in SQL."""
    return f"`{name.replace('`', '``')}`"


def unresolved_function(expression: JavaObject) -> str | None:
    """The name of a function that is not resolved yet: so are operators of columns."""
    if kind_of(expression) != "UnresolvedFunction":
        return None
    return str(elements(expression.nameParts())[-1]).lower()


def conjuncts(condition: JavaObject) -> Iterator[JavaObject]:
    """The conditions that ``AND`` combines."""
    if kind_of(condition) == "And" or unresolved_function(condition) == "and":
        for part in children_of(condition):
            yield from conjuncts(part)
    else:
        yield condition


def nodes_of(plan: JavaObject) -> Iterator[JavaObject]:
    """Every node of a plan, including those of plans within its expressions."""
    pending = [plan]
    has_inner = _kept(plan, "has_inner", lambda: not plan.subqueriesAll().isEmpty())
    while pending:
        node = pending.pop()
        yield node
        pending += children_of(node)
        if has_inner:
            pending += elements(node.subqueries())


def analyzed(frame: DataFrame) -> JavaObject:
    """The frame's logical plan, with common table expressions inlined."""

    def inlined() -> JavaObject:
        inline = inline_cte(java_classes(frame.sparkSession))
        return inline.apply(frame._jdf.queryExecution().analyzed())

    return _kept(frame, "analyzed", inlined)


def optimized(plan: JavaObject, spark: SparkSession) -> JavaObject:
    """An analyzed plan as the session's optimizer makes it."""
    return spark._jsparkSession.sessionState().optimizer().execute(plan)


def pruned(plan: JavaObject, spark: SparkSession) -> JavaObject:
    """An analyzed plan with conditions and columns where Spark moves them: conditions into joins
    and below watermarks, with those that follow from joins and generators, such as keys that are
    not null; and below a node only the columns that are used.
    """
    rules = java_classes(spark).org.apache.spark.sql.catalyst
    plan = rules.analysis.EliminateSubqueryAliases.apply(plan)
    plan = rules.analysis.EliminateView.apply(plan)
    plan = rules.optimizer.ReplaceExpressions.apply(plan)
    plan = with_expressions_rewritten(java_classes(spark), plan)
    with active(spark):  # of which the rules have the properties
        plan = _pushed(plan, spark)
        plan = rules.optimizer.InferFiltersFromGenerate.apply(plan)
        plan = rules.optimizer.InferFiltersFromConstraints.apply(plan)
        return rules.optimizer.ColumnPruning.apply(_pushed(plan, spark))


def with_used_columns(plan: JavaObject, spark: SparkSession) -> JavaObject:
    """An analyzed plan in which every node has only the columns that those above it use, with all
    functions as the application has called them.
    """
    rules = java_classes(spark).org.apache.spark.sql.catalyst
    plan = rules.analysis.EliminateSubqueryAliases.apply(plan)
    plan = rules.analysis.EliminateView.apply(plan)
    with active(spark):  # of which the rule has the properties
        while True:
            used = rules.optimizer.ColumnPruning.apply(plan)
            if used.fastEquals(plan):
                return used
            plan = used


def _pushed(plan: JavaObject, spark: SparkSession) -> JavaObject:
    rules = java_classes(spark).org.apache.spark.sql.catalyst.optimizer
    while True:
        pushed = plan
        for name in _PUSHING:
            pushed = getattr(rules, name).apply(pushed)
        if pushed.fastEquals(plan):
            return pushed
        plan = pushed


def executed(frame: DataFrame) -> str:
    """The frame's physical plan, in Spark's words."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def frame_of(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """The rows of a batch plan."""
    rows = dataset_class(java_classes(spark)).ofRows(spark._jsparkSession, plan)
    return DataFrame(rows, spark)


def with_values(
    spark: SparkSession, plan: JavaObject, values: Mapping[str, Any] | Sequence[Any] | None
) -> JavaObject:
    """A parsed plan with values for its parameters, by name or in their order, as ``spark.sql``
    takes them.
    """
    if not values:
        return plan

    def literal(value: Any) -> JavaObject:
        return expression_of_column(spark, F.lit(value))

    if isinstance(values, Mapping):
        named = {name: literal(value) for name, value in values.items()}
        return with_parameters(java_classes(spark), plan, named)
    return with_parameters(java_classes(spark), plan, list(map(literal, values)))


def with_name(spark: SparkSession, plan: JavaObject, name: str) -> JavaObject:
    """A parsed ``PlanWithUnresolvedIdentifier`` with this table in place of ``IDENTIFIER(...)``."""
    return plan.planBuilder().apply(java_classes(spark).PythonUtils.toSeq([name]), plan.children())


def keeps_moments(cast: JavaObject) -> bool:
    """Whether a cast gives timestamps of the same microseconds since the epoch."""
    kinds = {cast.dataType().json(), cast.child().dataType().json()}
    if kinds == {'"timestamp"'}:
        return True
    return kinds == {'"timestamp"', '"timestamp_ntz"'} and cast.zoneId().getId() == "UTC"


def sized(frame: DataFrame, size_bytes: int) -> DataFrame:
    """The same rows, which Spark assumes to have this size.

    It assumes that a Python function returns as much as it was given, so this is how to say how
    much one returns: if that is little, Spark would send all of it to every executor for a join.
    """
    spark, jvm = frame.sparkSession, java_classes(frame.sparkSession)
    execution = frame._jdf.queryExecution()
    output = execution.analyzed().output()
    # Py4J turns the number that statistics are made with into one of Python's
    as_large = spark.range(max(size_bytes // _LONG_BYTES, 1))
    known = as_large._jdf.queryExecution().analyzed().stats()
    return frame_of(spark, logical_rdd(jvm, spark, execution.toRdd(), output, known))


def size_bytes(frame: DataFrame) -> int:
    """The size that Spark assumes for the rows."""
    return int(str(frame._jdf.queryExecution().analyzed().stats().sizeInBytes()))


def pickled(spark: SparkSession, objects: Sequence[object]) -> DataFrame:
    """A row for each object, in a partition of its own: a task is sent only its own ones, and no
    plan shows them. The column has a pickled list with the object.
    """
    partitions = spark.sparkContext.parallelize(objects, max(len(objects), 1))
    encoder = java_classes(spark).org.apache.spark.sql.Encoders.BINARY()
    rows = spark._jsparkSession.createDataset(partitions._jrdd.rdd(), encoder)
    return DataFrame(rows.toDF(), spark)


def column_of(spark: SparkSession, expression: JavaObject) -> Column:
    """A column of a plan by its identity, whatever else has its name."""
    return ClassicColumn(column_of_expression(java_classes(spark), expression))


def type_of(expression: JavaObject) -> DataType:
    """The type of an expression's values."""
    return _parse_datatype_json_string(str(expression.dataType().json()))


def schema_of(node: JavaObject) -> StructType:
    """The columns that a node gives."""
    schema = _parse_datatype_json_string(str(node.schema().json()))
    assert isinstance(schema, StructType)
    return schema


def field_names(struct: JavaObject) -> list[str]:
    """The names of a structure's fields."""
    return [str(field["name"]) for field in json.loads(struct.json())["fields"]]


def field_of(get_field: JavaObject) -> str | None:
    """The name of the field that a ``GetStructField`` takes; None if others have the same."""
    schema, place = get_field.childSchema(), get_field.ordinal()
    if schema.fieldNamesSet().size() == schema.size():
        return str(schema.apply(place).name())
    names = field_names(schema)
    return names[place] if names.count(names[place]) == 1 else None


def observing(spark: SparkSession, plan: JavaObject, name: str, *metrics: Column) -> JavaObject:
    """A batch plan that passes on its rows and observes aggregates of them.

    Nothing is pushed through it from above, so that the rows are those of the plan itself. The
    metrics belong to the job that computed the rows, so that two concurrent jobs, and two tries of
    a job, have their own.

    Args:
        name: of the metrics, of which no other node of the job's plan has the same.
        metrics: aggregates with an alias each.
    """
    return analyzed(frame_of(spark, plan).observe(name, *metrics))


def observed(frame: DataFrame) -> dict[str, dict[str, Any]]:
    """What a DataFrame has observed when it was collected, by the names of the metrics and their
    aliases. Where Spark found that there are no rows, nothing was observed.
    """
    found = elements(frame._jdf.queryExecution().observedMetrics().toSeq())
    metrics = ((each._1(), each._2()) for each in found)
    return {
        str(name): {
            str(alias): row.get(place) for place, alias in enumerate(row.schema().fieldNames())
        }
        for name, row in metrics
    }


def is_any_of(spark: SparkSession, node: JavaObject, classes: Iterable[str]) -> bool:
    """Whether a node is an instance of one of these classes, by their full names."""
    types = java_classes(spark).py4j.reflection.TypeUtil
    return any(types.isInstanceOf(name, node) for name in classes)


def save(frame: DataFrame, form: str, mode: str, options: Mapping[str, str]) -> None:
    """Writes rows by Spark's own writer, even if it is replaced in PySpark."""
    writer = frame._jdf.write().format(form).mode(mode)
    for key, value in options.items():
        writer = writer.option(key, value)
    writer.save()


def clock_pattern(spark: SparkSession) -> JavaObject:
    """Spark's own mark of nodes and expressions with the current time."""
    return java_classes(spark).org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()


def class_loads(name: str) -> bool:
    """Whether Java has a class, once it runs."""
    return bool(_utils().classIsLoadable(name))


def copied(spark: SparkSession) -> SparkSession:
    """A copy of a session with its views, functions and properties. Later changes of the session do
    not affect it.
    """
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes a session the thread's active one, and restores the previous one afterwards."""
    sessions = session_class(java_classes(spark))
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def heap_bytes(spark: SparkSession) -> int:
    """The most memory for objects of a process that runs tasks: an executor's, or on one machine
    the driver's.
    """
    context = spark.sparkContext
    if re.match(r"local(\[|$)", str(context.master)):
        return int(java_classes(spark).java.lang.Runtime.getRuntime().maxMemory())
    return int(context._jsc.sc().executorMemory()) << 20


def was_interrupted(spark: SparkSession) -> bool:
    """Whether Spark has asked this thread of Java to end what it does, since it was last asked."""
    try:
        java_classes(spark).java.lang.Thread.sleep(1)
    except Py4JJavaError:
        return True
    return False


def is_of_active_query(spark: SparkSession) -> bool:
    """Whether this thread is that of a query which the session has started, and has not stopped."""
    known = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    query = spark._jsparkSession.streams().get(known)
    return query is not None and bool(query.isActive())


def corrupt_record_column(spark: SparkSession) -> str:
    """The name of the column for text that is not a record."""
    return str(spark._jsparkSession.sessionState().conf().columnNameOfCorruptRecord())


def parsed(spark: SparkSession, text: str) -> JavaObject:
    """What Spark's parser makes of an SQL text.

    Raises:
        ParseException: it is none.
    """
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)


def with_variables(spark: SparkSession, text: str) -> str:
    """An SQL text with the values of the session's variables (``${name}``), as Spark's parser sees
    it.
    """
    substitution = java_classes(spark).org.apache.spark.sql.internal.VariableSubstitution()
    with active(spark):
        return str(substitution.substitute(text))


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether Spark takes a name for a temporary view of the session, before any table."""
    state = spark._jsparkSession.sessionState()
    return bool(state.catalog().isTempView(state.sqlParser().parseMultipartIdentifier(name)))


def name_parts(spark: SparkSession, name: str) -> tuple[str, ...]:
    """The parts of a table's name, as Spark's parser reads it."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    return tuple(map(str, elements(parser.parseMultipartIdentifier(name))))


def full_name(spark: SparkSession, parts: tuple[str, ...]) -> tuple[str, ...]:
    """The name of a table with the catalog and namespace that the session has entered, where they
    are left out. Without those of Spark's own catalog, in which no table of a Backfill is.
    """
    manager = spark._jsparkSession.sessionState().catalogManager()
    current = str(manager.currentCatalog().name())
    if current == SPARK_CATALOG or (len(parts) > 1 and manager.isCatalogRegistered(parts[0])):
        return parts
    within = tuple(map(str, manager.currentNamespace())) if len(parts) == 1 else ()
    return (current, *within, *parts)


def matches(spark: SparkSession, pattern: str, text: str) -> bool:
    """Whether one of Java's regular expressions is one for the whole text."""
    return bool(java_classes(spark).java.util.regex.Pattern.matches(pattern, text))


def downloaded(uri: str, directory: Path) -> str:
    """The URI of a copy of a file in a directory. It is fetched as ``spark-submit`` does it, with
    the process's Spark properties, and before there is a session.
    """
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf()
    file_systems = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
    fetch = jvm.org.apache.spark.util.DependencyUtils.downloadFile
    return str(fetch(uri, jvm.java.io.File(str(directory)), conf, file_systems))


def zone_id(spark: SparkSession, zone: str) -> JavaObject:
    """The ``java.time.ZoneId`` of a zone's name, as Spark reads it."""
    return java_classes(spark).org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone)


def epoch_second(spark: SparkSession, seconds: int) -> JavaObject:
    """A ``java.time.Instant``."""
    return java_classes(spark).java.time.Instant.ofEpochSecond(seconds)


class Catalyst:
    """Makes nodes and expressions in a session's JVM."""

    def __init__(self, spark: SparkSession):
        self._spark = spark
        self._jvm = java_classes(spark)
        self._gateway = spark.sparkContext._gateway
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._expressions = catalyst.expressions
        self._logical = catalyst.plans.logical
        self._optimizer = catalyst.optimizer
        self._planning = catalyst.planning
        self._patterns = catalyst.trees.TreePattern
        self._streaming_joins = catalyst.analysis.StreamingJoinHelper
        self._types = self._jvm.org.apache.spark.sql.types
        self._none = self._jvm.scala.Option.apply(None)

    def sequence(self, items: Sequence[JavaObject]) -> JavaObject:
        """A Scala sequence."""
        return self._jvm.PythonUtils.toSeq(list(items))

    def appended(self, sequence: JavaObject, item: JavaObject) -> JavaObject:
        """A Scala sequence with one more item."""
        return appended(self._jvm, sequence, item)

    def updated(self, sequence: JavaObject, place: int, item: JavaObject) -> JavaObject:
        """A Scala sequence with another item at a place."""
        return updated(self._jvm, sequence, place, item)

    def with_children(self, node: JavaObject, children: Sequence[JavaObject]) -> JavaObject:
        """The same node over others, or the same expression of other operands."""
        return node.withNewChildren(self.sequence(children))

    def with_operands(
        self, expression: JavaObject, changed: Callable[[JavaObject], JavaObject]
    ) -> JavaObject:
        """The same expression of changed operands; itself if none is another one."""
        operands = children_of(expression)
        new = [changed(each) for each in operands]
        if all(one is other for one, other in zip(operands, new, strict=True)):
            return expression
        return self.with_children(expression, new)

    def is_correlated(self, expression: JavaObject) -> bool:
        """Whether an expression has a subquery that refers to columns outside of it."""
        return bool(self._expressions.SubqueryExpression.hasCorrelatedSubquery(expression))

    # Joins of streams

    def equal_keys(
        self, join: JavaObject
    ) -> tuple[list[tuple[JavaObject, JavaObject]], JavaObject] | None:
        """The pairs of expressions by whose equality a join finds its rows, and the ``Option`` of
        its other condition; None for a join without such keys.
        """
        found = self._planning.ExtractEquiJoinKeys.unapply(join)
        if found.isEmpty():
            return None
        parts = found.get()
        pairs = zip(elements(parts._2()), elements(parts._3()), strict=True)
        return list(pairs), parts._4()

    def simplified(self, node: JavaObject) -> JavaObject:
        """A node with what all alternatives of its condition have in common taken out of them."""
        return self._optimizer.BooleanSimplification.apply(node)

    def equal_or_both_null(self, one: JavaObject, other: JavaObject) -> JavaObject:
        """The condition that two values are equal, or both null."""
        return self._expressions.EqualNullSafe(one, other)

    def join_where(self, join: JavaObject, conditions: Sequence[JavaObject]) -> JavaObject:
        """The same join by other conditions, which are combined by ``AND``."""
        condition = self._jvm.scala.Some.apply(reduce(self._expressions.And, conditions))
        return join.copy(join.left(), join.right(), join.joinType(), condition, join.hint())

    def kept_before_watermark_ms(
        self, side: JavaObject, event_times: Sequence[JavaObject], condition: JavaObject
    ) -> int | None:
        """How long before the watermark the rows of one side of a join must have happened for Spark
        to remove them, by a condition with event times of the other side; None if it never does.
        """
        others = self.project(event_times, side).outputSet()
        until = self._streaming_joins.getStateValueWatermark(
            side.outputSet(), others, condition, self._jvm.scala.Some.apply(_MOMENT_MS)
        )
        return None if until.isEmpty() else _MOMENT_MS - int(until.get())

    # Nodes

    def project(self, columns: Sequence[JavaObject], child: JavaObject) -> JavaObject:
        """A selection of named expressions."""
        return self.selection(self.sequence(columns), child)

    def collapsed(self, project: JavaObject) -> JavaObject:
        """A selection as one with those below it, without structs that are only taken apart.

        Spark's optimizer first puts all selections together: each field of a struct that is made
        of another one's fields has the whole of both then, which for a hundred fields are a million
        expressions, and for a few hundred more than the driver's memory.
        """
        rules = self._optimizer
        return rules.SimplifyExtractValueOps.apply(rules.CollapseProject.apply(project))

    def selection(self, columns: JavaObject, child: JavaObject) -> JavaObject:
        """The same of a Scala sequence."""
        return self._logical.Project(columns, child)

    def renumbered(self, plan: JavaObject, output: JavaObject) -> JavaObject:
        """The rows of a plan under the identities of other attributes of the same types.

        It takes the same few calls of the JVM for any number of columns: a union has the identities
        of its first part, and Spark's optimizer replaces one with an empty part by a selection.
        """
        nothing = no_rows(self._jvm, output)
        return self._logical.Union(self.sequence([nothing, plan]), False, False)

    def has_cast(self, expression: JavaObject) -> bool:
        """Whether there is a cast in an expression."""
        return bool(expression.containsPattern(self._patterns.CAST()))

    def filter(self, condition: JavaObject, child: JavaObject) -> JavaObject:
        """The rows for which a condition is true."""
        return self._logical.Filter(condition, child)

    def aggregate_with(self, aggregate: JavaObject, more: Sequence[JavaObject]) -> JavaObject:
        """An aggregation that gives more columns."""
        columns = [*elements(aggregate.aggregateExpressions()), *more]
        return aggregate.copy(
            aggregate.groupingExpressions(),
            self.sequence(columns),
            aggregate.child(),
            *hint_of(aggregate),
        )

    def deduplicate_by(self, node: JavaObject, keys: Sequence[JavaObject]) -> JavaObject:
        """A ``Deduplicate`` by other columns of its child. What it has besides these two differs
        between versions of Spark.
        """
        rest = [node.productElement(place) for place in range(1, node.productArity())]
        parts = [self.sequence(keys), *rest]
        return node.makeCopy(java_array(self._gateway, self._jvm.java.lang.Object, parts))

    # Expressions

    def unmarked(self, column: JavaObject) -> JavaObject:
        """The same column, of which Spark knows nothing but its type."""
        return column.withMetadata(self._types.Metadata.empty())

    def alias(
        self, expression: JavaObject, name: str, identity: JavaObject | None = None
    ) -> JavaObject:
        """A named expression, of a new identity unless it is given as an ``ExprId``."""
        number = identity or self._expressions.NamedExpression.newExprId()
        nothing = self.sequence([])
        return self._expressions.Alias(expression, name, number, nothing, self._none, nothing)

    def cast(
        self, value: JavaObject, wanted: JavaObject, zone: JavaObject | None = None
    ) -> JavaObject:
        """A cast that gives null where it cannot; ``zone`` is the option of another expression."""
        mode = self._expressions.EvalMode.LEGACY()
        return self._expressions.Cast(value, wanted, self._none if zone is None else zone, mode)

    def same_moment(self, cast: JavaObject) -> JavaObject:
        """What a cast gives for which :func:`keeps_moments`: Spark computes the local time of each
        row for it, even in UTC.
        """
        value = cast.child()
        kinds = value.dataType(), cast.dataType()
        return self._expressions.PreciseTimestampConversion(value, *kinds)

    def null(self, kind: JavaObject) -> JavaObject:
        """No value of a type."""
        return self._expressions.Literal.create(None, kind)

    def or_null(self, value: JavaObject, otherwise: JavaObject) -> JavaObject:
        """``otherwise`` unless a value is null; then null."""
        isnull = self._expressions.IsNull(value)
        return self._expressions.If(isnull, self.null(otherwise.dataType()), otherwise)

    def field(self, row: JavaObject, place: int) -> JavaObject:
        """A struct's field by its place."""
        return self._expressions.GetStructField(row, place, self._none)

    def struct(self, fields: Sequence[tuple[str, JavaObject]]) -> JavaObject:
        """A struct of named values, whatever their names."""
        strings = self._types.DataTypes.StringType
        parts = [
            part
            for name, value in fields
            for part in (self._expressions.Literal.create(name, strings), value)
        ]
        return self._expressions.CreateNamedStruct(self.sequence(parts))

    def valid_string(self, value: JavaObject) -> JavaObject:
        """A string in which bytes that are no UTF-8 are replaced, as Java does it."""
        as_bytes = self.cast(value, self._types.DataTypes.BinaryType)
        charset = self._expressions.Literal.create("UTF-8", self._types.DataTypes.StringType)
        return valid_string(self._expressions, value, as_bytes, charset)

    def formatted(self, moment: Column, pattern: str, zone: str) -> Column:
        """The text of a timestamp in a time zone, whatever the session's."""
        return column_of(
            self._spark,
            self._expressions.DateFormatClass(
                expression_of_column(self._spark, moment),
                self._expressions.Literal.create(pattern, self._types.DataTypes.StringType),
                self._jvm.scala.Some.apply(zone),
            ),
        )

    def try_cast(self, value: Column, kind: DataType) -> Column:
        """A cast that gives null where it cannot. Columns have a method for it since Spark 4.0."""
        wanted = self._spark._jsparkSession.parseDataType(kind.json())
        mode, given = self._expressions.EvalMode.TRY(), expression_of_column(self._spark, value)
        cast = self._expressions.Cast(given, wanted, self._none, mode)
        return column_of(self._spark, cast)

    def is_orderable(self, kind: JavaObject) -> bool:
        """Whether values of a type have an order."""
        return bool(self._expressions.RowOrdering.isOrderable(kind))

    # Evaluation

    def variable(self, kind: str) -> JavaObject:
        """A variable of one of the types that :meth:`evaluate` takes."""
        return self._expressions.NamedLambdaVariable(
            "moment",
            self._type(kind),
            False,
            self._expressions.NamedExpression.newExprId(),
            self._jvm.java.util.concurrent.atomic.AtomicReference(),
        )

    def evaluate(
        self, variable: JavaObject, body: JavaObject, result: str, inputs: Sequence[int]
    ) -> list[int] | None:
        """What an expression gives for values of its variable; None where it gives null or fails
        for one of them.

        Args:
            variable: of :meth:`variable`.
            body: an expression of that variable, and of nothing else that varies.
            result: its type: ``date``, ``timestamp``, ``timestamp_ntz``, or ``bigint``.
            inputs: days since the epoch for a variable that is a date, else microseconds, in UTC
                where it has no zone. So are the results.
        """
        expressions, count = self._expressions, len(inputs)
        try:
            known = [
                self._as_number(body, result),
                expressions.Literal(_NULL, self._type("bigint")),
            ]
            number = expressions.Coalesce(self.sequence(known))
            each = expressions.LambdaFunction(number, self.sequence([variable]), False)
            values_of = expressions.ArrayTransform(self._array(inputs, variable.dataType()), each)
            found = values_of.eval(None)
        except Py4JError:
            return None
        buffer = self._jvm.java.nio.ByteBuffer.allocate(8 * count)
        buffer.asLongBuffer().put(found.toLongArray())
        values = struct.unpack(f">{count}q", buffer.array())
        return None if _NULL in values else list(values)

    def _as_number(self, value: JavaObject, kind: str) -> JavaObject:
        long = self._type("bigint")
        if kind == "date":
            days = self._expressions.UnixDate(value)
            return self._expressions.Cast(days, long, self._none, self._expressions.EvalMode.ANSI())
        if kind == "bigint":
            return value
        return self._expressions.PreciseTimestampConversion(value, self._type(kind), long)

    def _array(self, values: Sequence[int], kind: JavaObject) -> JavaObject:
        """An array of days or microseconds, moved to the JVM as one block of bytes."""
        days = kind.simpleString() == "date"
        code, java = ("i", "int") if days else ("q", "long")
        assert self._gateway is not None  # in classic PySpark
        array = self._gateway.new_array(getattr(self._gateway.jvm, java), len(values))
        buffer = self._jvm.java.nio.ByteBuffer.wrap(struct.pack(f">{len(values)}{code}", *values))
        (buffer.asIntBuffer() if days else buffer.asLongBuffer()).get(array)
        data = self._expressions.UnsafeArrayData.fromPrimitiveArray(array)
        return self._expressions.Literal(data, self._types.ArrayType(kind, False))

    def _type(self, kind: str) -> JavaObject:
        types = self._types.DataTypes
        return {
            "timestamp": types.TimestampType,
            "timestamp_ntz": types.TimestampNTZType,
            "date": types.DateType,
            "bigint": types.LongType,
        }[kind]


def _utils() -> Any:
    return java_classes(SparkContext).org.apache.spark.util.Utils
