"""How far a query has come is in its checkpoint's commit log."""

from pathlib import Path

import pytest

from backfill.planning.workspace import Workspace
from backfill.runtime.queries.earlier_attempts import checkpoint_of, committed_steps


@pytest.mark.parametrize(
    ("case", "files", "steps"),
    [
        ("no checkpoint yet", None, 0),
        ("nothing committed yet", [], 0),
        ("three batches", ["0", "1", "2", ".2.crc"], 3),
        ("old entries were removed, and numbers do not sort as text", ["9", "10", "11"], 12),
        ("an entry is being written", ["0", "1", ".2.tmp"], 2),
    ],
)
def test_the_last_committed_batch_tells_how_many_steps_are_read(
    tmp_path: Path, case: str, files: list[str] | None, steps: int
) -> None:
    if files is not None:
        (tmp_path / "commits").mkdir()
        for name in files:
            (tmp_path / "commits" / name).write_text("v1")
    assert committed_steps(Workspace(str(tmp_path))) == steps, case


def test_a_query_name_can_not_lead_out_of_the_checkpoints_directory() -> None:
    store = Workspace("s3://lake/b/checkpoints", "lake")
    assert checkpoint_of("summary", store) == Workspace("s3://lake/b/checkpoints/summary", "lake")
    assert checkpoint_of("../a b", Workspace("/checkpoints")).uri == "/checkpoints/..%2Fa%20b"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("s3://lake/b", "s3a://lake/b"),
        ("s3a://lake/b", "s3a://lake/b"),
        ("gs://lake/b", "gs://lake/b"),
        ("/lake/b", "/lake/b"),
    ],
)
def test_spark_is_told_the_scheme_that_hadoop_knows(uri: str, told: str) -> None:
    assert Workspace(uri).for_spark == told
