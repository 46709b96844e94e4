"""Messages say what the program calls, and in which line."""

import importlib
import runpy
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.runtime.switching import program_lines, side_effects
from backfill.runtime.switching.batch_function import within


def test_a_message_has_the_line_of_the_program_and_the_function_of_a_library_that_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    program = tmp_path / "jobs" / "app.py"
    program.write_text("directly()\n\nthreading.Thread(target=by_library).run()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path[1:]])
    found: list[str] = []
    tests = f"{Path(__file__).parent}/"  # is not the program
    known = (*program_lines._LIBRARIES, tests)
    monkeypatch.setattr(program_lines, "_LIBRARIES", known)

    def look() -> None:
        found.extend((program_lines.program_line(), program_lines.library_call()))

    runpy.run_path(str(program), {"directly": look, "by_library": look, "threading": threading})
    directly, through_a_library = found[:2], found[2:]
    assert directly[0] == " (jobs/app.py, line 1)"
    assert through_a_library == [" (jobs/app.py, line 3)", " by threading (Thread.run)"]


class RefusedError(Exception):
    """What is refused, in words."""


def in_the_jvm(*roots: str) -> Any:
    fake: Any = SimpleNamespace(
        io=SimpleNamespace(tables=SimpleNamespace(forPath=lambda path: f"table {path}")),
        jvm=SimpleNamespace(io=SimpleNamespace(connect=lambda: "connected")),
    )
    return side_effects._JvmPart(roots, lambda: fake)


def test_what_is_called_in_the_jvm_of_spark_is_named_and_not_the_way_to_it() -> None:
    batch: Any = SimpleNamespace(
        allows=lambda effect: False,
        refuse_effect=lambda effect, what: RefusedError(f"{effect}: {what}"),
    )
    with within(batch):
        tables = in_the_jvm("_jvm").io.tables
        for call, words in {
            lambda: tables.forPath("/data"): "calls io.tables.forPath in",
            in_the_jvm("_gateway").jvm.io.connect: "calls io.connect in",
            in_the_jvm("_jdf").io: "calls _jdf.io in",
            lambda: in_the_jvm("_jsparkSession")._get_object_id(): "uses _jsparkSession in",
        }.items():
            with pytest.raises(RefusedError, match=f"Jvm: {words} Spark's JVM"):
                call()
    assert tables.forPath("/data") == "table /data", "not in a batch any more"


@pytest.mark.parametrize("imported", ["before", "in the function"])
def test_a_client_of_a_database_that_is_not_written_in_python_does_not_reach_production(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``psycopg2`` connects in C, which no hook of Python sees."""
    (tmp_path / "psycopg2.py").write_text(
        "_connect = lambda dsn: 'connected'\ndef connect(dsn):\n    return _connect(dsn)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "psycopg2", raising=False)
    refusing = True

    def check() -> None:
        if refusing:
            raise RefusedError

    try:
        if imported == "before":
            known = importlib.import_module("psycopg2").connect
            side_effects.check_clients(check)
        else:
            side_effects.check_clients(check)
            known = importlib.import_module("psycopg2").connect
        with pytest.raises(RefusedError):
            known("host=production")
        refusing = False
        assert known("host=production") == "connected"
    finally:
        sys.modules.pop("psycopg2", None)
