"""Commits that were never reported."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace
from backfill.runtime.queries.lost_commits import LostCommits
from backfill.runtime.queries.run_state import Run, StartedQuery
from backfill.runtime.queries.tracker import Tracker


@pytest.fixture
def run(tmp_path: Path, header: PlanHeader) -> Run:
    settings: Any = SimpleNamespace(checkpoint_workspace=Workspace(str(tmp_path)))
    run = Run(settings, Tracker(header, ["impressions"], lambda _source, _step: 10, lambda: 0))
    nothing: Any = SimpleNamespace()
    for name in ("a", "b"):
        run.tracker.add(name, name, {"impressions": 0})
        run.started(StartedQuery(name, name, "", nothing, nothing, nothing))
    return run


def _write_commits(directory: Path, query: str, steps: int) -> None:
    (directory / query / "commits").mkdir(parents=True)
    for batch in range(steps):
        (directory / query / "commits" / str(batch)).touch()


def _committed(run: Run) -> list[tuple[str, int, int]]:
    return [
        (query.name, source.committed, source.rows)
        for query in run.tracker.queries
        for source in query.sources
    ]


def test_what_a_look_finds_counts_at_the_next_one_since_a_report_may_be_on_its_way(
    run: Run, tmp_path: Path
) -> None:
    _write_commits(tmp_path, "a", 2)
    lost = LostCommits(run)
    lost.look()
    assert _committed(run) == [("a", 0, 0), ("b", 0, 0)]
    lost.look()
    assert _committed(run) == [("a", 2, 20), ("b", 0, 0)]


def test_a_checkpoint_that_can_not_be_read_does_not_hide_the_others(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "commits").write_text("not a directory")
    _write_commits(tmp_path, "b", 1)
    lost = LostCommits(run)
    lost.look()
    lost.look()
    assert _committed(run) == [("a", 0, 0), ("b", 1, 10)]
