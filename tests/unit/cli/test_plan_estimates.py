"""``backfill plan`` says what earlier runs of the application let expect."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import Catalog

from backfill.api.backfill import Backfill
from backfill.api.spark_application import Application
from backfill.api.status import BackfillStatus, Cost, Progress
from backfill.controller.local.store import LocalStore
from histories import DAY_US, HOUR_US, SECOND_US, times
from local_runs import Command


@pytest.fixture
def wanted(lake: Catalog, tmp_path: Path) -> Backfill:
    """A Backfill in ``backfill.yaml``, whose table has rows."""
    at = np.arange(DAY_US, DAY_US + HOUR_US, SECOND_US)
    rows = pa.table({"at": times(at)})
    lake.create_table("raw.clicks", rows.schema).append(rows)
    document = {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "metadata": {"name": "march"},
        "spec": {
            "applicationRef": {"name": "app"},
            "window": {"start": "2024-03-01T00:00:00Z", "end": "2024-03-01T01:00:00Z"},
            "sources": [{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}],
        },
    }
    (tmp_path / "backfill.yaml").write_text(yaml.safe_dump(document))
    return Backfill.model_validate(document)


def test_the_plan_has_the_rate_of_earlier_runs_and_says_whose(
    backfill: Command, wanted: Backfill, tmp_path: Path
) -> None:
    def planned(*options: str) -> str:
        end = backfill("plan", "backfill.yaml", "--state-dir", "state", *options)
        assert end.status == 0, end.err
        return end.out

    first = json.loads(planned("--output", "json"))
    assert first["measured"] is None
    assert "earlier backfill" not in planned()

    store = LocalStore(tmp_path / "state", "default", "february")
    metadata = wanted.metadata.model_copy(update={"name": "february"})
    status = BackfillStatus(
        progress=Progress(steps=4, committed=4),
        cost=Cost(driver_seconds=30, executor_seconds=36, bytes_read=first["bytes"] // 2),
        finished_at=datetime.now(UTC) - timedelta(days=1),
    )
    store.create(
        wanted.model_copy(update={"metadata": metadata, "status": status}),
        Application(name="app", main_application_file="app.py"),
    )
    (tmp_path / "state" / "default" / "damaged").mkdir()
    (tmp_path / "state" / "default" / "damaged" / "backfill.json").write_text("{")

    measured = json.loads(planned("--output", "json"))["measured"]
    assert measured["backfills"] == ["february"]
    assert measured["seconds"] == pytest.approx(60, rel=0.01)
    words = " ".join(planned().split())
    assert "estimate from 1 earlier backfill of this application (february; read " in words
    assert "): 1 min 00 s, 0.02 executor hours, with the same number of executors" in words
