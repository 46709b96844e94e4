"""What the screen shows, at a fixed width."""

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, set_condition
from backfill.api.hand_off import HandedOverQuery, HandedOverSource, HandOffStatus
from backfill.api.quantities import count
from backfill.api.status import Attempt, BackfillStatus, OutputStatus, Progress, SourceStatus
from backfill.cli.backfill_view import View
from backfill.cli.result_json import result_line
from backfill.cli.screen import Lines, display, progress_line, render, what_follows
from backfill.cli.status_pages import details, listing
from backfill.cli.text import lasted, seconds, size
from backfill.planning.planning_progress import PlanningProgress

START = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)


def view(
    committed: int,
    *,
    reason: Reason = Reason.REPLAYING,
    message: str = "the driver is reading",
    **progress: Any,
) -> View:
    since = NOW - timedelta(seconds=20)
    conditions = set_condition((), ConditionType.RUNNING, "True", reason, message, since, 1)
    marks = {
        "clicks": START + timedelta(hours=committed),
        "views": START + timedelta(hours=committed + 2),
    }
    status = BackfillStatus(
        plan_id="3fa2",
        started_at=NOW - timedelta(seconds=75),
        attempts=(Attempt(number=1, started_at=NOW),),
        progress=Progress(steps=24, committed=committed, rows_read=12_345_678, **progress),
        sources=tuple(SourceStatus(name=name, watermark=mark) for name, mark in marks.items()),
        watermark=marks["clicks"],
        conditions=conditions,
    )
    return View(_backfill(status), NOW)


def _backfill(status: BackfillStatus) -> Backfill:
    spec = {
        "applicationRef": {"name": "app"},
        "window": {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"},
        "sources": [{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}],
    }
    return Backfill.model_validate(
        {"metadata": {"name": "january"}, "spec": spec, "status": status}
    )


def shown(what: Any, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False, color_system=None)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_screen_of_a_run() -> None:
    running = view(
        12,
        rows_per_second=310_000.0,
        executors=1,
        rows_dropped_late=3,
        eta=NOW + timedelta(seconds=95),
    )
    assert shown(render(running)) == [
        f"january{'1 min 15 s':>73}",
        "  steps   ━━━━━━━━━━━━━━━━━━━━━━━━╸                          12 of 24  50 %",
        "  clicks  ━━━━━━━━━━━━━━━━━━━━━━━━╸                          2024-01-01 12:00",
        "  views   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━╸                      2024-01-01 14:00",
        "  12,345,678 rows  ·  310,000 rows/s  ·  3 dropped as late  ·  1 executor  ·",
        "  done in about 1 min 35 s",
        "  Replaying, 20 s: the driver is reading",
    ]


def test_the_slowest_sources_are_shown_first_and_the_others_folded() -> None:
    before = view(12)
    sources = [
        SourceStatus(name=f"s{hour}", watermark=START + timedelta(hours=hour))
        for hour in (9, 3, 8, 1, 7, 5)
    ]
    sources.append(SourceStatus(name="silent"))
    status = before.status.model_copy(update={"sources": tuple(sources)})
    found = View(_backfill(status), NOW)
    names = [line.split()[0] for line in shown(render(found))[2:6]]
    assert names == ["silent", "s1", "s3", "s5"]
    assert shown(render(found))[6].split() == [
        *["3", "sources", "further", "ahead", "2024-01-01", "09:00"]
    ]
    whole = "\n".join(shown(details(found)))
    assert all(source.name in whole for source in sources), "a page shows them all"


def test_attempts_have_numbers_once_there_are_several_and_plans_on_the_page() -> None:
    first = view(12)
    second = first.status.attempts[0].model_copy(update={"number": 2})
    status = first.status.model_copy(update={"attempts": (*first.status.attempts, second)})
    again = View(_backfill(status), NOW)
    assert "attempt" not in shown(render(first))[0]
    assert shown(render(again))[0].startswith("january  attempt 2 ")
    assert "3fa2" not in "\n".join(shown(render(first)))
    assert "  plan  3fa2" in shown(details(first))


def test_what_follows_the_steps_is_said_until_they_are_done() -> None:
    output = {"name": "counts", "table": "lake.raw.counts", "timestampColumn": "at"}

    def said(committed: int, **publish: str) -> str:
        found = view(committed)
        spec = _backfill(found.status).spec.to_manifest() | {
            "outputs": [output | {"publish": publish}]
        }
        known = Backfill.model_validate(
            {"metadata": {"name": "january"}, "spec": spec, "status": found.status}
        )
        return what_follows(View(known, NOW))

    assert said(5, mode="Replace") == "waits for approval"
    assert said(5, mode="Append") == "publishes counts"
    assert said(5, mode="Replace", approval="Automatic") == "publishes counts"
    assert said(5, mode="None") == ""
    assert said(24, mode="Append") == ""


def test_the_screen_tells_what_was_still_open_in_the_end() -> None:
    assert "  12,345,678 rows  ·  5 open at the end" in shown(render(view(24, open_at_end=5)))


def test_the_screen_tells_what_batch_jobs_have_read_late() -> None:
    assert "  12,345,678 rows  ·  7 arrived late" in shown(render(view(24, rows_arrived_late=7)))


def test_the_screen_tells_what_batch_jobs_are_doing_before_any_step_is_committed() -> None:
    jobs = view(0, batch_steps=24, batch_tasks_percent=40)
    words = "batch jobs read 24 steps, 40 % of their tasks done"
    assert words in "\n".join(shown(render(jobs)))
    assert words in progress_line(jobs)
    assert "batch jobs" not in progress_line(view(3))


def test_how_many_executors_are_wanted_is_told_only_while_there_may_be_some() -> None:
    now = view(12, executors=1, executor_target=2, executor_reason="to be done in time")
    attempts = tuple(
        attempt.model_copy(update={"outcome": "Stopped"}) for attempt in now.status.attempts
    )
    stopped = View(_backfill(now.status.model_copy(update={"attempts": attempts})), NOW)
    assert [
        any("to be done in time" in line for line in shown(details(each)))
        for each in (now, stopped)
    ] == [True, False]


def test_the_screen_fits_a_narrow_terminal() -> None:
    long = view(
        3,
        reason=Reason.BACKING_OFF,
        message="attempt 1 failed: its driver exited with status 17 before the end",
    )
    lines = shown(render(long), width=50)
    assert max(map(len, lines)) <= 50
    assert "its driver exited with status 17 before the end" in " ".join(map(str.strip, lines))


def test_the_screen_while_planning() -> None:
    planning = PlanningProgress(source="clicks", manifests_done=7, manifests=20, files=35_000)
    status = BackfillStatus(started_at=NOW - timedelta(seconds=4))
    assert shown(render(View(_backfill(status), NOW, planning=planning))) == [
        f"january{'4 s':>73}",
        "  planning: clicks: 7 of 20 manifests, 35,000 files",
    ]


def test_lines_tell_what_happened_and_progress_now_and_then() -> None:
    console = Console(width=200, file=io.StringIO(), color_system=None)
    lines = Lines(console)
    lines.show(view(1))
    lines.show(view(2))
    lines.show(
        view(
            2, reason=Reason.BACKING_OFF, message="attempt 1 failed: killed by signal 9\nlast line"
        )
    )
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "january: Replaying: the driver is reading",
        "january: BackingOff: attempt 1 failed: killed by signal 9",
    ], "progress comes at most every few seconds"


