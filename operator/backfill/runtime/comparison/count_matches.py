"""Counts which rows of a result match those of another side, by key or as multisets.

In a first job, both sides are shuffled by a digest of the key, with a digest of the other columns
and without the columns themselves, and counted: it costs less than a join of the two, and needs no
more memory than any aggregation of Spark's. Each row has a number, by which those that do not match
are read again, to say in which columns they differ.

Digests of keys have 128 bits. Those of rows are compared with those of the same key only, and have
64. A collision is far less likely than a faulty disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from backfill.runtime.comparison.numbered_rows import NUMBER, NUMBER_BITS
from backfill.runtime.comparison.value_changes import (
    MOST_PAIRS,
    Change,
    holds,
    measure,
    possible_changes,
)
from backfill.runtime.comparison.value_expressions import canonical, digest, near, parts, short

MOST_SAMPLES: Final = 20
"""Rows that are shown of each kind."""
_ROWS_PER_TASK = 1_500_000
_TWO_MAPS = "spark.sql.codegen.aggregate.map.twolevel.enabled"
_KEY = ("__key_1", "__key_2")
_ROW, _BUCKET, _OURS, _THEIRS = "__row", "__bucket", "__ours", "__theirs"
_PLACE = "__place"
"""From its highest bits: the stretch of time, the row's number, and whether it is the result's."""
_AT = "__at"
"""The earliest place of a row with a key."""
_FIRST = ("__first_ours", "__first_theirs")
"""The earliest place of a row with a key on either side that the other one lacks, or null."""
_PAIR, _KIND = "__backfill_pair", "__backfill_kind"  # beside the columns of a table
_SINGLE = "__backfill_single"
"""Whether the key is unique on both sides."""

_SIDES = ("row_0", "row_1")

DifferenceKind = Literal["different", "missing", "extra"]
KINDS: Final[tuple[DifferenceKind, ...]] = ("different", "missing", "extra")


@dataclass(frozen=True, slots=True)
class Rows:
    """One side."""

    frame: DataFrame
    """The rows, each with its own ``NUMBER``."""
    bucket: Column
    """The stretch of time that a row belongs to: one of a few hundred."""
    chosen: Callable[[DataFrame], DataFrame]
    """Gives the rows whose ``NUMBER`` a DataFrame has, with the other columns of that."""


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
class Repeated:
    """Of the rows that do not match, those that one side has more often than the other side, which
    has them, too: by their keys, or without keys as equal rows.
    """

    missing: int = 0
    extra: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A row that does not match. Values are text; None is null."""

    kind: DifferenceKind
    result: Mapping[str, str | None] | None
    other: Mapping[str, str | None] | None
    differs: tuple[str, ...]
    """Columns in which a pair of rows differs."""


@dataclass(slots=True)
class Found:
    """How the rows of both sides compare."""

    buckets: dict[int, Counts] = field(default_factory=dict)
    """By stretch of time. A pair belongs to the earlier time of its rows."""
    repeated: dict[int, Repeated] = field(default_factory=dict)
    """The same of repeated rows, where there are any."""
    columns: dict[str, int] = field(default_factory=dict)
    """By column, in how many pairs of rows with one key it differs."""
    pairs: int = 0
    """Number of pairs of rows with one key that differ in a column."""
    changes: dict[Change, int] = field(default_factory=dict)
    """By change, in how many of the pairs that differ in its column it holds."""
    duplicate_keys_in_result: int = 0
    """Number of keys (of whole rows, without keys) that the result has more than once."""
    duplicate_keys_in_other: int = 0
    """The same of the other side."""
    samples: list[Sample] = field(default_factory=list)

    @property
    def counts(self) -> Counts:
        """The numbers of all stretches together."""
        return sum(self.buckets.values(), Counts())


def compare(spark: SparkSession, result: Rows, other: Rows, wish: Wish, *, rows: int) -> Found:
    """Compares the rows of two sides.

    With keys, two rows with a key that is unique on both sides match if all compared columns are
    equal or within their tolerance. Of rows whose key occurs more than once, equal ones match, each
    once; of the others, as many as both sides have are different. Nulls in keys are values like any
    other.

    Args:
        rows: how many rows there may be on both sides.
    """
    spark.conf.set("spark.sql.shuffle.partitions", _tasks(spark, rows))
    # the first one is a cache of keys that occur again and again: here nearly all are new
    spark.conf.set(_TWO_MAPS, "false")
    counted = _counted(_digested(result, 1, wish).unionAll(_digested(other, 0, wish)))
    counted.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = _totals(counted)
        _look_at((result, other), counted, wish, found)
    finally:
        counted.unpersist()
    return found


