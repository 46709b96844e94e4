"""What cannot be compared is found before Spark reads anything of it."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, FileFormat

from backfill.api.errors import BadInput
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.outputs.window_rows import window_rows
from backfill.runtime.comparison.compare_outputs import compare_output
from backfill.runtime.comparison.compared_sides import side_of
from backfill.runtime.comparison.report import Clues
from comparison_reports import START, settings_of


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
        side_of(table, output, inside, snapshot, ["at"])


def test_a_column_that_was_renamed_meanwhile_is_named_with_its_field(lake: Catalog) -> None:
    lake.create_table("raw.events", schema=pa.schema([("at", pa.timestamp("us", "UTC"))]))
    outputs = [
        {"name": "others", "table": "lake.raw.others"},
        {
            "name": "events",
            "table": "lake.raw.events",
            "timestampColumn": "at",
            "validate": {"keys": ["id"]},
        },
    ]
    settings = settings_of({"start": START, "end": START + timedelta(days=1)}, outputs)
    no_spark: Any = None
    with pytest.raises(
        BadInput, match=r"^spec\.outputs\[1\]\.validate\.keys: .* has no top-level column id"
    ):
        compare_output(no_spark, settings, settings.outputs[1], Clues())
