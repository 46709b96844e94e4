"""The summary of a plan, figure by figure."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from planned import hourly, plan, source
from pyiceberg.catalog import Catalog

from backfill.planning.plan_summary import STEP_OVERHEAD_SECONDS, summarize

NOW = datetime(2026, 4, 1, tzinfo=UTC)


def test_a_summary_tells_totals_skew_steps_and_time(lake: Catalog, tmp_path: Path) -> None:
    for name, every in (("events", 1), ("plays", 6)):
        rows = pa.table({"ts": pa.array(hourly()[::every], pa.timestamp("us", "UTC"))})
        lake.create_table(f"raw.{name}", schema=rows.schema).append(rows)
    header = plan(tmp_path / "w", source("events"), source("plays"), maxMisalignment="2h").header
    summary = summarize(header, NOW, bytes_per_second_per_task=100)
    assert summary.steps.count == 6
    assert summary.steps.longest_seconds == 3600
    assert summary.rows_skew == pytest.approx(6, abs=1)
    assert summary.rows == sum(each.rows for each in summary.sources) == header.rows
    assert [each.wide_files for each in summary.sources] == [1, 1]
    assert summary.estimated_seconds == pytest.approx(
        6 * STEP_OVERHEAD_SECONDS + header.bytes / 200, abs=0.1
    )
    limited = summarize(header, NOW, bytes_per_second_per_task=10**9, rows_per_second=2)
    assert limited.estimated_seconds == pytest.approx(
        6 * STEP_OVERHEAD_SECONDS + header.rows / 2, abs=0.1
    )
    assert summary.greatest_misalignment_seconds <= 2 * 3600
    assert (
        json.loads(json.dumps(summary.to_manifest()))["sources"][1]["first"]
        == "2026-03-01T06:00:00Z"
    )


@pytest.mark.hostile
def test_what_a_pod_says_of_a_plan_does_not_steer_a_terminal(lake: Catalog, tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    lake.create_table("raw.events", schema=rows.schema).append(rows)
    header = plan(tmp_path / "w", source("events")).header
    pinned, totals = header.inputs.sources[0], header.sources[0]
    forged = {
        "plan_id": "\x1b[2J",
        "inputs": header.inputs.model_copy(
            update={"sources": (pinned.model_copy(update={"table": "a\x9b.b"}),)}
        ),
        "sources": (totals.model_copy(update={"name": "\u202eevents"}),),
        "warnings": ("\x1b]0;",),
    }
    summary = summarize(header.model_copy(update=forged), NOW)
    assert (summary.plan_id, summary.sources[0].table, summary.sources[0].name) == (
        "\\x1b[2J",
        "a\\x9b.b",
        "\\u202eevents",
    )
    assert summary.warnings == ("\\x1b]0;",)
