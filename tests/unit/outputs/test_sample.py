"""Some rows of a result are shown beside what production has, by the keys of the output."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, DoubleType, MapType, NestedField, StringType

from backfill.api.errors import BackfillError, BadInput
from backfill.api.output import Output
from backfill.outputs.publication import publish
from backfill.outputs.sample_rows import Pair, sample
from iceberg_tables import commit_files, data_file
from staged import (
    COLUMNS,
    HOUR_US,
    RESULT,
    WINDOW,
    make_table,
    output,
    rows_of,
    stage,
    stage_rows,
)

ODD = Schema(
    *COLUMNS.fields,
    NestedField(4, "far", DateType()),
    NestedField(5, "share", DoubleType()),
    NestedField(6, "tags", MapType(7, StringType(), 8, DoubleType())),
)


def sampled(
    asked: Output, rows: int = 9, published: int | None = None, base: int | None = None
) -> list[Pair]:
    pairs = sample(asked, RESULT, WINDOW, rows=rows, published=published, base=base)
    return sorted(pairs, key=lambda pair: str(pair.result))


def keyed(**fields: Any) -> Output:
    return output().model_copy(update={"keys": ("id",), **fields})


def test_each_row_is_beside_those_with_its_keys_in_the_window(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0), (2, HOUR_US), (2, HOUR_US), (9, 0)], "production"))
    stage(table, 0, [(1, 0), (2, HOUR_US), (3, HOUR_US)])
    first, second, third = sampled(keyed())
    assert [len(each.production) for each in (first, second, third)] == [1, 2, 0]
    assert first.production[0]["id"] == 1
    assert first.differs == ("who",)
    assert second.differs == (), "it is unknown which of two rows it is"
    assert len(sampled(keyed(), rows=2)) == 2
    assert [each.production for each in sampled(output())] == [(), (), ()]


def test_of_a_published_result_production_is_what_was_there_before(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)], "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(1, 0), (2, 0)])
    asked = keyed()
    done = publish(asked, RESULT, WINDOW, base)
    first, second = sampled(asked, published=done.snapshot_id)
    assert [row["id"] for row in first.production] == [1]
    assert first.differs == ("who",)
    assert second.production == ()


def test_what_is_not_staged_is_said(lake: Catalog) -> None:
    make_table(lake)
    with pytest.raises(BackfillError, match="has no staged rows of"):
        sampled(keyed())


def odd(*rows: dict[str, Any]) -> pa.Table:
    """Rows of midday with an id, a day since 1970, a number and a map."""
    noon = datetime(2021, 7, 11, 12, tzinfo=UTC)
    columns = {
        "id": pa.array([row.get("id", 1) for row in rows], pa.int64()),
        "ts": pa.array([noon for _ in rows], pa.timestamp("us", "UTC")),
        "who": pa.array([row.get("who") for row in rows], pa.string()),
        "far": pa.array([row.get("far") for row in rows], pa.int32()).cast(pa.date32()),
        "share": pa.array([row.get("share") for row in rows], pa.float64()),
        "tags": pa.array(
            [row.get("tags") for row in rows], pa.map_(pa.large_string(), pa.float64())
        ),
    }
    return pa.table(columns).cast(schema_to_pyarrow(ODD, include_field_ids=False))


@pytest.mark.parametrize(
    ("ours", "theirs", "differs"),
    [
        ({"share": float("nan")}, {"share": float("nan")}, ()),
        ({"share": -0.0}, {"share": 0.0}, ()),
        ({"share": float("nan")}, {"share": None}, ("share",)),
        ({"tags": {"a": float("nan"), "b": 1}}, {"tags": {"b": 1, "a": float("nan")}}, ()),
        ({"tags": {"a": 1}}, {"tags": {"a": 2}}, ("tags",)),
        ({"tags": {}}, {"tags": None}, ("tags",)),
        ({"far": 4_000_000}, {"far": 4_000_000}, ()),
        ({"far": 4_000_000}, {"far": 4_000_001}, ("far",)),
    ],
)
def test_values_differ_as_in_a_comparison_with_production(
    lake: Catalog, ours: dict[str, Any], theirs: dict[str, Any], differs: tuple[str, ...]
) -> None:
    # PyIceberg cannot write bounds of such days; Spark can
    table = make_table(lake, columns=ODD, **{"write.metadata.metrics.column.far": "none"})
    table.append(odd(theirs))
    stage_rows(table, 0, odd(ours))
    (pair,) = sampled(keyed())
    assert len(pair.production) == 1
    assert pair.differs == differs


def test_both_sides_have_the_present_columns(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)], "production"))
    stage(table, 0, [(1, 0)])
    with table.update_schema() as update:
        update.rename_column("who", "name")
        update.rename_column("id", "number")
    (pair,) = sampled(keyed(keys=("number",)))
    assert pair.result.keys() == {"number", "ts", "name"}
    assert [row["name"] for row in pair.production] == ["production"]
    assert pair.differs == ("name",)
    with pytest.raises(BadInput, match="has no column id, which is a key of summary"):
        sampled(keyed())


def test_of_one_key_that_production_has_very_often_some_rows_are_kept(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)] * 5_000, "production"))
    stage(table, 0, [(1, 0)])
    (pair,) = sampled(keyed())
    assert len(pair.production) == 100


def expire(table: Table, snapshot_id: int | None) -> None:
    assert snapshot_id is not None
    table.refresh()
    table.maintenance.expire_snapshots().by_id(snapshot_id).commit()


@pytest.mark.parametrize("which", ["before", "published"])
def test_what_production_had_is_unknown_once_its_snapshot_has_expired(
    lake: Catalog, which: str
) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)], "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(1, 0)])
    done = publish(keyed(), RESULT, WINDOW, base)
    table.refresh()
    table.append(rows_of([(7, 0)], "later"))
    expire(table, base if which == "before" else done.snapshot_id)
    with pytest.raises(BackfillError, match="snapshots have expired"):
        sampled(keyed(), published=done.snapshot_id, base=base)
    assert len(sampled(output(), published=done.snapshot_id)) == 1, "without keys it is not needed"


def test_production_that_cannot_be_read_is_named_with_the_reason(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)], "production"))
    stage(table, 0, [(1, 0)])
    path = Path(f"{table.location()}/data/equality.parquet")
    pq.write_table(pa.table({"id": pa.array([4], pa.int64())}), path)
    made = {
        "content": DataFileContent.EQUALITY_DELETES,
        "file_path": str(path),
        "record_count": 1,
        "file_size_in_bytes": path.stat().st_size,
        "equality_ids": [1],
    }
    commit_files(lake, table, 77, [], [data_file(2, **made)])
    with pytest.raises(BadInput, match="compact the table if it has equality deletes"):
        sampled(keyed())
