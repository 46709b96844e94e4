"""Counts which rows of a result match those of another side, by key or as multisets.

In a first job, both sides are shuffled by a digest of the key, with a digest of the other columns
and without the columns themselves, and counted: it costs less than a join of the two, and needs no
more memory than any aggregation of Spark's. Only rows that do not match are read again, to say in
which columns they differ.

Digests of keys have 128 bits. Those of rows are compared with those of the same key only, and have
64. That different ones are taken for the same is far less likely than a faulty disk.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from backfill.runtime.comparison.values import canonical, digest, near, parts, short

MOST_SAMPLES: Final = 20
"""Rows that are shown of each kind."""
_ROWS_PER_TASK = 1_500_000
_MOST_COPIES = 10
"""Rows with one key of which samples are looked for. Keys with more are only counted."""
_KEY = ("__key_1", "__key_2")
_ROW, _BUCKET, _OURS, _THEIRS = "__row", "__bucket", "__ours", "__theirs"
_PLACE = "__place"
"""Twice the stretch of time, and one more for a row of the result."""

Kind = Literal["different", "missing", "extra"]
_KINDS: Final[tuple[Kind, ...]] = ("different", "missing", "extra")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is compared, and how."""

    schema: StructType
    """The columns that both sides have, in types that hold the values of both."""
    keys: tuple[str, ...]
    compared: tuple[str, ...]
    """All columns but the keys and those that are ignored."""
    tolerance: Mapping[str, str]


@dataclass(slots=True)
class Counts:
    """Numbers of rows."""

    matching: int = 0
    different: int = 0
    missing: int = 0
    extra: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Both together."""
        return Counts(
            self.matching + other.matching,
            self.different + other.different,
            self.missing + other.missing,
            self.extra + other.extra,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A row that does not match. Values are text; None is null."""

    kind: Kind
    result: Mapping[str, str | None] | None
    other: Mapping[str, str | None] | None
    differs: tuple[str, ...]
    """Columns in which a pair of rows differs."""


@dataclass(slots=True)
class Found:
    """How the rows of both sides compare."""

    buckets: dict[int, Counts] = field(default_factory=dict)
    """By stretch of time. A pair belongs to the earlier time of its rows."""
    columns: dict[str, int] = field(default_factory=dict)
    """By column, in how many pairs of rows with one key it differs."""
    duplicate_keys_in_result: int = 0
    """Number of keys (of whole rows, without keys) that the result has more than once."""
    duplicate_keys_in_other: int = 0
    """The same of the other side."""
    samples: list[Sample] = field(default_factory=list)

    @property
    def counts(self) -> Counts:
        """The numbers of all stretches together."""
        return sum(self.buckets.values(), Counts())


def compare(
    spark: SparkSession,
    result: tuple[DataFrame, Column],
    other: tuple[DataFrame, Column],
    wish: Wish,
    *,
    rows: int,
) -> Found:
    """Compares two DataFrames, each with the stretch of time that a row belongs to.

    With keys, two rows with a key that is unique on both sides match if all compared columns are
    equal or within their tolerance. Of rows whose key occurs more than once, equal ones match, each
    once; of the others, as many as both sides have are different. Nulls in keys are values like any
    other.

    Args:
        rows: how many rows there may be on both sides.
    """
    spark.conf.set("spark.sql.shuffle.partitions", _tasks(spark, rows))
    sides = _digested(result, wish), _digested(other, wish)
    counted = _counted(*sides).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = _totals(counted)
        _look_at(sides, counted, wish, found)
    finally:
        counted.unpersist()
    return found


