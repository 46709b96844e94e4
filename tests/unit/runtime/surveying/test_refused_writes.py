"""What a program may not write while it is surveyed. Needs no Spark: nothing is written."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from backfill.api.errors import UnsupportedProgram
from backfill.runtime.queries.run import ProgramRun
from backfill.runtime.surveying.queries import refuse_writes


@pytest.mark.parametrize("call", ["write", "writeTo", "mergeInto"])
def test_no_frame_is_written_even_if_the_program_catches_the_error(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("write", "writeTo", "mergeInto"):
        monkeypatch.setattr(ClassicDataFrame, name, getattr(ClassicDataFrame, name))
    settings: Any = SimpleNamespace()
    run = ProgramRun(settings)
    refuse_writes(run)
    frame = object.__new__(ClassicDataFrame)
    with pytest.raises(UnsupportedProgram, match=rf"calls DataFrame\.{call} while it starts"):
        getattr(frame, call)("lake.raw.clicks", None)
    assert run.outcome is not None
    assert run.outcome.reason == "UnsupportedProgram"
