"""The state of a query is put where live traffic goes on: whole or not at all, whenever the driver
is killed, and never over anything else.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from planned_sources import Backfill, committed, planned, wait
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import BackfillError, UnsupportedProgram
from backfill.api.spec import BackfillSpec
from backfill.protocol.hand_off_messages import HandOffQuery
from backfill.runtime.hand_off import copy_checkpoint as placing
from backfill.runtime.hand_off.copy_checkpoint import MARKER, Marker, Placement, check_free, place
from backfill.runtime.hand_off.hadoop_files import Files
from backfill.runtime.hand_off.offset_log import offsets_in_log
from backfill.runtime.queries.earlier_attempts import checkpoint_of
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.spark_versions import NO_REPARTITION, NO_STATE_READER

START = datetime(2021, 7, 11, tzinfo=UTC)
STEPS, ROWS = 3, 20
LIVE = {"events": '{"raw-events":{"0":17,"1":4}}'}
HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def backfill(lake: Catalog, tmp_path: Path) -> Backfill:
    schema = pa.schema([("user", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    table = lake.create_table("raw.events", schema=schema)
    for step in range(STEPS):
        times = [START + timedelta(minutes=10 * step, seconds=row) for row in range(ROWS)]
        table.append(pa.table({"user": [row % 7 for row in range(ROWS)], "at": times}, schema))
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": START, "end": START + STEPS * timedelta(minutes=10)},
            "sources": [{"name": "events", "table": "lake.raw.events", "timestampColumn": "at"}],
            "ordering": {"policy": "Exact"},
            "maxMisalignment": "20m",
        }
    )
    return planned(spec, tmp_path)


def _run(spark: SparkSession, backfill: Backfill) -> None:
    """Reads everything: users are counted, and all of them are in the state at the end."""
    events = source_frame(spark, backfill.settings, "events").withWatermark("at", "1 minute")
    counts = events.groupBy(F.window("at", "1 day"), "user").count()
    backfill.release(STEPS)
    query = backfill.start(counts.select("user", "count"))
    wait(lambda: committed(query) == STEPS + 1, query)
    query.stop()


def _placement(backfill: Backfill, location: Path, partitions: int | None = None) -> Placement:
    settings = backfill.settings
    return Placement(
        name="q",
        marker=Marker(uid="mine", plan_id=settings.plan_id, query="q"),
        location=str(location),
        origin=checkpoint_of("q", settings.checkpoint_workspace),
        state_partitions=partitions,
    )


def _counts(spark: SparkSession, location: Path) -> dict[int, int]:
    if NO_STATE_READER:
        pytest.skip(NO_STATE_READER)
    state = spark.read.format("statestore").load(str(location))
    return {row.user: row["count"] for row in state.select("key.user", "value.count").collect()}


def _killed_at(monkeypatch: pytest.MonkeyPatch, act: int) -> None:
    """Fails what is done to files from one act on, as when the driver is killed there."""
    acts = 0
    for name in ("remove", "write", "copy"):
        original = getattr(Files, name)

        def counted(self: Files, *args: object, original: object = original) -> object:
            nonlocal acts
            acts += 1
            if acts >= act:
                raise KeyboardInterrupt
            return original(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(Files, name, counted)


def test_a_checkpoint_is_whole_or_made_again_wherever_its_driver_was_killed(
    spark: SparkSession, backfill: Backfill, tmp_path: Path
) -> None:
    _run(spark, backfill)
    expected = {user: sum(row % 7 == user for row in range(ROWS)) * STEPS for user in range(7)}
    placement = _placement(backfill, tmp_path / "live")
    act = 0
    placed: HandOffQuery | None = None
    while placed is None:
        act += 1
        with pytest.MonkeyPatch.context() as killed:
            _killed_at(killed, act)
            try:
                placed = place(spark, placement, backfill.header, LIVE)
            except KeyboardInterrupt:
                check_free(spark, placement)
    assert act > 6, "it was killed before, between and after its parts"
    assert (placed.batch, placed.state_partitions, placed.sources) == (STEPS, 2, ("events",))
    assert offsets_in_log(spark, placement.location) == (STEPS, STEPS, [LIVE["events"]])
    assert _counts(spark, tmp_path / "live") == expected
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "live").rglob("*"))
    assert place(spark, placement, backfill.header, LIVE) == placed
    after = sorted(path.stat().st_mtime_ns for path in (tmp_path / "live").rglob("*"))
    assert after == before, "a complete checkpoint is not touched again"


def test_a_driver_killed_while_it_removes_an_incomplete_copy_leaves_it_recognized(
    spark: SparkSession, backfill: Backfill, tmp_path: Path
) -> None:
    def files() -> list[Path]:
        found = (path for path in (tmp_path / "live").rglob("[!.]*") if path.is_file())
        return sorted(path for path in found if path.name != MARKER)

    def removes_one(self: Files, name: str = "") -> None:
        """As an object store removes files, one by one in their order."""
        below = tmp_path / "live" / name
        min([below] if below.is_file() else filter(Path.is_file, below.rglob("[!.]*"))).unlink()
        raise KeyboardInterrupt

    _run(spark, backfill)
    placement = _placement(backfill, tmp_path / "live")
    with pytest.MonkeyPatch.context() as failing:
        failing.setattr(placing, "offsets_in_log", lambda *_: None)
        with pytest.raises(BackfillError):
            place(spark, placement, backfill.header, LIVE)
    assert (before := len(files())) > 5
    for removed in range(1, 4):
        with pytest.MonkeyPatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(Files, "remove", removes_one)
            place(spark, placement, backfill.header, LIVE)
        assert len(files()) == before - removed
        check_free(spark, placement)
    assert place(spark, placement, backfill.header, LIVE).batch == STEPS


@pytest.mark.skipif(bool(NO_REPARTITION), reason=NO_REPARTITION)
def test_a_repartition_that_fails_harms_neither_history_nor_the_next_attempt(
    spark: SparkSession, backfill: Backfill, tmp_path: Path
) -> None:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, HEAP)
    try:
        _run(spark, backfill)
        with pytest.raises(Py4JJavaError):
            place(spark, _placement(backfill, tmp_path / "live", 5), backfill.header, LIVE)
        placed = place(spark, _placement(backfill, tmp_path / "live"), backfill.header, LIVE)
        assert (placed.batch, placed.state_partitions) == (STEPS, 2)
        assert len(_counts(spark, tmp_path / "live")) == 7
    finally:
        spark.conf.set(PROVIDER, before)


def test_an_uncommitted_batch_is_not_handed_over(
    spark: SparkSession, backfill: Backfill, tmp_path: Path
) -> None:
    _run(spark, backfill)
    placement = _placement(backfill, tmp_path / "live")
    for file in Path(placement.origin.uri, "commits").glob(f"*{STEPS}*"):
        file.unlink()
    with pytest.raises(BackfillError, match="the next attempt commits it"):
        place(spark, placement, backfill.header, LIVE)


def test_what_is_at_a_location_already_is_never_replaced(
    spark: SparkSession, backfill: Backfill, tmp_path: Path
) -> None:
    placement = _placement(backfill, tmp_path / "live")
    check_free(spark, placement)
    (tmp_path / "live").mkdir()
    check_free(spark, placement)
    (tmp_path / "live" / "metadata").write_text("{}")
    with pytest.raises(UnsupportedProgram, match="is in use; give the query a new"):
        check_free(spark, placement)
    other = Marker(uid="another", plan_id=placement.marker.plan_id, query="q")
    (tmp_path / "live" / MARKER).write_text(other.model_dump_json(by_alias=True))
    with pytest.raises(UnsupportedProgram, match="is in use"):
        place(spark, placement, backfill.header, LIVE)
    assert (tmp_path / "live" / "metadata").read_text() == "{}"


def test_what_spark_does_not_read_back_as_it_was_written_is_not_complete(
    spark: SparkSession, backfill: Backfill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(spark, backfill)
    placement = _placement(backfill, tmp_path / "live")
    monkeypatch.setattr(placing, "offsets_in_log", lambda *_: (STEPS, STEPS, ["{}"]))
    with pytest.raises(BackfillError, match="Spark reads the offsets"):
        place(spark, placement, backfill.header, LIVE)
    marker = Marker.model_validate_json((tmp_path / "live" / MARKER).read_text())
    assert marker.placed is None
