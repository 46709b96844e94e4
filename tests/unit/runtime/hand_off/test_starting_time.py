"""From which time on live traffic is read of a source whose rows have no Kafka offsets."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent

from backfill.api.errors import InvalidPlanInput
from backfill.api.quantities import from_us, to_us
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.hand_off.starting_time import starting_time_us
from iceberg_tables import commit_files, data_file, position_deletes

START = datetime(2021, 7, 11, tzinfo=UTC)
MARGIN = timedelta(minutes=10)
FUTURE = (datetime.now(UTC) + timedelta(days=3_000) - START) / timedelta(minutes=1)
"""A minute long after the commits."""
ROWS = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("record", pa.struct([("ms", pa.int64()), ("text", pa.string())])),
    ]
)


class Events:
    """A table of events without the offsets of their records, and plans that read it from ``START``
    on.
    """

    def __init__(self, directory: Path, catalog: Catalog):
        self._directory, self._catalog = directory, catalog
        self._files: list[str] = []
        self.kept = Workspace(str(directory / "kept"))
        self.table = catalog.create_table(
            "raw.events", schema=ROWS, properties={"write.metadata.metrics.default": "full"}
        )
        catalog.create_table("raw.others", schema=ROWS).append(self._rows((30, None)))

    def _rows(self, *rows: tuple[float, float | None]) -> pa.Table:
        values = [
            {
                "at": START + timedelta(minutes=at),
                "record": {
                    "ms": None
                    if record is None
                    else to_us(START + timedelta(minutes=record)) // 1_000
                },
            }
            for at, record in rows
        ]
        return pa.Table.from_pylist(values, schema=ROWS)

    def append(self, *rows: tuple[float, float | None], **summary: str) -> None:
        """A file with rows of a minute, and of the minute of their record."""
        self.table.append(
            self._rows(*rows),
            snapshot_properties={key.replace("_", "."): value for key, value in summary.items()},
        )
        now = self.table.inspect.data_files()["file_path"].to_pylist()
        self._files += {*now} - {*self._files}

    def delete_rows_of(self, newest: int) -> None:
        """All rows of the newest files, each of which has one row."""
        path = self._directory / "deletes.parquet"
        position_deletes(path, [(file, 0) for file in self._files[-newest:]])
        deletes = data_file(
            2,
            content=DataFileContent.POSITION_DELETES,
            file_path=str(path),
            record_count=newest,
            file_size_in_bytes=path.stat().st_size,
        )
        commit_files(self._catalog, self.table, 77, [], [deletes])

    def starting_minute(self, misalignment: str = "10m", **kafka: Any) -> float:
        """Minutes from ``START`` to where live traffic goes on."""
        spec = BackfillSpec.model_validate(
            {
                "applicationRef": {"name": "app"},
                "window": {"start": START, "end": "Live"},
                "sources": [
                    {
                        "name": name,
                        "table": f"lake.raw.{name}",
                        "timestampColumn": "at",
                        "kafka": kafka,
                        "live": {"kafka": {"topic": name}},
                    }
                    for name in ("events", "others")
                ],
                "handOff": {"to": "Live", "startingTimestampMargin": MARGIN},
                "maxMisalignment": misalignment,
            }
        )
        workspace = Workspace(str(self._directory / "workspace"))
        header = make_plan(spec, workspace, parallelism=2)
        plan = plan_directory(workspace, header.plan_id)
        found = starting_time_us(plan, spec.sources[0], "spec.sources[0]", to_us(MARGIN), self.kept)
        return (from_us(found) - START) / timedelta(minutes=1)


@pytest.fixture
def events(tmp_path: Path, lake: Catalog) -> Events:
    return Events(tmp_path, lake)


def test_it_is_the_margin_before_the_newest_row_in_whatever_order_files_have_rows(
    events: Events,
) -> None:
    events.append((0, None), (50, None), (20, None))
    events.append((31, None), (40, None))
    assert events.starting_minute() == 40


def test_a_file_that_several_steps_read_counts_with_all_its_rows(events: Events) -> None:
    events.append(*((minute, None) for minute in range(60)))
    assert events.starting_minute() == 49


def test_it_is_not_before_the_start_of_history(events: Events) -> None:
    events.append((-90, None), (5, None))
    assert events.starting_minute() == 0


def test_a_source_without_rows_goes_on_where_history_would_have_begun(events: Events) -> None:
    events.append((-90, None))
    assert events.starting_minute() == 0


def test_the_time_of_records_counts_where_the_table_has_it(events: Events) -> None:
    events.append((10, 3), (40, 28), (39, 29.5))
    assert events.starting_minute(timestampColumn="record.ms") == 19.5


def test_rows_from_the_future_do_not_count(events: Events) -> None:
    events.append((10, None), (50, None))
    events.append((20, None), (FUTURE, None))
    events.append((FUTURE, None))
    assert events.starting_minute("365d") == 40


def test_records_from_the_future_do_not_count(events: Events) -> None:
    events.append((40, 28), (39, FUTURE))
    events.append((30, 29), (50, FUTURE))
    assert events.starting_minute(timestampColumn="record.ms") == 19


def test_older_files_count_where_all_records_of_newer_ones_are_from_the_future(
    events: Events,
) -> None:
    events.append((30, 25))
    events.append((50, FUTURE))
    assert events.starting_minute(timestampColumn="record.ms") == 15


def test_older_files_count_where_the_rows_of_newer_ones_are_deleted(events: Events) -> None:
    events.append((0, None), (20, None))
    events.append((30, None))
    events.append((50, None))
    events.delete_rows_of(2)
    assert events.starting_minute() == 10


def test_a_source_whose_rows_are_all_deleted_goes_on_where_history_would_have_begun(
    events: Events,
) -> None:
    events.append((30, None))
    events.append((50, None))
    events.delete_rows_of(2)
    assert events.starting_minute() == 0


def test_where_all_rows_are_from_the_future_history_has_none_and_live_traffic_begins_with_it(
    events: Events,
) -> None:
    events.append((FUTURE, None))
    assert events.starting_minute("365d") == 0


def test_ingestion_that_is_behind_in_a_partition_counts(events: Events) -> None:
    through = (START + timedelta(minutes=25)).isoformat()
    events.append((50, None), **{"kafka_connect_valid-through-ts": through})
    assert events.starting_minute() == 15


def test_what_ingestion_said_before_newer_rows_does_not_count(events: Events) -> None:
    through = (START + timedelta(minutes=25)).isoformat()
    events.append((30, None), **{"kafka_connect_valid-through-ts": through})
    events.append((50, None))
    assert events.starting_minute() == 40


def test_another_attempt_takes_what_the_first_one_has_found(events: Events) -> None:
    events.append((50, None))
    assert events.starting_minute() == 40
    (name,) = events.kept.names("")
    events.kept.write_sealed(name, str(to_us(START + timedelta(minutes=30))).encode())
    assert events.starting_minute() == 20


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("record.text", "record.text of lake.raw.events contains no times; set a column"),
        ("missing", "missing of lake.raw.events contains no times; set a column"),
        (
            "record.ms",
            "record.ms of lake.raw.events has no values in the newest rows; fill in the column",
        ),
    ],
)
def test_a_column_that_has_no_times_is_refused(events: Events, column: str, message: str) -> None:
    events.append((50, None))
    with pytest.raises(
        InvalidPlanInput, match=r"^spec\.sources\[0\]\.kafka\.timestampColumn: "
    ) as error:
        events.starting_minute(timestampColumn=column)
    assert message in str(error.value)
