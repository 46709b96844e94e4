"""Rows are written to data files, or refused with the column that cannot be written."""

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, LongType, NestedField, TimestamptzType

from backfill.api.errors import BackfillError
from backfill.outputs.data_files import DataFileWriter, layout
from staged import RESULT, make_table

DAYS_OF_YEAR_12921 = 4_000_000
US_OF_YEAR_14645 = 400_000_000_000_000_000


@pytest.mark.parametrize("partition", [None, "day", "identity"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DateType(), DAYS_OF_YEAR_12921),
        (TimestamptzType(), US_OF_YEAR_14645),
        (TimestamptzType(), -US_OF_YEAR_14645),
    ],
    ids=["date", "timestamp", "before year 1"],
)
def test_a_time_outside_of_the_calendar_is_refused_with_its_column(
    lake: Catalog, kind: IcebergType, value: int, partition: str | None
) -> None:
    writer, rows = written(lake, kind, [0, value], partition)
    writer.add(rows)
    with pytest.raises(BackfillError, match=r"column ts of the result .* after year 9999") as error:
        writer.close()
    assert "make the value null" in str(error.value)


def test_the_last_day_of_the_calendar_is_written(lake: Catalog) -> None:
    writer, rows = written(lake, DateType(), [0, 2_932_896])
    writer.add(rows)
    (file,) = writer.close()
    assert file.record_count == 2


def written(
    lake: Catalog, kind: IcebergType, values: list[int], partition: str | None = None
) -> tuple[DataFileWriter, pa.RecordBatch]:
    """A writer, and rows with these values of a column ``ts``, as numbers."""
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", kind))
    table = make_table(lake, partition, columns)
    directory = RESULT.staging_directory(table.metadata)
    place = layout(table.metadata, table.schema().schema_id, table.spec().spec_id, directory)
    target = schema_to_pyarrow(columns, include_field_ids=False)
    wanted = target.field("ts").type
    numbers = pa.array(values, pa.int32() if pa.types.is_date(wanted) else pa.int64())
    rows = [pa.array(range(len(values)), pa.int64()), numbers.cast(wanted)]
    return DataFileWriter(place, table.io), pa.RecordBatch.from_arrays(rows, schema=target)