def _tasks(spark: SparkSession, rows: int) -> int:
    return max(spark.sparkContext.defaultParallelism, rows // _ROWS_PER_TASK)


def _digested(side: tuple[DataFrame, Column], wish: Wish) -> DataFrame:
    """The rows with digests of their key and of the other columns that are compared."""
    frame, bucket = side
    kinds = {each.name: each.dataType for each in wish.schema}
    values = {name: _column(name).cast(kind) for name, kind in kinds.items()}

    def known(names: tuple[str, ...]) -> list[Column]:
        return [part for name in names for part in parts(values[name], kinds[name])]

    # by number: two names may differ only in letters that Spark takes for the same, or have dots
    whole = (values[each].alias(f"c{place}") for place, each in enumerate(wish.schema.names))
    key = known(wish.keys or wish.compared)
    return frame.select(
        F.struct(*whole).alias("row"),
        bucket.alias(_BUCKET),
        *(digest(number, key).alias(name) for number, name in enumerate(_KEY, 1)),
        digest(1, known(wish.compared if wish.keys else ())).alias(_ROW),
    )


def _counted(result: DataFrame, other: DataFrame) -> DataFrame:
    """By key, how often both sides have it, and how many equal rows. Keys of which all rows match
    are counted together.
    """
    both = _marked(other, 0).unionAll(_marked(result, 1)).repartition(*_KEY)
    ours = F.col(_PLACE).bitwiseAND(1)
    by_row = both.groupBy(*_KEY, _ROW).agg(
        F.sum(ours).alias(_OURS), F.sum(1 - ours).alias(_THEIRS), F.min(_PLACE).alias(_PLACE)
    )
    by_key = by_row.groupBy(*_KEY).agg(
        F.sum(_OURS).alias(_OURS),
        F.sum(_THEIRS).alias(_THEIRS),
        F.sum(F.least(_OURS, _THEIRS)).alias("matching"),
        F.shiftright(F.min(_PLACE), 1).cast("int").alias(_BUCKET),
    )
    matches = (F.col("matching") == F.col(_OURS)) & (F.col("matching") == F.col(_THEIRS))
    apart = (F.when(~matches, F.col(name)).alias(name) for name in _KEY)
    common = F.least(_OURS, _THEIRS)
    return by_key.groupBy(_BUCKET, *apart).agg(
        F.sum(_OURS).alias(_OURS),
        F.sum(_THEIRS).alias(_THEIRS),
        F.sum("matching").alias("matching"),
        F.sum(common - F.col("matching")).alias("different"),
        F.sum(F.col(_THEIRS) - common).alias("missing"),
        F.sum(F.col(_OURS) - common).alias("extra"),
        F.sum((F.col(_OURS) > 1).cast("bigint")).alias("ours_twice"),
        F.sum((F.col(_THEIRS) > 1).cast("bigint")).alias("theirs_twice"),
    )


def _marked(side: DataFrame, of_result: int) -> DataFrame:
    """What is shuffled of a side: as little as possible, since it is so for every row."""
    place = F.col(_BUCKET).cast("bigint") * 2 + of_result
    return side.select(*_KEY, _ROW, place.alias(_PLACE))


def _totals(counted: DataFrame) -> Found:
    names = ("matching", "different", "missing", "extra", "ours_twice", "theirs_twice")
    found = Found()
    for row in counted.groupBy(_BUCKET).agg(*(F.sum(name).alias(name) for name in names)).collect():
        found.buckets[row[_BUCKET]] = Counts(
            row["matching"], row["different"], row["missing"], row["extra"]
        )
        found.duplicate_keys_in_result += row["ours_twice"]
        found.duplicate_keys_in_other += row["theirs_twice"]
    return found


def _look_at(
    sides: tuple[DataFrame, DataFrame], counted: DataFrame, wish: Wish, found: Found
) -> None:
    """Looks at rows that do not match: which columns differ, whether by more than the tolerance,
    and some of them as samples.
    """
    totals = found.counts
    if not (totals.different or totals.missing or totals.extra):
        return
    keys = _looked_at(counted, wish).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        keys.count()  # Spark knows how few they are when it plans to join them with both sides
        _look_at_rows(sides, keys, wish, found)
    finally:
        keys.unpersist()


def _look_at_rows(
    sides: tuple[DataFrame, DataFrame], keys: DataFrame, wish: Wish, found: Found
) -> None:
    slots = -(-MOST_SAMPLES // max(sum(1 for each in found.buckets.values() if each.different), 1))
    pairs = _pairs(sides, keys, wish)
    numbers = range(len(wish.compared))
    differing = F.col("single") & F.array_contains("differs", True)
    gathered = pairs.groupBy(_BUCKET).agg(
        F.count_if(F.col("single") & ~differing).alias("within"),
        F.array(*(F.count_if(F.col("differs")[number]) for number in numbers))
        .cast("array<bigint>")
        .alias("differing"),
        F.array(
            *(
                F.min_by("sample", F.when(differing & _in_slot(slot, slots), F.col(_KEY[0])))
                for slot in range(slots)
            )
        ).alias("pairs"),
        F.collect_list(F.when(~F.col("single"), F.col("sample"))).alias("others"),
    )
    found.columns = dict.fromkeys(wish.compared, 0)
    samples = F.filter(F.concat("pairs", "others"), F.isnotnull)
    shown = F.transform(samples, lambda sample: _in_words(sample, wish.schema))
    for row in gathered.select(_BUCKET, "within", "differing", shown.alias("samples")).collect():
        if row["within"]:  # samples alone may be later than what their key was counted for
            counts = found.buckets[row[_BUCKET]]
            counts.matching += row["within"]
            counts.different -= row["within"]
        for name, count in zip(wish.compared, row["differing"], strict=True):
            found.columns[name] += count
        found.samples += [_sample(each, wish) for each in row["samples"]]
    found.samples = _some_of_each(found.samples)


def _looked_at(counted: DataFrame, wish: Wish) -> DataFrame:
    """The keys whose rows are read again: those of all pairs that differ, and of some rows that one
    side lacks.
    """
    apart = counted.where(F.col(_KEY[0]).isNotNull())
    pair = (F.col(_OURS) == 1) & (F.col(_THEIRS) == 1)
    alone = (F.col(_OURS) == 0) | (F.col(_THEIRS) == 0) if wish.keys else F.lit(True)
    few = F.col(_OURS) + F.col(_THEIRS) <= _MOST_COPIES
    keys = apart.where(pair).select(*_KEY, F.lit("different").alias("kind"))
    for kind in ("missing", "extra"):
        lacking = apart.where(~pair & alone & few & (F.col(kind) > 0)).limit(MOST_SAMPLES)
        keys = keys.unionAll(lacking.select(*_KEY, F.lit(kind).alias("kind")))
    return keys


def _pairs(sides: tuple[DataFrame, DataFrame], keys: DataFrame, wish: Wish) -> DataFrame:
    """The rows of both sides that have one of these keys, side by side."""
    ours, theirs = (
        side.join(keys, [*_KEY]).select(
            *_KEY, *(F.col(name).alias(f"{name}_{number}") for name in ("row", _BUCKET, "kind"))
        )
        for number, side in enumerate(sides)
    )
    places = {name: place for place, name in enumerate(wish.schema.names)}
    kind = F.coalesce("kind_0", "kind_1")
    single = kind == "different"
    differs = (
        single
        & ~_equal(
            F.col("row_0").getField(f"c{places[name]}"),
            F.col("row_1").getField(f"c{places[name]}"),
            wish.schema[name].dataType,
            wish.tolerance.get(name),
        )
        for name in wish.compared
    )
    # rows may be megabytes, and each task keeps some of every stretch of time
    shown = (
        F.when(F.col(f"row_{side}").isNotNull(), _short(f"row_{side}", wish.schema)).alias(
            f"row_{side}"
        )
        for side in range(len(sides))
    )
    return (
        ours.join(theirs, [*_KEY], "full_outer")
        .select(
            _KEY[0],
            F.least(f"{_BUCKET}_0", f"{_BUCKET}_1").alias(_BUCKET),
            single.alias("single"),
            F.array(*differs).cast("array<boolean>").alias("differs"),
            F.struct(kind.alias("kind"), *shown).alias("rows"),
        )
        .withColumn("sample", F.struct("rows.*", "differs"))
    )


def _short(row: str, schema: StructType) -> Column:
    columns = ((f"c{place}", each.dataType) for place, each in enumerate(schema))
    return F.struct(*(short(F.col(row).getField(name), kind).alias(name) for name, kind in columns))


def _equal(one: Column, other: Column, kind: DataType, tolerance: str | None) -> Column:
    if tolerance is not None:
        return near(one, other, kind, tolerance)
    return canonical(one, kind).eqNullSafe(canonical(other, kind))


def _in_slot(slot: int, slots: int) -> Column:
    return F.pmod(F.col(_KEY[0]), F.lit(slots)) == slot


def _in_words(sample: Column, schema: StructType) -> Column:
    rows = (
        F.when(
            sample.getField(side).isNotNull(),
            F.array(
                *(
                    sample.getField(side).getField(f"c{place}").cast("string")
                    for place in range(len(schema))
                )
            ),
        ).alias(side)
        for side in ("row_0", "row_1")
    )
    return F.struct(*(sample.getField(name).alias(name) for name in ("kind", "differs")), *rows)


def _sample(row: Row, wish: Wish) -> Sample:
    result, other = (
        None if values is None else dict(zip(wish.schema.names, values, strict=True))
        for values in (row["row_0"], row["row_1"])
    )
    apart = zip(wish.compared, row["differs"], strict=True)
    return Sample(row["kind"], result, other, tuple(name for name, differs in apart if differs))


def _some_of_each(samples: Iterable[Sample]) -> list[Sample]:
    """At most so many of each kind; equal ones once."""
    chosen: dict[Kind, list[Sample]] = {kind: [] for kind in _KINDS}
    for sample in samples:
        of_kind = chosen[sample.kind]
        if len(of_kind) < MOST_SAMPLES and sample not in of_kind:
            of_kind.append(sample)
    return [sample for of_kind in chosen.values() for sample in of_kind]


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
