"""Snapshots held with tags: expiration leaves them alone until the Backfill is gone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from planned import hourly, source, spec
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from backfill.api.backfill import Backfill, ObjectMeta
from backfill.api.errors import BackfillError
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.planning.planner import (
    make_plan,
    owner_of,
    protect_snapshots,
    release_snapshots,
    verify_snapshots,
)
from backfill.planning.workspace import Workspace
from iceberg_tables import upgraded


def test_a_protected_snapshot_outlives_expiration_until_it_is_released(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    for name in ("held", "free"):
        lake.create_table(f"raw.{name}", schema=rows.schema).append(rows)
    wanted = spec(source("held", snapshot={"protect": True}), source("free"))
    header = make_plan(wanted, Workspace(str(tmp_path)), parallelism=1)
    protect_snapshots(wanted, header, "streaming/january")
    protect_snapshots(wanted, header, "streaming/january")

    for name in ("held", "free"):
        table = lake.load_table(f"raw.{name}")
        table.append(rows)
        table.refresh().maintenance.expire_snapshots().older_than(
            datetime.now(UTC) + timedelta(days=1)
        ).commit()
    held, free = header.inputs.sources
    assert lake.load_table("raw.held").snapshot_by_id(held.snapshot_id) is not None
    assert lake.load_table("raw.free").snapshot_by_id(free.snapshot_id) is None
    verify_snapshots(
        header.model_copy(update={"inputs": header.inputs.model_copy(update={"sources": (held,)})})
    )

    release_snapshots(["lake.raw.held"], "streaming/other")
    assert "backfill/streaming/january/held" in lake.load_table("raw.held").refs()
    release_snapshots(["lake.raw.held"], "streaming/january")
    assert list(lake.load_table("raw.held").refs()) == ["main"]


def test_a_snapshot_of_a_table_of_format_3_is_held(lake: Catalog, tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.held", schema=rows.schema)
    table.append(rows)
    upgraded(lake, table)
    wanted = spec(source("held", snapshot={"protect": True}))
    header = make_plan(wanted, Workspace(str(tmp_path)), parallelism=1)
    protect_snapshots(wanted, header, "streaming/january")
    assert "backfill/streaming/january/held" in lake.load_table("raw.held").refs()
    release_snapshots(["lake.raw.held"], "streaming/january")
    assert list(lake.load_table("raw.held").refs()) == ["main"]


def test_the_snapshot_of_the_last_plan_is_the_one_that_is_held(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.held", schema=rows.schema)
    wanted = spec(source("held", snapshot={"protect": True}))
    for _ in range(2):
        table.append(rows)
        header = make_plan(wanted, Workspace(str(tmp_path)), parallelism=1)
        protect_snapshots(wanted, header, "streaming/january")
    (pinned,) = header.inputs.sources
    tag = table.refresh().refs()["backfill/streaming/january/held"]
    assert tag.snapshot_id == pinned.snapshot_id == table.current_snapshot().snapshot_id


def test_a_backfill_of_the_same_name_somewhere_else_has_tags_of_its_own(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.held", schema=rows.schema)
    wanted = spec(source("held", snapshot={"protect": True}))
    pinned = {}
    for place in ("/a on laptop", "the cluster with certificate authority 1f", ""):
        table.append(rows)
        header = make_plan(wanted, Workspace(str(tmp_path)), parallelism=1)
        owner = owner_of("streaming", "january", place)
        protect_snapshots(wanted, header, owner)
        pinned[owner] = header.inputs.sources[0].snapshot_id
    for owner in tuple(pinned):
        refs = table.refresh().refs().values()
        held = {ref.snapshot_id for ref in refs if ref.snapshot_ref_type == "tag"}
        assert held == set(pinned.values())
        release_snapshots(["lake.raw.held"], owner)
        del pinned[owner]
    assert list(table.refresh().refs()) == ["main"]


def test_a_tag_that_cannot_be_removed_is_not_forgotten(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    lake.create_table("raw.held", schema=rows.schema).append(rows)
    wanted = spec(source("held", snapshot={"protect": True}))
    header = make_plan(wanted, Workspace(str(tmp_path)), parallelism=1)
    protect_snapshots(wanted, header, "streaming/january")

    def lose(*_: object, **__: object) -> None:
        raise CommitFailedException("another commit came first")

    def away(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    with monkeypatch.context() as patch, pytest.raises(BackfillError, match="backfill/streaming/"):
        patch.setattr(SqlCatalog, "commit_table", lose)
        release_snapshots(["lake.raw.held"], "streaming/january")
    with monkeypatch.context() as patch, pytest.raises(BackfillError, match=r"lake\.raw\.held"):
        patch.setattr(SqlCatalog, "load_table", away)
        release_snapshots(["lake.raw.held"], "streaming/january")
    release_snapshots(["lake.raw.held"], "streaming/january")
    assert list(lake.load_table("raw.held").refs()) == ["main"]


def test_the_tag_of_a_source_that_the_spec_no_longer_has_is_removed_as_well(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    for name in ("first", "second", "third"):
        lake.create_table(f"raw.{name}", schema=rows.schema).append(rows)
    status = BackfillStatus()
    for name, protect in (("first", True), ("second", True), ("third", False)):
        wanted = spec(source(name, snapshot={"protect": protect}))
        resource = Backfill(metadata=ObjectMeta(name="january"), spec=wanted, status=status)
        status = decide(Observed(resource, datetime.now(UTC), workspace="/work")).status
        header = make_plan(wanted, Workspace(str(tmp_path)), parallelism=1)
        protect_snapshots(wanted, header, "default/january")
    assert status.tagged_tables == ("lake.raw.first", "lake.raw.second")
    lake.drop_table("raw.first")
    deleted = resource.model_copy(update={"status": status})
    replace(DiscardJob.of(deleted), workspace=None).run(lambda progress: None)
    assert list(lake.load_table("raw.second").refs()) == ["main"]
