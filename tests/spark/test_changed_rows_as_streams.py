"""Queries in output modes update and complete, run as streams: what is left of the rows that they
change is what production's table would have in the end, whatever is killed in between.
"""

import signal
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from applications import PREAMBLE
from drivers import (
    DEADLINE_SECONDS,
    ROWS_PER_STEP,
    START,
    Lake,
    assign,
    driver,
    run_applications,
    status,
)
from pyiceberg.catalog import Catalog

from backfill.outputs.result_names import Result
from backfill.outputs.staging import Staged, read_staged
from backfill.runtime.settings import RuntimeSettings

STEPS = 3
TABLES = {
    "copies": ("id", "user", "at"),
    "counts": ("start", "user", "n"),
    "records": ("key", "value", "start"),
}
WINDOWS = """
events = kafka(SparkSession.builder.getOrCreate()).withWatermark("at", "5 minutes")
counts = events.groupBy(F.window("at", "15 minutes"), "user").count()
counts = counts.select(F.col("window.start").alias("start"), "user", F.col("count").alias("n"))
"""
TOTALS = """
events = kafka(SparkSession.builder.getOrCreate()).where("user < 2")
counts = events.groupBy("user").agg(F.max("at").alias("start"), F.count("*").alias("n"))
"""
LAST = START + timedelta(seconds=10 * STEPS * ROWS_PER_STEP - 10)


def started(mode: str) -> str:
    return f'counts.writeStream.queryName("counts").outputMode("{mode}").start()'


def windows() -> Counter[tuple[Any, ...]]:
    """Rows of each window of 15 minutes and user: the last window lacks what comes later."""
    times = (START + timedelta(seconds=10 * row) for row in range(STEPS * ROWS_PER_STEP))
    users = (row % ROWS_PER_STEP % 3 for row in range(STEPS * ROWS_PER_STEP))
    found = Counter(
        (at - timedelta(seconds=(at - START).total_seconds() % 900), user)
        for at, user in zip(times, users, strict=True)
    )
    return Counter({(start, user, n): 1 for (start, user), n in found.items()})


def changes() -> Counter[tuple[Any, ...]]:
    """A record for each change of a window and user that a micro-batch makes."""
    found: Counter[tuple[Any, ...]] = Counter()
    sent: Counter[tuple[Any, ...]] = Counter()
    for step in range(STEPS):
        changed = set()
        for row in range(step * ROWS_PER_STEP, (step + 1) * ROWS_PER_STEP):
            at, user = START + timedelta(seconds=10 * row), row % ROWS_PER_STEP % 3
            key = (at - timedelta(seconds=(at - START).total_seconds() % 900), user)
            found[key] += 1
            changed.add(key)
        sent.update((str(user), str(found[start, user]), start) for start, user in changed)
    return sent


