"""A short spec is completed by what was found, and only as long as that was found for it."""

from datetime import timedelta
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from backfill.api.backfill import Backfill
from backfill.api.output import PublishMode
from backfill.api.resolved import Resolved, search_digest
from backfill.api.spec import BackfillSpec, PublishAll
from backfill.cli import commands

SOURCE = {"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "ingested"}
TOTALS = {"name": "totals", "table": "lake.ops.totals", "timestampColumn": "began"}
OTHER = {"name": "other", "table": "lake.ops.other", "timestampColumn": "began"}


def short(**fields: Any) -> dict[str, Any]:
    window = {"start": "2024-03-01T00:00:00Z", "end": "2024-03-02T00:00:00Z"}
    return {"applicationRef": {"name": "app"}, "window": window} | fields


def found(spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
    digest = search_digest(BackfillSpec.model_validate(spec))
    return {"foundFor": digest, "sources": [SOURCE], "outputs": [TOTALS, OTHER]} | fields


def completed(spec: dict[str, Any], resolved: dict[str, Any]) -> BackfillSpec:
    given = {"metadata": {"name": "a"}, "spec": spec, "status": {"resolved": resolved}}
    read = Backfill.model_validate(given)
    again = Backfill.model_validate_json(read.model_dump_json(by_alias=True, exclude_none=True))
    assert again.spec == read.spec
    return read.spec


def test_what_was_found_is_in_the_spec_with_the_publish_mode_that_was_decided() -> None:
    spec = short(publish="Replace")
    lengths = {"warmUp": "1h", "drain": "15m", "allowedLateness": "2m"}
    complete = completed(spec, found(spec, ignoredQueries=["alerts"], **lengths))
    assert [each.name for each in complete.sources] == ["clicks"]
    assert [each.publish.mode for each in complete.outputs] == [PublishMode.REPLACE] * 2
    assert complete.ignored_queries == ("alerts",)
    assert complete.window.warm_up == timedelta(hours=1)
    assert complete.window.drain == timedelta(minutes=15)
    assert complete.ordering.allowed_lateness == timedelta(minutes=2)


def test_what_the_spec_says_itself_stays() -> None:
    spec = short(
        outputs=[{"name": "mine", "table": "lake.ops.mine", "publish": {"mode": "Append"}}],
        ignoredQueries=["alerts"],
        staticTables=[{"table": "lake.raw.airports", "asOf": "window"}],
        ordering={"allowedLateness": "1m"},
        publish="Replace",
    )
    spec["window"]["warmUp"] = "2h"
    tables = [{"table": "lake.raw.airports"}, {"table": "lake.raw.planes"}]
    times = {"warmUp": "1h", "allowedLateness": "3m"}
    complete = completed(spec, found(spec, staticTables=tables, ignoredQueries=["more"], **times))
    assert [(each.name, each.publish.mode) for each in complete.outputs] == [
        ("mine", "Append"),
        ("totals", "Replace"),
        ("other", "Replace"),
    ]
    assert complete.ignored_queries == ("alerts", "more")
    assert [(each.table, each.as_of) for each in complete.static_tables] == [
        ("lake.raw.airports", "window"),
        ("lake.raw.planes", "now"),
    ]
    assert complete.window.warm_up == timedelta(hours=2)
    assert complete.ordering.allowed_lateness == timedelta(minutes=1)


def test_what_was_found_for_another_window_is_not_used() -> None:
    earlier = found(short())
    spec = short(window={"start": "2024-03-01T00:00:00Z", "end": "2024-03-03T00:00:00Z"})
    assert completed(spec, earlier).is_short


def test_what_was_planned_stays_although_another_version_has_other_digests() -> None:
    status = {"planId": "0" * 12, "resolved": found(short(), foundFor="of-another-version")}
    read = Backfill.model_validate({"metadata": {"name": "a"}, "spec": short(), "status": status})
    assert [each.name for each in read.spec.outputs] == ["totals", "other"]


def test_dates_are_midnight_in_utc() -> None:
    dates = {"start": "2024-03-01", "end": "2024-03-02"}
    assert (
        completed(short(window=dates), found(short())).window
        == completed(short(), found(short())).window
    )


def test_another_publish_mode_does_not_make_the_search_another_one() -> None:
    assert not completed(short(publish="Append"), found(short())).is_short


def test_a_spec_that_lists_its_sources_is_complete() -> None:
    spec = short(sources=[SOURCE | {"name": "mine"}])
    complete = completed(spec, found(short()))
    assert [each.name for each in complete.sources] == ["mine"]
    assert complete.outputs == ()


@pytest.mark.parametrize(
    "decided",
    [{"publish": {"mode": "Replace"}}, {"publish": {"approval": "Automatic"}}, {"validate": {}}],
)
def test_the_process_that_searches_cannot_decide_what_is_published(
    decided: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError, match="how it is published"):
        Resolved.model_validate(found(short(), outputs=[TOTALS | decided]))


@pytest.mark.parametrize(
    "decided",
    [
        {"filter": "country = 'US'"},
        {"snapshot": {"id": 7}},
        {"snapshot": {"protect": True}},
        {"allowIncomplete": True},
        {"deletes": "Ignore"},
    ],
)
def test_the_process_that_searches_cannot_decide_which_rows_are_read(
    decided: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError, match="which rows are read"):
        Resolved.model_validate(found(short(), sources=[SOURCE | decided]))


def test_the_command_line_offers_the_publish_modes_of_a_spec() -> None:
    assert {each.value for each in commands.PublishMode} == {*get_args(PublishAll)}
