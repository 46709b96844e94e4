"""Tables with a staged result and the rows of production, to compare."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from backfill.api.output import Output
from backfill.outputs.result_names import Result
from backfill.runtime.settings import RuntimeSettings
from comparison_reports import START, settings_of


def staged_and_production(
    lake: Catalog, staged: pa.Table, production: pa.Table, directory: Path, **validate: Any
) -> tuple[RuntimeSettings, Output]:
    """A table with rows in the branch of a Backfill and in its main branch."""
    result = Result("default", "again", "u", "p", "events")
    table = lake.create_table("raw.events", schema=production.schema)
    staging = {"write.data.path": result.staging_directory(table.metadata)}
    table.transaction().set_properties(staging).commit_transaction()
    table.append(staged, snapshot_properties=result.summary)
    table.transaction().remove_properties(*staging).commit_transaction()
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, result.branch).commit()
    table.overwrite(production)
    output = Output.model_validate(
        {
            "name": "events",
            "table": "lake.raw.events",
            "timestampColumn": "at",
            "validate": validate,
            "publish": {"mode": "Replace", "maxLoss": "20"},
        }
    )
    window = {"start": START, "end": START + timedelta(days=1)}
    return settings_of(window, (output,), str(directory)), output
