"""What the runtime calls in Spark's JVM exists in the version that is installed, which the jars say
without a JVM.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import LongType

from backfill.runtime import spark_versions
from backfill.runtime.catalyst import Catalyst, pruned, with_used_columns, zone_id
from cases import cases
from class_files import arguments_of
from repository import ROOT

_CLASS = re.compile(r"(?:org|scala)\.(?:[a-z_0-9]+\.)+[A-Z]\w*\$?")


class FakeJvm:
    """Takes the place of the JVM and of everything in it, and records what is called of a class."""

    def __init__(self, path: str = "", calls: list[tuple[str, int]] | None = None):
        self._path = path
        self.calls = [] if calls is None else calls

    def __getattr__(self, name: str) -> "FakeJvm":
        return FakeJvm(f"{self._path}.{name}".removeprefix("."), self.calls)

    def __call__(self, *arguments: Any) -> "FakeJvm":
        self.calls.append((self._path, len(arguments)))
        return FakeJvm("", self.calls)

    def fastEquals(self, other: Any) -> bool:
        return True

    def unknown(self) -> list[str]:
        """The calls that no class of the installed Spark can be given."""
        return [f"{path} with {count}" for path, count in self.calls if not _exists(path, count)]


class FakeSession:
    """A session in that JVM."""

    def __init__(self, jvm: FakeJvm):
        self._jvm = self._jsparkSession = jvm
        self.sparkContext = jvm


def _exists(path: str, count: int) -> bool:
    found = _CLASS.match(path)
    if found is None:
        return True  # an object of which the class is not known
    rest = path[found.end() :].removeprefix(".")
    if "." in rest:
        return True
    names = [found[0]] if found[0].endswith("$") else [found[0], f"{found[0]}$"]
    method = rest or "<init>"
    return any(count in (arguments_of(name, method) or ()) for name in names)


def node(jvm: FakeJvm) -> Any:
    return FakeJvm("", jvm.calls)


Use = Callable[[FakeJvm, Any, Any], object]


@cases(
    "use",
    {
        "common table expressions": lambda jvm, _s, _x: spark_versions.inline_cte(jvm),
        "rows that are there": lambda jvm, s, x: spark_versions.logical_rdd(jvm, s, x, x, x),
        "DataFrames of plans": lambda jvm, _s, x: spark_versions.dataset_class(jvm).ofRows(x, x),
        "sessions": lambda jvm, _s, _x: spark_versions.session_class(jvm).getActiveSession(),
        "columns": lambda jvm, _s, x: spark_versions.column_of_expression(jvm, x),
        "named parameters": lambda jvm, _s, x: spark_versions.with_parameters(jvm, x, {"a": x}),
        "the offset log": lambda jvm, s, _x: spark_versions.open_log(
            spark_versions.checkpoint_logs(jvm).OffsetSeqLog, s, ""
        ),
        "the commit log": lambda jvm, s, _x: spark_versions.open_log(
            spark_versions.checkpoint_logs(jvm).CommitLog, s, ""
        ),
        "rules of the optimizer": lambda _j, s, x: pruned(x, s),
        "pruning of columns": lambda _j, s, x: with_used_columns(x, s),
        "time zones": lambda _j, s, _x: zone_id(s, "UTC"),
    },
)
def test_what_differs_between_versions_exists_in_this_one(use: Use) -> None:
    jvm = FakeJvm()
    use(jvm, FakeSession(jvm), node(jvm))
    assert jvm.calls
    assert jvm.unknown() == []


def test_the_nodes_and_expressions_that_are_made_exist() -> None:
    jvm = FakeJvm()
    some = node(jvm)
    catalyst = Catalyst(FakeSession(jvm))  # type: ignore[arg-type]
    catalyst.is_correlated(some)
    catalyst.simplified(some)
    catalyst.equal_or_both_null(some, some)
    catalyst.project([some], some)
    catalyst.renumbered(some, some)
    catalyst.filter(some, some)
    catalyst.alias(some, "name")
    catalyst.cast(some, some)
    catalyst.same_moment(some)
    catalyst.or_null(some, some)
    catalyst.field(some, 0)
    catalyst.struct([("name", some)])
    catalyst.valid_string(some)
    catalyst.is_orderable(some)
    catalyst.variable("timestamp")
    calls = [path for path, _ in jvm.calls if path.startswith("org.apache.spark")]
    assert len(calls) > 20
    assert jvm.unknown() == []


@pytest.mark.parametrize("name", [spark_versions.FILE_MANAGER])
def test_classes_that_are_named_in_properties_exist(name: str) -> None:
    assert arguments_of(name, "<init>"), name


def test_a_member_that_is_gone_is_found() -> None:
    jvm = FakeJvm()
    jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(1, 2, 3, 4, 5, 6)
    jvm.org.apache.spark.sql.catalyst.optimizer.NoSuchRule.apply(1)
    assert len(jvm.unknown()) == 2


def test_nothing_else_compares_versions_of_spark() -> None:
    runtime = ROOT / "operator" / "backfill"
    compares = re.compile(
        r"pyspark\.__version__|\bSPARK\s*([<>]|[=!]=)|spark\.version\s*([<>]|[=!]=)"
    )
    files = {
        str(path.relative_to(runtime))
        for path in runtime.rglob("*.py")
        if compares.search(path.read_text())
    }
    assert files == {"runtime/spark_versions.py"}


def test_a_type_that_is_missing_has_a_stand_in() -> None:
    assert not isinstance(LongType(), spark_versions.VariantType)
