"""Unmodified applications: what runs gives every row once, and what cannot be redirected is refused
with the reason.
"""

from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from applications import (
    ALLOWED_EFFECTS,
    FAILED,
    FAILED_ON_THEIR_ROWS,
    FINAL_ROWS,
    FINISHING,
    FUNCTIONS,
    IN_NEW_YORK,
    IN_TURN,
    LOST,
    PREAMBLE,
    REFUSED,
    REFUSED_BY_SPANS,
    SIDE_QUERIES,
    STOPPED_AT_ONCE,
)
from drivers import ROWS_PER_STEP, START, Lake, assign, run_applications, status
from pyiceberg.catalog import Catalog

from backfill.api.spec import Effect
from backfill.protocol.split_assignment import FAILED_ON_ROWS
from backfill.runtime.settings import RuntimeSettings

STEPS = 2
AS_STREAMS, BY_SPANS = ", as streams", ", by spans"
"""Marks the applications that must be run so; any other chooses by itself."""
ALLOWED = "effects that are allowed"

_EXECUTION = ((AS_STREAMS, "Streaming"), (BY_SPANS, "Batch"))


@pytest.mark.timeout(2700)  # dozens of applications: six minutes if nothing else runs
def test_applications_run_unmodified_or_are_refused_with_the_reason(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS, users=True)
    choosing = FINISHING | SIDE_QUERIES | IN_NEW_YORK
    streamed = {f"{name}{AS_STREAMS}": program for name, program in choosing.items()}
    functions = FUNCTIONS | {ALLOWED: ALLOWED_EFFECTS}
    finishing = choosing | FINAL_ROWS | streamed | functions
    refused = REFUSED | {f"{name}{BY_SPANS}": case for name, case in REFUSED_BY_SPANS.items()}
    in_turn = {f"one query after the other{how}": IN_TURN for how in (AS_STREAMS, BY_SPANS)}
    ends = {
        "UnsupportedProgram": refused,
        "ProgramFailed": STOPPED_AT_ONCE,
        "ApplicationFailed": FAILED,
        FAILED_ON_ROWS: FAILED_ON_THEIR_ROWS,
        "ResultLost": LOST,
    }
    ending = {name: program for cases in ends.values() for name, (program, _) in cases.items()}
    programs = finishing | in_turn | ending
    settings = {
        name: _settings(history, number, name, program)
        for number, (name, program) in enumerate(programs.items())
    }
    outcomes = dict(zip(programs, run_applications(tmp_path, list(settings.values())), strict=True))

    assert {name: outcomes[name][0] for name in finishing} == dict.fromkeys(
        finishing, "Finished"
    ), outcomes
    for name in in_turn:
        assert outcomes[name][0] == "Finished", outcomes[name]
        tables = [history.result(settings[name].backfill, table) for table in ("copies", "counts")]
        assert {row["id"] for row in tables[0]} == set(range(STEPS * ROWS_PER_STEP)), name
        assert {(row["start"], row["n"]) for row in tables[1]} == {(START, 20)}, name
        assert list(map(len, tables)) == [STEPS * ROWS_PER_STEP, 3], name
    for name in finishing:
        rows = history.result(settings[name].backfill, "copies")
        assert {row["id"] for row in rows} == set(range(STEPS * ROWS_PER_STEP)), name
        (query,) = status(settings[name]).queries
        assert len(rows) == query.sources[0].rows == STEPS * ROWS_PER_STEP, name
        assert query.execution == ("Streaming" if name in streamed | functions else "Batch"), name
    for name in [*IN_NEW_YORK, *(f"{name}{AS_STREAMS}" for name in IN_NEW_YORK)]:
        rows = history.result(settings[name].backfill, "copies")
        assert {row["user"] for row in rows} == {1020}, (
            f"{name}: the evening of the day before, as production would say"
        )
        assert {row["at"] for row in rows} == {
            START + row * timedelta(seconds=10) for row in range(STEPS * ROWS_PER_STEP)
        }, name
    assert [
        (name, words, outcomes[name])
        for reason, cases in ends.items()
        for name, (_, words) in cases.items()
        if outcomes[name][:2] != ["Failed", reason] or words not in outcomes[name][2]
    ] == []


def _settings(history: Lake, number: int, name: str, program: str) -> RuntimeSettings:
    main_file = history.directory / f"application_{number}.py"
    main_file.write_text(PREAMBLE + program)
    ignored = ("alerts",) if "left out" in name else ()
    effects = get_args(Effect) if name == ALLOWED else ()
    outputs = ("copies", "counts") if program is IN_TURN else ("copies",)
    settings = history.settings(f"case-{number}", main_file, outputs=outputs).model_copy(
        update={
            "ignored_queries": ignored,
            "allowed_effects": effects,
            "execution": next((how for end, how in _EXECUTION if name.endswith(end)), "Auto"),
        }
    )
    assign(settings, history.header, STEPS)
    return settings
