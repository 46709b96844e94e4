"""What differs between versions of Spark, each difference with the version from which on it can go.
Nothing else compares versions.

Names of nodes and expressions need no comparison: where they are looked for, those of all versions
are listed.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyspark
from py4j.java_gateway import JavaObject
from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

if TYPE_CHECKING:
    import pyarrow as pa

SPARK: Final = tuple(map(int, pyspark.__version__.split(".")[:2]))
"""The version, as major and minor number."""
_CLASSIC: Final = SPARK >= (4, 0)
"""Whether what runs in this process is called classic, beside Spark Connect."""

NO_REPARTITION: Final = "" if SPARK >= (4, 2) else "Spark before 4.2 cannot repartition state"
"""Why the number of partitions of state cannot be changed; empty if it can."""
NO_STATE_READER: Final = (
    "" if SPARK >= (4, 0) else "Spark before 4.0 cannot read the state of a query"
)
"""Why results that a query holds at its end cannot be counted; empty if they can."""
NO_MERGE_INTO: Final = (
    ""
    if SPARK >= (4, 1)
    else "is not redirected with Spark before 4.1: use spark.sql('MERGE INTO …')"
)
"""Why ``mergeInto`` cannot be redirected; empty if it can."""
HAS_VARIANT: Final = SPARK >= (4, 0)
"""Whether text of JSON can be written as it is within other JSON."""
MAPS_IN_ARROW: Final = frozenset({"MapInArrow", "PythonMapInArrow"})
"""Names of nodes that apply a function to Arrow batches. The latter is that of Spark before 4.0."""
COUNTS_SAMPLES: Final = SPARK < (4, 3)
"""Whether what a query observes counts rows again that Spark reads to sample them for a range."""
NAMES_SNAPSHOTS: Final = SPARK < (4, 1)
"""Whether a table of Iceberg in a plan has a snapshot only if the program names one. From Spark 4.1
on it always has one.
"""
FORKS_TASKS: Final = SPARK >= (4, 0)
"""Whether ``spark.python.daemon.module`` is given the module that its processes run."""
STATEMENTS: Final = ("Command", "ParsedStatement") + (
    ("CompoundPlanStatement",) if SPARK >= (4, 0) else ()
)
"""Classes of plans that are statements. Py4J fails for one that does not exist."""


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


class _NoMergeInto:
    """In place of a class that Spark before 4.0 does not have."""

    def __init__(self, *_: object):
        raise NotImplementedError("DataFrame.mergeInto")


class _NoVariant(DataType):
    """In place of a type that Spark before 4.0 does not have."""


if TYPE_CHECKING:
    from pyspark.sql import merge, types
    from pyspark.sql.classic import column, dataframe

    ClassicColumn = column.Column
    ClassicDataFrame = dataframe.DataFrame
    MergeIntoWriter = merge.MergeIntoWriter
    VariantType = types.VariantType
else:
    ClassicColumn = _imported("pyspark.sql.classic.column", "Column") if _CLASSIC else Column
    ClassicDataFrame = (
        _imported("pyspark.sql.classic.dataframe", "DataFrame") if _CLASSIC else DataFrame
    )
    MergeIntoWriter = (
        _imported("pyspark.sql.merge", "MergeIntoWriter") if _CLASSIC else _NoMergeInto
    )
    VariantType = _imported("pyspark.sql.types", "VariantType") if SPARK >= (4, 0) else _NoVariant


# Python


def to_arrow_schema(schema: StructType) -> "pa.Schema":
    """The schema in Arrow, with timestamps in UTC. Since 4.2 the zone has to be given."""
    convert = _imported("pyspark.sql.pandas.types", "to_arrow_schema")
    return convert(schema, timezone="UTC") if SPARK >= (4, 2) else convert(schema)


def to_arrow(frame: DataFrame) -> "pa.Table":
    """The rows as an Arrow table. Since 4.0 a DataFrame has a method."""
    if SPARK >= (4, 0):
        return frame.toArrow()
    import pyarrow as pa

    collect: Any = frame._collect_as_arrow
    return pa.Table.from_batches(collect(), to_arrow_schema(frame.schema))


def properties(spark: SparkSession) -> dict[str, str]:
    """All properties of a session. Since 4.0 ``spark.conf`` has them."""
    if SPARK >= (4, 0):
        return dict(spark.conf.getAll)
    found = spark._jsparkSession.conf().getAll().toSeq()
    pairs = (found.apply(place) for place in range(found.size()))
    return {str(each._1()): str(each._2()) for each in pairs}


def schema_of_ddl(text: str) -> DataType:
    """The type that a DDL string describes. Since 4.0 no session is needed."""
    from_ddl: Callable[[str], DataType] = (
        StructType.fromDDL if SPARK >= (4, 0) else _parse_datatype_string
    )
    return from_ddl(text)


def as_thread(spark: SparkSession, work: Callable[[], None]) -> Callable[[], None]:
    """What a thread does that has the properties of this one. Since 4.0 the session is given."""
    inherit: Any = inheritable_thread_target
    inherited: Callable[[], None] = inherit(spark)(work) if SPARK >= (4, 0) else inherit(work)
    return inherited


def parsed_json(text: Column) -> Column:
    """JSON text as a value of :class:`VariantType`; null if it is no JSON."""
    parse: Callable[[Column], Column] = _imported("pyspark.sql.functions", "try_parse_json")
    return parse(text)


# Classes of the JVM


def dataset_class(jvm: Any) -> Any:
    """The class of DataFrames. Since 4.0 it is that of classic Spark."""
    return (
        jvm.org.apache.spark.sql.classic.Dataset if _CLASSIC else jvm.org.apache.spark.sql.Dataset
    )


def session_class(jvm: Any) -> Any:
    """The class of sessions. Since 4.0 it is that of classic Spark."""
    sql = jvm.org.apache.spark.sql
    return sql.classic.SparkSession if _CLASSIC else sql.SparkSession


def column_of_expression(jvm: Any, expression: JavaObject) -> JavaObject:
    """A column with an expression. Before 4.0 columns were made of expressions."""
    sql = jvm.org.apache.spark.sql
    return sql.classic.ExpressionUtils.column(expression) if _CLASSIC else sql.Column(expression)


def expression_of_column(spark: SparkSession, column: Column) -> JavaObject:
    """The expression of a column. Before 4.0 columns had it."""
    made: Any = column._jc
    return spark._jsparkSession.expression(made) if _CLASSIC else made.expr()


def checkpoint_logs(jvm: Any) -> Any:
    """The package of the logs of a checkpoint, which was moved in 4.1."""
    streaming = jvm.org.apache.spark.sql.execution.streaming
    return streaming.checkpointing if SPARK >= (4, 1) else streaming


def open_log(log: Any, spark: SparkSession, location: str) -> JavaObject:
    """A log of a checkpoint. Since 4.2 it is said whether it is only read."""
    return log(spark._jsparkSession, location, *((False,) if SPARK >= (4, 2) else ()))


FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming."
    f"{'checkpointing.' if SPARK >= (4, 1) else ''}FileSystemBasedCheckpointFileManager"
)
"""Spark's own class for checkpoints in file systems that its default does not know."""


