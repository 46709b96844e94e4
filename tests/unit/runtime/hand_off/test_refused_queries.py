"""Queries whose state is not handed over, before they have read anything."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.planning.workspace import Workspace
from backfill.protocol.hand_off_messages import HandOffSettings
from backfill.runtime.hand_off.hand_over import check_query
from backfill.runtime.queries.run_state import ContinuedQuery

QUERY = ContinuedQuery(
    identity="counts",
    name="counts",
    location="s3a://lake/counts",
    sources=("events",),
    writes_files=False,
    stateful=True,
)


def check(query: ContinuedQuery, **hand_off: Any) -> None:
    settings = SimpleNamespace(
        hand_off=HandOffSettings(**hand_off),
        uid="mine",
        plan_id="0123",
        checkpoint_workspace=Workspace("/unused"),
    )
    run: Any = SimpleNamespace(settings=settings, destinations=[])
    spark: Any = None
    check_query(run, spark, query)


def test_a_location_that_the_live_application_may_not_find_is_refused() -> None:
    with pytest.raises(UnsupportedProgram, match=r"counts, live/counts, is relative, .* absolute"):
        check(replace(QUERY, location="live/counts"))


def test_a_query_that_ends_is_not_deployed() -> None:
    ends = replace(QUERY, ends=True)
    with pytest.raises(
        UnsupportedProgram, match=r"start: is Deploy, but the query counts stops after"
    ):
        check(ends, deployed=True)
    for query, deployed in ((ends, False), (QUERY, True)):
        with pytest.raises(AttributeError, match="conf"):  # what is checked next needs Spark
            check(query, deployed=deployed)
