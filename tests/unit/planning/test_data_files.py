"""Data files that are gone or damaged are named before anything runs, though planning itself did not have to open them."""

from pathlib import Path

import pyarrow as pa
import pytest
from planned import hourly, source, spec
from pyiceberg.catalog import Catalog

from backfill.api.errors import InvalidPlanInput
from backfill.planning.planner import make_plan, verify_files
from backfill.planning.workspace import Workspace


@pytest.fixture
def files(lake: Catalog) -> list[Path]:
    """Three files that the plan reads whole, by the manifest alone."""
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.events", schema=rows.schema)
    for hour in (6, 8, 10):
        table.append(rows.slice(hour * 6, 6))
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def test_files_that_can_be_read_are_no_problem(files: list[Path], tmp_path: Path) -> None:
    place = Workspace(str(tmp_path / "w"))
    assert len(files) == 3
    verify_files(make_plan(spec(source("events")), place, parallelism=1), place)


def test_every_file_that_is_gone_cut_off_or_garbled_is_named(files: list[Path], tmp_path: Path) -> None:
    gone, short, garbled = files
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-10])
    garbled.write_bytes(b"x" * len(garbled.read_bytes()))
    place = Workspace(str(tmp_path / "w"))
    header = make_plan(spec(source("events")), place, parallelism=1)
    with pytest.raises(InvalidPlanInput) as raised:
        verify_files(header, place)
    problems = sorted(str(problem) for problem in raised.value.problems)
    assert len(problems) == 3
    for path, why in ((gone, "can not be read"), (short, "bytes where the table says"), (garbled, "can not be read")):
        (found,) = [problem for problem in problems if path.name in problem]
        assert found.startswith("spec.sources[0].table: a data file of lake.raw.events")
        assert why in found
        assert found.endswith("restore the file, or read a snapshot without it")
