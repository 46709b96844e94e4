"""What a program writes with DataFrames outside of functions of ``foreachBatch``: nothing reaches
Spark unless the Backfill allows it.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.switching.main_program_writes import (
    CheckedMerge,
    CheckedWriter,
    CheckedWriterV2,
    MainProgram,
)


class InTheJvm:
    """A writer that keeps what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> "InTheJvm":
            self.calls.append((name, *args))
            return self

        return call


class Program:
    def __init__(self, effects: tuple[str, ...] = (), ignored: tuple[str, ...] = ()):
        settings: Any = SimpleNamespace(
            allowed_effects=effects,
            ignored_queries=ignored,
            sources=(),
            outputs=(SimpleNamespace(table="lake.marts.results"),),
        )
        self.run = ProgramRun(settings)
        self.program = MainProgram(self.run)
        self.jvm = InTheJvm()
        java = SimpleNamespace(write=lambda: self.jvm, writeTo=lambda table: self.jvm)
        self.frame: Any = SimpleNamespace(_jdf=java, sparkSession=None)

    @property
    def write(self) -> CheckedWriter:
        return CheckedWriter(self.frame, self.program)

    def write_to(self, table: str) -> CheckedWriterV2:
        return CheckedWriterV2(self.frame, table, self.program)

    def merge(self, table: str) -> None:
        merging: Any = object.__new__(CheckedMerge)
        merging._jwriter, merging._table, merging._program = self.jvm, table, self.program
        merging.merge()


WRITES: dict[str, tuple[Callable[[Program], Any], str]] = {
    "a table": (
        lambda it: it.write.mode("overwrite").saveAsTable("lake.dim"),
        "writes to lake.dim (write.saveAsTable)",
    ),
    "a table, if it is missing": (
        lambda it: it.write.mode("ignore").saveAsTable("lake.dim"),
        "writes to lake.dim (write.saveAsTable)",
    ),
    "a table by position": (
        lambda it: it.write.insertInto("lake.dim"),
        "writes to lake.dim (write.insertInto)",
    ),
    "a path": (
        lambda it: it.write.save("s3://x/dim", format="delta", mode="append"),
        "writes to s3://x/dim (write.format(delta).save)",
    ),
    "a path of files": (
        lambda it: it.write.mode("overwrite").option("compression", "zstd").parquet("/data/dim"),
        "writes to /data/dim (write.parquet)",
    ),
    "a place in an option": (
        lambda it: it.write.format("iceberg").options(path="lake.dim", password="x").save(),
        "writes to lake.dim (write.format(iceberg).save)",
    ),
    "a topic": (
        lambda it: it.write.format("KAFKA").option("topic", "dim").save(),
        "writes to dim (write.format(kafka).save)",
    ),
    "a database": (
        lambda it: it.write._jwrite.jdbc("jdbc:x?password=secret", "public.dim", None),
        "writes to public.dim (write.jdbc)",
    ),
    "another service": (
        lambda it: it.write.format("mongodb").option("collection", "dim").save(),
        "writes with write.format(mongodb).save outside",
    ),
    "a method of a later version": (
        lambda it: it.write._jwrite.lance("/data/dim"),
        "writes to /data/dim (write.lance)",
    ),
    "a table, as new rows": (
        lambda it: it.write_to("lake.dim").using("iceberg").options(**{"a": "b"}).append(),
        "writes to lake.dim (writeTo.append)",
    ),
    "a table, made anew": (
        lambda it: it.write_to("lake.dim").tableProperty("a", "b").createOrReplace(),
        "writes to lake.dim (writeTo.createOrReplace)",
    ),
    "a table, merged": (lambda it: it.merge("lake.dim"), "writes to lake.dim (mergeInto)"),
}
ENDS = {"saveAsTable", "insertInto", "save", "parquet", "jdbc", "lance", "append"}
ENDS |= {"createOrReplace", "merge"}


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_refused_even_if_the_program_catches_the_error(name: str) -> None:
    it, (write, words) = Program(), WRITES[name]
    with pytest.raises(UnsupportedProgram) as refused:
        write(it)
    message = str(refused.value)
    assert f"the application {words}" in message
    assert "add Writes to spec.allowedEffects" in message
    assert "secret" not in message
    assert not ENDS & {call[0] for call in it.jvm.calls}
    assert it.run.outcome is not None
    assert it.run.outcome.reason == "UnsupportedProgram"


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_are_allowed_happen(name: str) -> None:
    it, (write, _) = Program(effects=("Writes",)), WRITES[name]
    write(it)
    assert [call[0] in ENDS for call in it.jvm.calls].count(True) == 1
    assert it.run.outcome is None


def test_they_happen_as_the_program_describes_them() -> None:
    it = Program(effects=("Writes",))
    it.write.format("csv").mode("append").option("header", True).save("/data/dim")
    assert it.jvm.calls == [
        ("format", "csv"),
        ("mode", "append"),
        ("option", "header", "true"),
        ("save", "/data/dim"),
    ]


@pytest.mark.parametrize("ignored", ["lake.dim", "dim"])
def test_writes_to_what_is_ignored_are_left_out(ignored: str) -> None:
    it = Program(ignored=(ignored,))
    it.write.mode("overwrite").saveAsTable("lake.dim")
    it.write_to("lake.dim").createOrReplace()
    it.merge("lake.dim")
    assert it.jvm.calls == [("mode", "overwrite")]
    with pytest.raises(UnsupportedProgram):
        it.write.saveAsTable("lake.other")


def test_a_table_that_an_output_has_is_not_missing() -> None:
    it = Program()
    it.write.mode("ignore").saveAsTable("marts.results")
    assert it.jvm.calls == [("mode", "ignore")]
    assert it.run.outcome is None


@pytest.mark.parametrize("form", ["noop", "NoOp", "console"])
def test_formats_that_keep_nothing_are_written(form: str) -> None:
    it = Program()
    it.write.format(form).mode("overwrite").save()
    assert it.jvm.calls[-1] == ("save",)
    assert it.run.outcome is None


@pytest.mark.parametrize("effect", ["Statements", "Jvm"])
def test_other_effects_do_not_allow_writes(effect: str) -> None:
    with pytest.raises(UnsupportedProgram):
        Program(effects=(effect,)).write.saveAsTable("lake.dim")