def appended(jvm: Any, sequence: JavaObject, item: JavaObject) -> JavaObject:
    """A Scala sequence with one more item. Before 4.0 it is that of Scala 2.12."""
    if SPARK >= (4, 0):
        return sequence.appended(item)
    return getattr(sequence, "$colon$plus")(
        item, jvm.scala.collection.immutable.List.canBuildFrom()
    )


def updated(jvm: Any, sequence: JavaObject, place: int, item: JavaObject) -> JavaObject:
    """A Scala sequence with another item at a place. Before 4.0 it is that of Scala 2.12."""
    if SPARK >= (4, 0):
        return sequence.updated(place, item)
    return sequence.updated(place, item, jvm.scala.collection.immutable.List.canBuildFrom())


# Plans of the JVM


def inline_cte(jvm: Any) -> JavaObject:
    """The rule that inlines all common table expressions. 4.0 and 4.3 have added a Boolean each."""
    more = (False, False) if SPARK >= (4, 3) else (False,) if SPARK >= (4, 0) else ()
    return jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, *more)


def with_expressions_rewritten(jvm: Any, plan: JavaObject) -> JavaObject:
    """A plan without the expressions that name others, which there are since 4.0."""
    if SPARK < (4, 0):
        return plan
    return jvm.org.apache.spark.sql.catalyst.optimizer.RewriteWithExpression.apply(plan)


