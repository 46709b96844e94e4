"""Each micro-batch is in the branch exactly once, whoever commits it and whatever else is committed
meanwhile.
"""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
)
from pyiceberg.table import Table

from backfill.api.errors import BadInput, ResultLost, RunFailed
from backfill.outputs import staging, table_commits
from backfill.outputs.cleanup import remove_orphans
from backfill.outputs.staging import (
    Part,
    Staged,
    StagedBatch,
    part_of,
    read_staged,
    stage_batch,
    staged_files,
)
from staged import (
    HOUR_US,
    RESULT,
    content,
    expected,
    make_table,
    output,
    rows_of,
    stage,
    write_files,
)
from waiting import PATIENCE_SECONDS

FIRST, SECOND = [(1, 0), (2, HOUR_US)], [(3, 2 * HOUR_US)]


def test_the_branch_holds_only_the_result_and_production_stays_as_it_was(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(9, 0)], "production"))
    stage(table, 0, FIRST, outside=5)
    stage(table, 1, SECOND, outside=1)
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")
    assert content(table) == expected([(9, 0)], "production")
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=3, rows_outside_window=6, files=2, parts={"query": Part(1)}
    )


def test_each_of_several_queries_that_write_one_result_has_every_batch_once(lake: Catalog) -> None:
    table, rows = make_table(lake), iter(range(10))
    written: list[tuple[int, int]] = []

    def stage_of(query: str, number: int) -> bool:
        row = [(next(rows), 0)]
        files = write_files(table, rows_of(row, "backfill"))
        batch = StagedBatch(query, number, files, table.spec().spec_id, 1)
        if stage_batch(lake.load_table(table.name()), RESULT, batch):
            written.extend(row)
            return True
        return False

    order = [("a", 0), ("a", 1), ("b", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("b", 1)]
    assert [stage_of(*each) for each in order] == [
        True,
        True,
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    with pytest.raises(ResultLost):
        stage_of("c", 1)
    table.refresh()
    assert content(table, RESULT.branch) == expected(written, "backfill")
    staged = read_staged(table.metadata, RESULT)
    assert staged is not None
    assert (staged.rows, staged.rows_outside_window, staged.files) == (5, 5, 5)
    assert staged.parts == {"a": Part(2), "b": Part(1)}


def test_a_table_without_any_snapshot_can_be_staged_to(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    assert content(table) == []
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")


def span(table: Table, first: int, last: int, rows: list[tuple[int, int]]) -> bool:
    """Stages a span of steps."""
    files = write_files(table, rows_of(rows, "backfill"))
    return stage_batch(
        table, RESULT, StagedBatch("query", last, files, table.spec().spec_id, 0, first)
    )


def test_a_span_of_steps_is_staged_once_and_the_next_one_after_it(lake: Catalog) -> None:
    table = make_table(lake)
    assert span(table, 0, 4, FIRST)
    assert not span(table, 0, 4, FIRST)
    assert not span(table, 2, 3, FIRST)
    assert span(table, 5, 5, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")
    staged = read_staged(table.metadata, RESULT)
    assert staged == Staged(3, 0, files=2, parts={"query": Part(5, execution="Batch")})


def test_what_the_last_span_has_found_is_kept(lake: Catalog) -> None:
    table = make_table(lake)
    for last, overlap in ((0, {"rows": 1}), (1, {"rows": 2})):
        batch = StagedBatch("query", last, [], table.spec().spec_id, 0, last, overlap=overlap)
        assert stage_batch(table, RESULT, batch)
        staged = read_staged(lake.load_table(table.name()).metadata, RESULT)
        part = part_of(staged, "query")
        assert part is not None
        assert part.overlap == overlap


def test_of_two_drivers_with_spans_of_their_own_only_one_adds_a_step(lake: Catalog) -> None:
    table = make_table(lake)
    span(table, 0, 4, FIRST)
    with pytest.raises(RunFailed, match=r"staged steps of output summary up to 4; .* add 3 to 6"):
        span(table, 3, 6, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")


def test_steps_that_are_missing_before_a_span_are_lost(lake: Catalog) -> None:
    table = make_table(lake)
    with pytest.raises(ResultLost):
        span(table, 1, 2, FIRST)
    stage(table, 0, FIRST)
    with pytest.raises(
        ResultLost, match="the staged result of output summary is no longer in branch"
    ):
        span(table, 2, 3, SECOND)
    with pytest.raises(ResultLost):
        stage(table, 2, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")


def test_a_batch_that_is_committed_again_changes_nothing(lake: Catalog) -> None:
    table = make_table(lake)
    assert stage(table, 0, FIRST)
    assert stage(table, 1, SECOND, outside=2)
    before = read_staged(table.metadata, RESULT)
    assert not stage(table, 1, SECOND, outside=2)
    assert not stage(table, 0, FIRST)
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")
    assert read_staged(table.metadata, RESULT) == before


def test_batches_without_rows_keep_the_counts_right(lake: Catalog) -> None:
    table = make_table(lake)
    for batch in range(3):
        stage(table, batch, [], outside=batch)
    stage(table, 3, FIRST)
    stage(table, 4, [], outside=4)
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=2, rows_outside_window=7, files=1, parts={"query": Part(4)}
    )
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")


def test_what_spans_leave_open_is_counted_over_all_attempts(lake: Catalog) -> None:
    table = make_table(lake)
    for first, last, left_open in ((0, 2, 0), (3, 4, 5), (5, 5, 2)):
        span = StagedBatch(
            "query", last, (), table.spec().spec_id, 0, first=first, rows_open=left_open
        )
        assert stage_batch(table, RESULT, span)
    part = part_of(read_staged(table.metadata, RESULT), "query")
    assert part is not None and part.rows_open == 7


def test_two_outputs_of_one_table_share_the_branch_and_count_apart(lake: Catalog) -> None:
    table, other = make_table(lake), replace(RESULT, output="other")
    stage(table, 0, FIRST)
    stage(table, 0, SECOND, result=other, who="other")
    stage(table, 1, [])
    assert content(table, RESULT.branch) == expected(FIRST, "backfill") + expected(SECOND, "other")
    assert [read_staged(table.metadata, result) for result in (RESULT, other)] == [
        Staged(2, 0, 1, parts={"query": Part(1)}),
        Staged(1, 0, 1, parts={"query": Part(0)}),
    ]
    assert [
        sum(file.record_count for file in staged_files(table, result)) for result in (RESULT, other)
    ] == [2, 1]


def test_metadata_does_not_grow_with_the_number_of_batches(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(staging._MANY_SMALL_COMMITS, "commit.manifest.min-count-to-merge", "5")
    table = make_table(lake)
    for batch in range(12):
        stage(table, batch, [(batch, 0)])
    assert len(table.metadata.snapshots) == 1
    assert len(content(table, RESULT.branch)) == 12
    head = table.metadata.snapshot_by_name(RESULT.branch)
    assert head is not None
    needed = {Path(manifest.manifest_path).name for manifest in head.manifests(table.io)} | {
        Path(head.manifest_list).name
    }
    assert {path.name for path in (tmp_path / "warehouse").rglob("*.avro")} == needed
    assert len(needed) < 8


def test_a_snapshot_that_somebody_tagged_stays(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    table.manage_snapshots().create_tag(
        table.metadata.refs[RESULT.branch].snapshot_id, "look"
    ).commit()
    stage(table, 1, SECOND)
    assert content(table, "look") == expected(FIRST, "backfill")
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")


def test_a_branch_of_another_plan_is_refused_with_its_owner(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    with pytest.raises(
        BadInput,
        match="already contains plan 0123456789abcdef of Backfill streaming/rmi; delete that"
        " Backfill,",
    ):
        stage(table, 0, FIRST, result=replace(RESULT, plan_id="another plan"))


def test_a_branch_that_no_backfill_made_is_refused(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of(FIRST, "production"))
    table.manage_snapshots().create_branch(
        table.metadata.current_snapshot_id, RESULT.branch
    ).commit()
    with pytest.raises(BadInput, match="something that no Backfill created"):
        stage(table, 0, FIRST)


def test_a_branch_that_is_gone_is_not_begun_again_in_the_middle(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(9, 0)], "production"))
    stage(table, 0, FIRST)
    table.manage_snapshots().remove_branch(RESULT.branch).commit()
    with pytest.raises(
        ResultLost,
        match=r"result of output summary is no longer in branch backfill/streaming/rmi of ",
    ):
        stage(table, 1, SECOND)


def test_a_commit_whose_answer_was_lost_is_not_made_again(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    _after_commit(monkeypatch, table, CommitStateUnknownException("the connection was closed"))
    stage(table, 1, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")


def test_a_commit_that_is_refused_because_a_proxy_repeated_it_keeps_its_rows(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    _after_commit(monkeypatch, table, CommitFailedException("branch was changed"))
    stage(table, 1, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")


def test_a_commit_that_was_refused_is_made_again(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    _before_commit(monkeypatch, table, lambda: _raise(CommitFailedException("somebody was faster")))
    assert stage(table, 1, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")
    assert len(list((tmp_path / "warehouse").rglob("*.avro"))) == 3, (
        "what the refused commit had written is removed"
    )


def test_a_catalog_that_is_away_for_a_moment_costs_no_attempt(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    away = [CommitStateUnknownException("504"), ServiceUnavailableError("503")]
    away += [ServiceUnavailableError("503, at the next look"), ServiceUnavailableError("503")]
    commit, refresh, answers = table._do_commit, table.refresh, iter(away)

    def answer(request: Callable[..., Any]) -> Callable[..., Any]:
        def answered(*arguments: Any, **named: Any) -> Any:
            error = next(answers, None)
            if error is not None:
                raise error
            return request(*arguments, **named)

        return answered

    monkeypatch.setattr(table, "_do_commit", answer(commit))
    monkeypatch.setattr(table, "refresh", answer(refresh))
    assert stage(table, 1, SECOND)
    assert next(answers, None) is None
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")


def test_a_catalog_that_stays_away_ends_the_attempt(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_commits, "_AWAY_SECONDS", 0.1)
    table = make_table(lake)
    monkeypatch.setattr(table, "_do_commit", lambda *_: _raise(ServiceUnavailableError("503")))
    with pytest.raises(ServiceUnavailableError):
        stage(table, 0, FIRST)


def test_a_commit_that_can_not_work_is_not_tried_for_ever(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    _before_commit(monkeypatch, table, lambda: _raise(PermissionError("not yours")))
    with pytest.raises(PermissionError):
        stage(table, 0, FIRST)


def test_an_append_of_production_between_look_and_commit_is_kept(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    stage(table, 0, FIRST)
    other = load_catalog("lake").load_table("raw.out")
    _before_commit(monkeypatch, table, lambda: other.append(rows_of([(9, 0)], "production")))
    assert stage(table, 1, SECOND)
    assert content(table) == expected([(9, 0)], "production")
    assert content(table, RESULT.branch) == expected(FIRST + SECOND, "backfill")
    numbers = [snapshot.sequence_number for snapshot in table.metadata.snapshots]
    assert len(set(numbers)) == len(numbers) and max(numbers) == table.metadata.last_sequence_number


def test_another_driver_that_commits_the_same_batch_between_look_and_commit_wins(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, zombie = make_table(lake), load_catalog("lake").load_table("raw.out")
    stage(table, 0, FIRST)
    zombie.refresh()
    _before_commit(monkeypatch, table, lambda: stage(zombie, 1, SECOND, who="zombie"))
    assert not stage(table, 1, SECOND)
    assert content(table, RESULT.branch) == expected(FIRST, "backfill") + expected(SECOND, "zombie")
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=3, rows_outside_window=0, files=2, parts={"query": Part(1)}
    )


def test_two_processes_that_commit_the_same_batches_at_once_give_each_batch_once(
    lake: Catalog,
) -> None:
    table = make_table(lake)
    table.append(rows_of([(9, 0)], "production"))
    context = multiprocessing.get_context("spawn")
    start, batches = context.Barrier(3), 5
    drivers = [
        context.Process(target=_drive, args=(start, batches, f"driver {number}"))
        for number in range(2)
    ]
    production = context.Process(target=_produce, args=(start, 4))
    for process in (*drivers, production):
        process.start()
    for process in (*drivers, production):
        process.join(PATIENCE_SECONDS)
    assert [process.exitcode for process in (*drivers, production)] == [0, 0, 0]
    assert [row[:2] for row in content(table, RESULT.branch)] == [
        (batch, 0) for batch in range(batches)
    ]
    assert len(content(table)) == 5
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=batches,
        rows_outside_window=batches,
        files=batches,
        parts={"query": Part(batches - 1)},
    )


def test_files_of_an_older_partitioning_are_staged_as_such(lake: Catalog) -> None:
    table = make_table(lake, "day")
    files, spec_id = write_files(table, rows_of(FIRST, "backfill")), table.spec().spec_id
    with table.update_spec() as update:
        update.remove_field("part")
    stage_batch(table, RESULT, StagedBatch("query", 0, files, spec_id, 0))
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")
    assert {file.spec_id for file in staged_files(table, RESULT)} == {spec_id}


def test_files_are_written_where_the_table_wants_its_data_whatever_spreads_them(
    lake: Catalog, tmp_path: Path
) -> None:
    data = f"file://{tmp_path}/elsewhere"
    table = make_table(
        lake, "day", **{"write.data.path": data, "write.object-storage.enabled": "true"}
    )
    stage(table, 0, FIRST)
    (file,) = staged_files(table, RESULT)
    assert file.file_path.startswith(
        f"{data}/backfill/streaming-rmi-first/summary/result/part=2021-07-11/"
    )
    write_files(table, rows_of(SECOND, "a killed task"))
    assert remove_orphans(output(), RESULT, None) == 1
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")


def _drive(start: Barrier, batches: int, who: str) -> None:
    table = load_catalog("lake").load_table("raw.out")
    start.wait(PATIENCE_SECONDS)
    for batch in range(batches):
        stage(table.refresh(), batch, [(batch, 0)], outside=1, who=who)


def _produce(start: Barrier, commits: int) -> None:
    start.wait(PATIENCE_SECONDS)
    for number in range(commits):
        while not _appended(rows_of([(100 + number, 0)], "production")):
            pass


def _appended(rows: pa.Table) -> bool:
    try:
        load_catalog("lake").load_table("raw.out").append(rows)
    # PyIceberg says with a ValueError that a sequence number was taken meanwhile
    except (CommitFailedException, ValueError):
        return False
    return True


def _before_commit(
    monkeypatch: pytest.MonkeyPatch, table: Table, happens: Callable[[], object]
) -> None:
    """Lets something happen between the first look at the table and the commit that follows."""
    commit = table.catalog.commit_table

    def commit_after(*args: Any) -> Any:
        monkeypatch.setattr(table.catalog, "commit_table", commit)
        happens()
        return commit(*args)

    monkeypatch.setattr(table.catalog, "commit_table", commit_after)


def _after_commit(monkeypatch: pytest.MonkeyPatch, table: Table, error: Exception) -> None:
    """Lets the next commit succeed and its answer be lost."""
    commit = table.catalog.commit_table

    def commit_and_fail(*args: Any) -> Any:
        monkeypatch.setattr(table.catalog, "commit_table", commit)
        commit(*args)
        raise error

    monkeypatch.setattr(table.catalog, "commit_table", commit_and_fail)


def _raise(error: Exception) -> None:
    raise error
