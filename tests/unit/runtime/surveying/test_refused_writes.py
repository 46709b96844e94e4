"""What a program may not write while it is surveyed. Needs no Spark: nothing is written."""

from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.surveying.queries import SurveyedProgram
from backfill.runtime.switching.main_program_writes import CheckedWriterV2


def test_no_frame_is_written_even_if_the_program_catches_the_error() -> None:
    settings: Any = SimpleNamespace(allowed_effects=(), ignored_queries=())
    run = ProgramRun(settings)
    frame: Any = SimpleNamespace(
        sparkSession=None, _jdf=SimpleNamespace(writeTo=lambda table: SimpleNamespace())
    )
    writer = CheckedWriterV2(frame, "lake.raw.clicks", SurveyedProgram(run))
    with pytest.raises(
        UnsupportedProgram,
        match=r"the main program writes to lake\.raw\.clicks \(writeTo\.append\) at startup",
    ):
        writer.append()
    assert run.outcome is not None
    assert run.outcome.reason == "UnsupportedProgram"