def logical_rdd(
    jvm: Any,
    spark: SparkSession,
    rows: JavaObject,
    output: JavaObject,
    statistics: JavaObject,
) -> JavaObject:
    """A node with rows that are there, in no order, of these columns and this size. It has a second
    stream since 4.0, and another Boolean since 4.3.
    """
    nothing = jvm.scala.Option.empty()
    streaming = (False, nothing) if SPARK >= (4, 0) else (False,)
    return jvm.org.apache.spark.sql.execution.LogicalRDD(
        output,
        rows,
        jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(0),
        output.take(0),
        *streaming,
        spark._jsparkSession,
        jvm.scala.Some(statistics),
        nothing,
        *((False,) if SPARK >= (4, 3) else ()),
    )


def with_parameters(
    jvm: Any,
    plan: JavaObject,
    values: Mapping[str, JavaObject] | Sequence[JavaObject],
) -> JavaObject:
    """A parsed plan with expressions for its parameters, by name or in their order. Before 4.0 they
    are given as a map and as an array.
    """
    analysis, sequence = jvm.org.apache.spark.sql.catalyst.analysis, jvm.PythonUtils.toSeq
    if isinstance(values, Mapping):
        names, given = list(values), list(values.values())
        if SPARK >= (4, 0):
            return analysis.NameParameterizedQuery(plan, sequence(names), sequence(given))
        return analysis.NameParameterizedQuery(plan, jvm.PythonUtils.toScalaMap(dict(values)))
    if SPARK >= (4, 0):
        return analysis.PosParameterizedQuery(plan, sequence(list(values)))
    expression = jvm.org.apache.spark.sql.catalyst.expressions.Expression
    array = java_array(pyspark.SparkContext._gateway, expression, values)
    return analysis.PosParameterizedQuery(plan, array)


def java_array(gateway: Any, kind: Any, values: Sequence[JavaObject]) -> JavaObject:
    """An array of Java with these elements of a class."""
    array = gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def no_rows(jvm: Any, output: JavaObject) -> JavaObject:
    """A node without rows. 4.0 has added the stream that it may be of."""
    nothing, no_option = jvm.PythonUtils.toSeq([]), jvm.scala.Option.apply(None)
    streams = (False, no_option) if SPARK >= (4, 0) else (False,)
    return jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(output, nothing, *streams)


def hint_of(aggregate: JavaObject) -> tuple[JavaObject, ...]:
    """What an aggregation has beside its expressions and its child: a hint since 4.0."""
    return (aggregate.hint(),) if SPARK >= (4, 0) else ()


def valid_string(
    expressions: Any, value: JavaObject, as_bytes: JavaObject, charset: JavaObject
) -> JavaObject:
    """A string in which bytes that are no UTF-8 are replaced. Before 4.0 there is no function that
    finds them, and ``decode`` replaces them by itself.
    """
    if SPARK < (4, 0):
        return expressions.StringDecode(as_bytes, charset)
    replaced = expressions.StringDecode(as_bytes, charset, False, True)
    return expressions.If(expressions.IsValidUTF8(value), value, replaced)


def repartition_state(spark: SparkSession, location: str, partitions: int) -> None:
    """Changes the number of partitions of a checkpoint's state. See ``NO_REPARTITION``."""
    manager: Any = getattr(spark, "_streamingCheckpointManager")  # noqa: B009 - since 4.2
    manager.repartition(location, partitions)


def replaces_some_rows(insert: JavaObject) -> bool:
    """Whether an ``INSERT`` replaces rows by a condition, as it can since 4.2."""
    return SPARK >= (4, 2) and bool(insert.replaceCriteriaOpt().isDefined())