def _tasks(spark: SparkSession, rows: int) -> int:
    """As many as keep all cores busy to the end."""
    cores = spark.sparkContext.defaultParallelism
    return cores * max(1, -(-rows // (cores * _ROWS_PER_TASK)))


def _digested(side: Rows, of_result: int, wish: Wish) -> DataFrame:
    """What is shuffled of a side: digests of the key and of the other columns that are compared,
    and the place. It is as little as possible, since every row has it.
    """
    kinds = {each.name: each.dataType for each in wish.schema}

    def known(names: tuple[str, ...]) -> list[Column]:
        return [part for name in names for part in parts(_value(name, wish), kinds[name])]

    key = known(wish.keys or wish.compared)
    place = F.shiftleft(side.bucket.cast("bigint"), NUMBER_BITS).bitwiseOR(F.col(NUMBER))
    return side.frame.select(
        *(digest(number, key).alias(name) for number, name in enumerate(_KEY, 1)),
        digest(1, known(wish.compared if wish.keys else ())).alias(_ROW),
        F.shiftleft(place, 1).bitwiseOR(F.lit(of_result)).alias(_PLACE),
    )


def _counted(both: DataFrame) -> DataFrame:
    """By key, how often both sides have it, how many equal rows, and the first row of each side
    that the other one lacks. Keys of which all rows match are counted together.
    """
    ours = F.col(_PLACE).bitwiseAND(1)
    firsts = (F.min(F.when(ours == of, F.col(_PLACE))) for of in (1, 0))
    by_row = (
        both.repartition(*_KEY)
        .groupBy(*_KEY, _ROW)
        .agg(
            F.sum(ours).alias(_OURS),
            F.sum(1 - ours).alias(_THEIRS),
            *(first.alias(name) for first, name in zip(firsts, _FIRST, strict=True)),
        )
    )
    by_key = by_row.groupBy(*_KEY).agg(
        F.sum(_OURS).alias(_OURS),
        F.sum(_THEIRS).alias(_THEIRS),
        F.sum(F.least(_OURS, _THEIRS)).alias("matching"),
        F.min(F.least(*_FIRST)).alias(_AT),
        *(
            F.min(F.when(F.col(more) > F.col(fewer), F.col(name))).alias(name)
            for name, more, fewer in zip(_FIRST, (_OURS, _THEIRS), (_THEIRS, _OURS), strict=True)
        ),
    )
    bucket = F.shiftright(_AT, NUMBER_BITS + 1).cast("int")
    return by_key.groupBy(bucket.alias(_BUCKET), *_FIRST).agg(
        F.sum(_OURS).alias(_OURS),
        F.sum(_THEIRS).alias(_THEIRS),
        F.sum("matching").alias("matching"),
        F.sum((F.col(_OURS) > 1).cast("bigint")).alias("twice"),
    )


def _apart() -> Column:
    """Whether a counted row is for one key, and not for all keys of which every row matches."""
    return F.coalesce(*_FIRST).isNotNull()


def _totals(counted: DataFrame) -> Found:
    common = F.least(_OURS, _THEIRS)
    twice = (
        F.sum(F.when(_apart(), (F.col(name) > 1).cast("bigint")).otherwise(F.col("twice")))
        for name in (_OURS, _THEIRS)
    )
    on_both = (F.col(_OURS) > 0) & (F.col(_THEIRS) > 0)
    totals = counted.groupBy(_BUCKET).agg(
        F.sum("matching").alias("matching"),
        F.sum(common - F.col("matching")).alias("different"),
        F.sum(F.col(_THEIRS) - common).alias("missing"),
        F.sum(F.col(_OURS) - common).alias("extra"),
        *(
            F.sum(F.when(on_both, F.col(side) - common).otherwise(0)).alias(name)
            for side, name in ((_THEIRS, "missing_again"), (_OURS, "extra_again"))
        ),
        *(each.alias(name) for each, name in zip(twice, ("ours", "theirs"), strict=True)),
    )
    found = Found()
    for row in totals.collect():
        found.buckets[row[_BUCKET]] = Counts(
            row["matching"], row["different"], row["missing"], row["extra"]
        )
        if row["missing_again"] or row["extra_again"]:
            found.repeated[row[_BUCKET]] = Repeated(row["missing_again"], row["extra_again"])
        found.duplicate_keys_in_result += row["ours"]
        found.duplicate_keys_in_other += row["theirs"]
    return found


def _look_at(sides: tuple[Rows, Rows], counted: DataFrame, wish: Wish, found: Found) -> None:
    """Looks at rows that do not match: which columns differ, whether by more than the tolerance,
    and some of them as samples.
    """
    totals = found.counts
    if not (totals.different or totals.missing or totals.extra):
        return
    keys = _looked_at(counted).persist(StorageLevel.MEMORY_AND_DISK)  # the same twice
    try:
        _look_at_rows(sides, keys, wish, found)
    finally:
        keys.unpersist()


def _look_at_rows(sides: tuple[Rows, Rows], keys: DataFrame, wish: Wish, found: Found) -> None:
    slots = -(-MOST_SAMPLES // max(sum(1 for each in found.buckets.values() if each.different), 1))
    changes = _possible(sides, keys, wish) if found.counts.different else []
    pairs = _shown(_pairs(sides, keys, wish), wish.schema, changes)
    places = {name: number for number, name in enumerate(wish.compared)}
    differing = F.col("single") & F.array_contains("differs", True)

    def of_pairs(conditions: Iterable[Column]) -> Column:
        each = (F.count_if(F.col("single") & condition) for condition in conditions)
        return F.array(*each).cast("array<bigint>")

    gathered = pairs.groupBy(_BUCKET).agg(
        F.count_if(F.col("single") & ~differing).alias("within"),
        F.count_if(differing).alias("differing"),
        of_pairs(F.col("differs")[number] for number in places.values()).alias("by_column"),
        of_pairs(
            F.col("differs")[places[change.column]] & F.col("holds")[number]
            for number, change in enumerate(changes)
        ).alias("by_change"),
        F.array(
            *(
                F.min_by("sample", F.when(differing & _in_slot(slot, slots), F.col("chance")))
                for slot in range(slots)
            )
        ).alias("pairs"),
        F.collect_list(F.when(~F.col("single"), F.col("sample"))).alias("others"),
    )
    found.columns, found.changes = dict.fromkeys(wish.compared, 0), dict.fromkeys(changes, 0)
    samples = F.filter(F.concat("pairs", "others"), F.isnotnull)
    shown = F.transform(samples, lambda sample: _in_words(sample, wish.schema))
    figures = ("within", "differing", "by_column", "by_change")
    rows = gathered.select(_BUCKET, *figures, shown.alias("samples")).collect()
    for row in sorted(rows, key=lambda row: row[_BUCKET]):
        if row["within"]:  # the other keys may have earlier rows, which match
            counts = found.buckets[row[_BUCKET]]
            counts.matching += row["within"]
            counts.different -= row["within"]
        found.pairs += row["differing"]
        for name, count in zip(wish.compared, row["by_column"], strict=True):
            found.columns[name] += count
        for change, count in zip(changes, row["by_change"], strict=True):
            found.changes[change] += count
        found.samples += [_sample(each, wish) for each in row["samples"]]
    found.samples = _some_of_each(found.samples)


def _possible(sides: tuple[Rows, Rows], keys: DataFrame, wish: Wish) -> list[Change]:
    """Changes that a few pairs of rows suggest."""
    some = keys.where(_SINGLE).orderBy(F.xxhash64(*_FIRST)).limit(MOST_PAIRS)
    names, kinds = wish.schema.names, [each.dataType for each in wish.schema]
    measures = (
        F.struct(*(measure(F.col(row).getField(f"c{n}"), kind) for n, kind in enumerate(kinds)))
        for row in _SIDES
    )
    rows = _pairs(sides, some, wish).select(*measures, "differs").collect()
    pairs = [
        (
            dict(zip(names, ours, strict=True)),
            dict(zip(names, theirs, strict=True)),
            [name for name, apart in zip(wish.compared, differs, strict=True) if apart],
        )
        for ours, theirs, differs in rows
    ]
    return possible_changes(pairs, wish.schema)


def _looked_at(counted: DataFrame) -> DataFrame:
    """The keys of which rows are read again: those of all pairs that differ, and some others."""
    apart = counted.where(_apart())
    pair = (F.col(_OURS) == 1) & (F.col(_THEIRS) == 1)
    ours, theirs = (F.col(name).isNotNull() for name in _FIRST)
    kinds = {"different": ours & theirs, "missing": ~ours, "extra": ~theirs}

    def of(kind: str, keys: DataFrame, *, single: bool) -> DataFrame:
        return keys.select(*_FIRST, F.lit(kind).alias(_KIND), F.lit(single).alias(_SINGLE))

    found = of("different", apart.where(pair), single=True)
    for kind, is_kind in kinds.items():
        some = apart.where(~pair & is_kind).limit(MOST_SAMPLES)
        found = found.unionAll(of(kind, some, single=False))
    return found


def _pairs(sides: tuple[Rows, Rows], keys: DataFrame, wish: Wish) -> DataFrame:
    """The first rows of both sides that have one of these keys, side by side."""
    # by number: two names may differ only in letters that Spark takes for the same, or have dots
    whole = [_value(each, wish).alias(f"c{place}") for place, each in enumerate(wish.schema.names)]
    number = F.shiftright(F.col("place"), 1).bitwiseAND((1 << NUMBER_BITS) - 1)
    ours, theirs = (
        side.chosen(
            keys.withColumn("place", F.col(first))
            .where(F.col("place").isNotNull())
            .select(number.alias(NUMBER), F.least(*_FIRST).alias(_PAIR), _KIND, _SINGLE)
        ).select(
            _PAIR,
            F.col(_KIND).alias(f"kind_{of}"),
            F.col(_SINGLE).alias(f"single_{of}"),
            F.struct(*whole).alias(row),
        )
        for of, (side, first, row) in enumerate(zip(sides, _FIRST, _SIDES, strict=True))
    )
    kind, single = F.coalesce("kind_0", "kind_1"), F.coalesce("single_0", "single_1")

    def equal(name: str) -> Column:
        one, other = (_field(row, wish.schema)(name) for row in _SIDES)
        of, tolerance = wish.schema[name].dataType, wish.tolerance.get(name)
        exactly = _equal(one, other, of, None)
        if tolerance is None:
            return exactly
        return F.when(single, _equal(one, other, of, tolerance)).otherwise(exactly)

    differs = ((kind == "different") & ~equal(name) for name in wish.compared)
    return ours.join(theirs, _PAIR, "full_outer").select(
        F.xxhash64(_PAIR).alias("chance"),
        F.shiftright(_PAIR, NUMBER_BITS + 1).cast("int").alias(_BUCKET),
        kind.alias("kind"),
        single.alias("single"),
        F.array(*differs).cast("array<boolean>").alias("differs"),
        *_SIDES,
    )


def _shown(pairs: DataFrame, schema: StructType, changes: Sequence[Change]) -> DataFrame:
    """Pairs as they are counted and shown, with the changes that hold for them."""
    ours, theirs = (_field(row, schema) for row in _SIDES)
    held = (holds(each, ours, theirs, schema[each.column].dataType) for each in changes)
    # rows may be megabytes, and each task keeps some of every stretch of time
    shown = (F.when(F.col(row).isNotNull(), _short(row, schema)).alias(row) for row in _SIDES)
    return pairs.select(
        _BUCKET,
        "chance",
        "single",
        "differs",
        F.array(*held).cast("array<boolean>").alias("holds"),
        F.struct("kind", *shown, "differs").alias("sample"),
    )


def _field(row: str, schema: StructType) -> Callable[[str], Column]:
    places = {name: place for place, name in enumerate(schema.names)}
    return lambda name: F.col(row).getField(f"c{places[name]}")


def _short(row: str, schema: StructType) -> Column:
    columns = ((f"c{place}", each.dataType) for place, each in enumerate(schema))
    return F.struct(*(short(F.col(row).getField(name), kind).alias(name) for name, kind in columns))


def _equal(one: Column, other: Column, kind: DataType, tolerance: str | None) -> Column:
    if tolerance is not None:
        return near(one, other, kind, tolerance)
    return canonical(one, kind).eqNullSafe(canonical(other, kind))


def _in_slot(slot: int, slots: int) -> Column:
    return F.pmod(F.col("chance"), F.lit(slots)) == slot


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
        for side in _SIDES
    )
    return F.struct(*(sample.getField(name).alias(name) for name in ("kind", "differs")), *rows)


def _sample(row: Row, wish: Wish) -> Sample:
    result, other = (
        None if values is None else dict(zip(wish.schema.names, values, strict=True))
        for values in (row[side] for side in _SIDES)
    )
    apart = zip(wish.compared, row["differs"], strict=True)
    return Sample(row["kind"], result, other, tuple(name for name, differs in apart if differs))


def _some_of_each(samples: Iterable[Sample]) -> list[Sample]:
    """At most this many of each kind, from the whole window; equal ones once."""
    of_kinds: dict[DifferenceKind, list[Sample]] = {kind: [] for kind in KINDS}
    for sample in samples:
        if sample not in of_kinds[sample.kind]:
            of_kinds[sample.kind].append(sample)
    return [
        of_kind[number * max(len(of_kind), MOST_SAMPLES) // MOST_SAMPLES]
        for of_kind in of_kinds.values()
        for number in range(min(len(of_kind), MOST_SAMPLES))
    ]


def _value(name: str, wish: Wish) -> Column:
    """A column of a side, in the type that both have."""
    return F.col(f"`{name.replace('`', '``')}`").cast(wish.schema[name].dataType)