def test_the_last_state_stays_on_the_screen_however_fast_it_came() -> None:
    console = Console(
        width=80, height=20, file=io.StringIO(), force_terminal=True, color_system=None
    )
    with display(console) as screen:
        screen.show(view(23))
        screen.show(
            view(
                24,
                reason=Reason.WAITING_FOR_APPROVAL,
                message="waiting for approval to publish counts",
            )
        )
    assert isinstance(console.file, io.StringIO)
    assert "WaitingForApproval" in console.file.getvalue()


def test_a_removal_is_told_whatever_went_before() -> None:
    before = view(12, reason=Reason.ATTEMPTS_EXHAUSTED)
    conditions = set_condition(
        before.status.conditions, ConditionType.SUCCEEDED, "Unknown", Reason.REMOVING, "", NOW, 1
    )
    after = View(_backfill(before.status.model_copy(update={"conditions": conditions})), NOW)
    assert "  Removing, 0 s" in shown(render(after))


def test_the_list_of_backfills() -> None:
    assert shown(listing([view(12).backfill, view(5).backfill])) == [
        "namespace  name     steps  watermark (UTC)   stage",
        "default    january  12/24  2024-01-01 12:00  Replaying",
        "default    january   5/24  2024-01-01 05:00  Replaying",
    ]


def test_a_source_with_a_long_name_leaves_room_for_bars_and_their_scale() -> None:
    short = view(12)
    first, second = short.status.sources
    sources = (first.model_copy(update={"name": "clicks-" * 8 + "europe"}), second)
    long = View(_backfill(short.status.model_copy(update={"sources": sources})), NOW)
    lines = shown(details(long))
    assert "".join(line[2:22].strip() for line in lines[2:6]) == sources[0].name
    assert any("2024-01-01 00:00   2024-01-02 00:00  UTC" in line for line in lines)


