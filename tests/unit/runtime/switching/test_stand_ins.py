"""What stands for Spark's writers in the JVM has every method that PySpark calls on them, as PySpark's
own source says.
"""

import ast
import inspect
from collections.abc import Iterator

import pytest
from pyspark.sql.merge import MergeIntoWriter
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from backfill.runtime.switching.batch_writers import BatchMerge, _Write, _WriteTo
from backfill.runtime.switching.main_program_writes import _DESCRIBING, CheckedMerge

STAND_INS = [
    (DataFrameWriter, _Write, {"mode", "option", "save", "jdbc", "clusterBy"}),
    (DataFrameWriterV2, _WriteTo, {"using", "options", "append", "overwritePartitions"}),
]


def calls(code: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Where PySpark calls a writer in the JVM, with the name of the method."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.value
            if isinstance(on, ast.Attribute) and on.attr in {"_jwrite", "_jwriter"}:
                yield node.func.attr, node


def source(writer: type) -> ast.Module:
    return ast.parse(inspect.getsource(writer))


@pytest.mark.parametrize(("writer", "stand_in", "some"), STAND_INS)
def test_every_method_is_there_and_takes_what_it_is_given(
    writer: type, stand_in: type, some: set[str]
) -> None:
    called = list(calls(source(writer)))
    assert {name for name, _ in called} >= some, "PySpark calls its writers in another way"
    assert {name for name, _ in called if not hasattr(stand_in, name)} == set()
    for name, call in called:
        assert not call.keywords, name
        inspect.signature(getattr(stand_in, name)).bind(None, *call.args)


def test_only_the_end_of_a_merge_does_something() -> None:
    statements = [node for node in ast.walk(source(MergeIntoWriter)) if isinstance(node, ast.Expr)]
    ends = {name for node in statements for name, call in calls(node) if call is node.value}
    assert ends == {"merge"}
    assert "merge" in vars(BatchMerge)
    assert "merge" in vars(CheckedMerge)


def test_what_only_describes_a_write_is_known() -> None:
    describing = {
        name
        for writer in (DataFrameWriter, DataFrameWriterV2)
        for method in ast.walk(source(writer))
        if isinstance(method, ast.FunctionDef) and _gives_itself(method)
        for name, _ in calls(method)
    }
    assert describing == _DESCRIBING


def _gives_itself(method: ast.FunctionDef) -> bool:
    last = method.body[-1]
    return (
        isinstance(last, ast.Return)
        and isinstance(last.value, ast.Name)
        and last.value.id == "self"
    )
