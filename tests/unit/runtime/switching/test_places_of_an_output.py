"""What functions of ``foreachBatch`` may write through one output."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.errors import UnsupportedProgram
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.runtime.queries.run_state import OutputWrites
from backfill.runtime.sink import SinkSettings
from backfill.runtime.switching.batch_function import BatchFunction, WriteTarget, _Branch

ROWS, RECORDS = WriteTarget("alerts", "write"), WriteTarget("alerts", "write", records=True)


@pytest.fixture
def branch(lake: Catalog) -> _Branch:
    table = lake.create_table(
        "raw.alerts", pa.schema([("key", pa.binary()), ("value", pa.binary())])
    )
    output = Output(name="alerts", table="lake.raw.alerts")
    settings = SinkSettings(
        backfill="one",
        namespace="team",
        uid="1",
        plan_id="2",
        query="send",
        output=output,
        window=Window.model_validate(
            {"start": "2021-07-11T00:00:00Z", "end": "2021-07-12T00:00:00Z"}
        ),
        schema_id=table.schema().schema_id,
        spec_id=table.spec().spec_id,
    )
    return _Branch(output, table, settings, "send", OutputWrites())


def test_a_table_and_a_topic_of_its_name_do_not_share_an_output(branch: _Branch) -> None:
    """Their rows could not be told apart, and the table would have each twice."""
    branch.is_for("raw.alerts", ROWS)
    branch.is_for("lake.raw.alerts", ROWS)
    with pytest.raises(UnsupportedProgram, match="both rows and records for Kafka to alerts"):
        branch.is_for("alerts", RECORDS)


def test_one_topic_may_be_written_several_times(branch: _Branch) -> None:
    branch.is_for("prod.alerts", RECORDS)
    branch.is_for("prod.alerts", RECORDS)
    with pytest.raises(UnsupportedProgram, match=r"writes both prod\.alerts and dev\.alerts"):
        branch.is_for("dev.alerts", RECORDS)


@pytest.mark.parametrize("other", [{"keys": ("key",)}, {"replaces": True}])
def test_rows_that_replace_others_and_further_rows_do_not_share_an_output(
    branch: _Branch, other: dict[str, Any]
) -> None:
    branch.output = branch.output.model_copy(update={"keys": ("key",)})
    branch.is_for("alerts", ROWS)
    with pytest.raises(UnsupportedProgram, match="writes alerts in more than one way"):
        branch.is_for("alerts", replace(ROWS, **other))


@pytest.mark.parametrize(
    "writing", [ROWS, replace(ROWS, keys=("key",)), replace(ROWS, replaces=True)]
)
def test_functions_of_two_queries_share_an_output_only_if_both_just_add_rows(
    branch: _Branch, writing: WriteTarget
) -> None:
    branch.output = branch.output.model_copy(update={"keys": ("key",)})
    function = _function(branch)
    assert function.branch(writing) is branch
    run: Any = function.run
    run.writes = lambda query, output: ("another",)
    if writing is ROWS:
        assert function.branch(writing) is branch
    else:
        with pytest.raises(UnsupportedProgram, match=r"alerts.*another and send, and send merges"):
            function.branch(writing)


def test_a_table_is_overwritten_only_where_each_batch_has_the_whole_result(branch: _Branch) -> None:
    function = _function(branch)
    assert function.branch(replace(ROWS, replaces=True)) is branch
    function._complete = False
    with pytest.raises(UnsupportedProgram, match=r'overwrites alerts .*outputMode\("complete"\)'):
        function.branch(replace(ROWS, replaces=True))
    assert _function(branch, "audit").branch(replace(ROWS, place="audit", replaces=True)) is None


def _function(branch: _Branch, *ignored: str) -> BatchFunction:
    function: Any = BatchFunction.__new__(BatchFunction)
    settings = SimpleNamespace(outputs=(branch.output,), ignored_queries=ignored)
    function.run = SimpleNamespace(
        settings=settings,
        writes=lambda query, output: (),
        output_writes={branch.output.name: branch._written},
    )
    function.query = function.called = "send"
    function._complete = True
    function._lock, function._branches = threading.Lock(), {branch.output.name: branch}
    return cast(BatchFunction, function)


@pytest.mark.parametrize("table", ["raw.alerts", "lake.raw.alerts", "`raw`.alerts"])
@pytest.mark.parametrize("copy", ["archive.raw.alerts", "other.alerts"])
def test_a_copy_elsewhere_is_not_the_outputs_table(branch: _Branch, table: str, copy: str) -> None:
    """Otherwise the output would have the rows of both."""
    for places in ((table, copy), (copy, table)):
        branch._written.place = None
        function = _function(branch)
        assert function.branch(WriteTarget(places[0], "write")) is branch
        with pytest.raises(UnsupportedProgram, match="matches the name of both"):
            function.branch(WriteTarget(places[1], "write"))


def test_a_table_that_may_be_that_of_several_outputs_is_not_written_for_real(
    branch: _Branch,
) -> None:
    """Where statements are allowed, those of tables that are no output happen."""
    function = _function(branch, "alerts")
    settings: Any = function.run.settings
    settings.outputs = (branch.output, Output(name="copy", table="archive.raw.alerts"))
    assert function.takes("raw.alerts")
    with pytest.raises(UnsupportedProgram, match=r"may be lake\.raw\.alerts or archive"):
        function.branch(WriteTarget("raw.alerts", "write"))


def test_an_ignored_query_with_the_name_of_an_outputs_table_does_not_ignore_its_rows(
    branch: _Branch,
) -> None:
    branch.output = Output(name="result", table="lake.raw.alerts")
    function = _function(branch, "alerts")
    assert function.branch(WriteTarget("lake.raw.alerts", "write")) is branch
    assert function.branch(WriteTarget("staging.alerts", "write")) is None
