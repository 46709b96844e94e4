"""What functions of ``foreachBatch`` may write through one output."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.errors import UnsupportedProgram
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.runtime.sink import SinkSettings
from backfill.runtime.switching.batch_function import BatchFunction, WriteTarget, _Branch


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
    return _Branch(output, table, settings, "send")


def test_a_table_and_a_topic_of_its_name_do_not_share_an_output(branch: _Branch) -> None:
    """Their rows could not be told apart, and the table would have each twice."""
    branch.is_for("raw.alerts", (), records=False)
    branch.is_for("lake.raw.alerts", (), records=False)
    with pytest.raises(UnsupportedProgram, match="both rows and records for Kafka to alerts"):
        branch.is_for("alerts", (), records=True)


def test_one_topic_may_be_written_several_times(branch: _Branch) -> None:
    branch.is_for("prod.alerts", (), records=True)
    branch.is_for("prod.alerts", (), records=True)
    with pytest.raises(UnsupportedProgram, match=r"writes both prod\.alerts and dev\.alerts"):
        branch.is_for("dev.alerts", (), records=True)


def _function(branch: _Branch, *ignored: str) -> BatchFunction:
    function: Any = BatchFunction.__new__(BatchFunction)
    settings = SimpleNamespace(outputs=(branch.output,), ignored_queries=ignored)
    function.run, function.query = SimpleNamespace(settings=settings), "send"
    function._lock, function._branches = threading.Lock(), {branch.output.name: branch}
    return cast(BatchFunction, function)


@pytest.mark.parametrize("table", ["raw.alerts", "lake.raw.alerts", "`raw`.alerts"])
@pytest.mark.parametrize("copy", ["archive.raw.alerts", "other.alerts"])
def test_a_copy_elsewhere_is_not_the_outputs_table(branch: _Branch, table: str, copy: str) -> None:
    """Otherwise the output would have the rows of both."""
    for places in ((table, copy), (copy, table)):
        branch._place = None
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