def totals() -> Counter[tuple[Any, ...]]:
    """Rows of each user, and when the last one was."""
    return Counter(
        {
            (LAST - timedelta(seconds=10 * back), user, STEPS * ROWS_PER_STEP // 3): 1
            for user, back in ((1, 1), (0, 2))
        }
    )


def before(end: datetime, rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter({row: times for row, times in rows.items() if row[0] < end})


CASES: dict[str, tuple[str, dict[str, Any], Counter[tuple[Any, ...]], int | None]] = {
    "windows, as they change": (
        WINDOWS + started("update"),
        {"keys": ["start", "user"]},
        windows(),
        3,
    ),
    "windows, all with every batch": (WINDOWS + started("complete"), {}, windows(), 3),
    "totals, as they change": (TOTALS + started("update"), {"keys": ["user"]}, totals(), 0),
    "totals, all with every batch": (TOTALS + started("complete"), {}, totals(), 0),
    "totals, in a table without times": (
        TOTALS + started("update"),
        {"keys": ["user"], "timestampColumn": None},
        totals(),
        0,
    ),
}
"""Programs, their output, the rows of the result, and how many of them were open at the end."""

REFUSED = {
    "windows that nothing identifies": (
        WINDOWS + started("update"),
        {},
        "list the columns that identify a row in keys of the output counts",
    ),
    "keys that windows share": (
        WINDOWS + started("update"),
        {"keys": ["start"]},
        "spec.outputs[0].keys: micro-batches have several rows with the same start, such as {",
    ),
}
BY_SPANS = {
    "keys that windows of batch jobs share": (
        WINDOWS + started("update"),
        {"keys": ["n"]},
        "spec.outputs[0].keys: batch jobs have written several rows with the same n, such as {",
    )
}
RECORDS = f"""{WINDOWS}
records = counts.selectExpr("cast(user as string) as key", "cast(n as string) as value", "start")
records = records.writeStream.format("kafka").option("topic", "records").outputMode("update").start()
"""
PLAIN = 'kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").outputMode("update").start()'


def test_the_newest_rows_or_the_last_batch_are_the_result(tmp_path: Path, lake: Catalog) -> None:
    history = Lake(tmp_path, lake, STEPS)
    text, time = pa.string(), pa.timestamp("us", tz="UTC")
    schema = pa.schema([("key", text), ("value", text), ("start", time)])
    lake.create_table("default.records", schema)
    refused = REFUSED | BY_SPANS
    others = {
        "rows that never change": (PLAIN, {}, ""),
        "records for Kafka": (RECORDS, {"timestampColumn": "start"}, ""),
    }
    programs = CASES | refused | others
    settings = {
        name: _settings(history, number, program, given)
        for number, (name, (program, given, *_)) in enumerate(programs.items())
    }
    for name in BY_SPANS:
        settings[name] = settings[name].model_copy(update={"execution": "Auto"})
    # the window ends before the last rows, which totals are known by
    short = {"start": START.isoformat(), "end": (LAST - timedelta(seconds=15)).isoformat()}
    settings["totals of which some are later"] = _settings(
        history, len(settings), TOTALS + started("update"), {"keys": ["user"]}
    ).model_copy(update={"window": history.spec.window.model_validate(short)})
    outcomes = dict(zip(settings, run_applications(tmp_path, list(settings.values())), strict=True))

    for name, (_, _, rows, open_at_end) in CASES.items():
        assert outcomes[name][0] == "Finished", (name, outcomes[name])
        assert _rows(history, settings[name], "counts") == rows, name
        (query,) = status(settings[name]).queries
        assert (query.execution, query.open_at_end) == ("Streaming", open_at_end), name
        assert query.output_mode == (
            "update" if "as they change" in name or "without times" in name else "complete"
        )
        assert query.sources[0].rows == STEPS * ROWS_PER_STEP, name
        staged = _staged(lake, history, settings[name])
        assert (staged.rows, staged.changes) == (rows.total(), False), name
    for name, (_, _, words) in refused.items():
        assert outcomes[name][:2] == ["Failed", "UnsupportedProgram"], (name, outcomes[name])
        assert words in outcomes[name][2], (name, outcomes[name])
    copies = _rows(history, settings["rows that never change"], "copies")
    assert len(copies) == copies.total() == STEPS * ROWS_PER_STEP
    assert outcomes["records for Kafka"][0] == "Finished", outcomes["records for Kafka"]
    assert _rows(history, settings["records for Kafka"], "records") == changes()
    later = settings["totals of which some are later"]
    assert _rows(history, later, "counts") == before(LAST - timedelta(seconds=15), totals()), (
        "no older row of a user whose newest is after the window"
    )
    assert _staged(lake, history, later).rows_outside_window == 1


DYING = """
import os, signal
from pathlib import Path
from backfill.outputs import staging
from backfill.runtime import sink
from backfill.runtime.changes import newest_rows

def dying(function, name, when):
    def call(*args, **options):
        mark = Path(__file__).with_name(name)
        if when == "before" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **options)
        if when == "after" and args[-1].batch_id == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

def dying_after(function, name):
    def call(*args, **options):
        result = function(*args, **options)
        mark = Path(__file__).with_name(name)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

sink.stage_batch = dying(sink.stage_batch, "after-staging", "after")
newest_rows.keep_newest = dying_after(dying(newest_rows.keep_newest, "before-keeping", "before"), "after-keeping")
"""


def test_rows_are_there_once_whatever_is_killed(tmp_path: Path, lake: Catalog) -> None:
    history = Lake(tmp_path, lake, STEPS)
    program = DYING + WINDOWS + started("update")
    given = {"keys": ["start", "user"]}
    marks = ("after-staging", "before-keeping", "after-keeping")
    for attempt, mark in enumerate(marks, 1):
        settings = _settings(history, 0, program, given, attempt)
        with driver(settings) as process:
            assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL, mark
        assert (tmp_path / mark).exists(), mark
        staged = _staged(lake, history, settings)
        assert staged.changes == (mark != "after-keeping"), mark
    assert _rows(history, settings, "counts") == windows()
    last = _settings(history, 0, program, given, len(marks) + 1)
    with driver(last) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    assert status(last).phase == "Finished"
    assert _rows(history, last, "counts") == windows()


def _settings(
    history: Lake, number: int, program: str, given: dict[str, Any], attempt: int = 1
) -> RuntimeSettings:
    main_file = history.directory / f"application_{number}.py"
    main_file.write_text(PREAMBLE + program)
    name = next(table for table in ("copies", "records", "counts") if table in program)
    settings = history.settings(f"case-{number}", main_file, attempt, outputs=(name,))
    (output,) = settings.outputs
    changed = type(output).model_validate({**output.to_manifest(), **given})
    settings = settings.model_copy(update={"outputs": (changed,)})
    assign(settings, history.header, STEPS)
    return settings


def _rows(history: Lake, settings: RuntimeSettings, table: str) -> Counter[tuple[Any, ...]]:
    rows: Iterable[dict[str, Any]] = history.result(settings.backfill, table)
    return Counter(tuple(row[column] for column in TABLES[table]) for row in rows)


def _staged(lake: Catalog, history: Lake, settings: RuntimeSettings) -> Staged:
    result = Result(
        "default", settings.backfill, "first", history.header.plan_id, settings.outputs[0].name
    )
    staged = read_staged(lake.load_table("default.counts").metadata, result)
    assert staged is not None
    return staged