def test_how_each_query_is_run_is_shown_with_its_output() -> None:
    before = view(12)
    outputs = tuple(
        OutputStatus(name=name, table=f"lake.ops.{name}", **found)
        for name, found in {
            "hourly": {"execution": "Batch"},
            "devices": {"execution": "Streaming", "execution_reason": "it keeps state"},
            "old": {},
        }.items()
    )
    after = View(_backfill(before.status.model_copy(update={"outputs": outputs})), NOW)
    lines = [" ".join(line.split()) for line in shown(details(after))]
    assert "output hourly lake.ops.hourly; runs in Batch execution" in lines
    wrapped = "output devices lake.ops.devices; runs in Streaming execution, because it keeps state"
    assert wrapped in " ".join(lines)
    assert "output old lake.ops.old" in lines
    told = json.loads(result_line(after.backfill))["outputs"]
    assert [(each["execution"], each["executionReason"]) for each in told] == [
        ("Batch", ""),
        ("Streaming", "it keeps state"),
        (None, ""),
    ]


def test_all_rows_that_are_missing_are_shown() -> None:
    missing = ("source clicks: it ends at 3", "source views: Kafka partition 0 lacks 5 offsets")

    def status_lines(status: Literal["False", "Unknown"]) -> str:
        state = view(3).status
        kind, reason = ConditionType.INPUT_COMPLETE, Reason.INPUT_INCOMPLETE
        conditions = set_condition(
            state.conditions, kind, status, reason, "\n".join(missing), NOW, 1
        )
        lacking = state.model_copy(update={"conditions": conditions})
        return " ".join(" ".join(shown(details(View(_backfill(lacking), NOW)))).split())

    assert f"InputComplete=False InputIncomplete: {' '.join(missing)}" in status_lines("False")
    assert missing[1] not in status_lines("Unknown")


def test_a_share_is_whole_only_when_all_is_done() -> None:
    assert "23 of 24  95 %" in "\n".join(shown(render(view(23))))


def test_lengths_of_time_are_coarser_the_longer_they_are() -> None:
    assert [seconds(value) for value in (0, 59.4, 60, 3599, 3600, 90_000, 200_000)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "59 min 59 s",
        "1 h 00 min",
        "25 h 00 min",
        "2 d 7 h",
    ]


def test_sizes_and_counts() -> None:
    assert [size(value) for value in (0, 900, 2048, 300 * 1024, 5 * 2**30)] == [
        "0 B",
        "900 B",
        "2.0 KiB",
        "300 KiB",
        "5.0 GiB",
    ]
    assert [count(number, "row") for number in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


def test_a_hand_off_says_where_history_ends_and_how_far_behind_live_traffic_is() -> None:
    handed = HandOffStatus(
        history_end=START + timedelta(hours=24),
        kept_until=START + timedelta(days=7),
        starting_timestamp=START + timedelta(hours=23),
        sources=(
            HandedOverSource(
                name="clicks", topic="site.clicks", partitions=12, offsets={"0": 70, "1": 1_234}
            ),
        ),
        queries=(
            HandedOverQuery(
                name="counts",
                checkpoint_location="s3://live/counts",
                batch=23,
                state_partitions=12,
                live_batch=31,
                records_behind=12,
            ),
        ),
        application="january-live",
        lag_seconds=42,
    )
    before = view(24)
    status = before.status.model_copy(update={"hand_off": handed})
    found = View(before.backfill.model_copy(update={"status": status}), NOW)
    text = " ".join(" ".join(shown(details(found), width=160)).split())
    assert "history ends 2024-01-02 00:00 UTC" in text
    assert "Kafka keeps newer records at least until 2024-01-08 00:00 UTC" in text
    assert "live traffic begins with records from 2024-01-01 23:00 UTC, some read twice" in text
    assert (
        "s3://live/counts, after batch 23, 12 partitions, live at batch 31, 12 records behind"
    ) in text
    assert (
        "clicks continues in topic site.clicks, partitions 0 at 70, 1 at 1,234 and 6 more" in text
    )
    assert "live SparkApplication january-live, 42 s behind" in text


def test_no_run_takes_less_than_no_time_if_the_clock_is_set_back() -> None:
    assert lasted(NOW, NOW - timedelta(hours=1)) == 0
    assert lasted(NOW, NOW + timedelta(hours=1)) == 3600
