"""What cannot be read of a side is found before Spark reads anything of it."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, FileFormat

from backfill.api.errors import BadInput
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.outputs.window import window_rows
from backfill.runtime.comparison.sides import side_of

START = datetime(2021, 7, 11, tzinfo=UTC)


def test_files_of_another_format_are_named_with_a_fix(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"at": pa.array([START], pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.events", schema=rows.schema)
    table.append(rows)
    monkeypatch.setattr(DataFile, "file_format", FileFormat.ORC)
    output = Output.model_validate(
        {"name": "events", "table": "lake.raw.events", "timestampColumn": "at", "validate": {}}
    )
    window = Window.model_validate({"start": START, "end": START + timedelta(days=1)})
    inside = window_rows(table.schema(), output, window)
    assert inside is not None
    snapshot = table.metadata.current_snapshot_id
    with pytest.raises(BadInput, match=r"not Parquet, but orc.*; rewrite them as Parquet"):
        side_of(table, output, inside, snapshot)
