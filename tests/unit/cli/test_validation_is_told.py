"""A run whose result does not match production waits, says what differs, and obeys a person."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from local_runs import EVENTS, START, LocalRuns

OUTPUT = {"name": "counts", "table": "lake.raw.counts", "timestampColumn": "at"}
TOLD = (
    "counts: 90 % of 10 rows match production (1 only in production), less than minMatch 99.9 %;"
    " report: /reports/counts.html"
)


def described(runs: LocalRuns, lake: Catalog, **validate: Any) -> None:
    lake.create_table("raw.counts", schema=EVENTS)
    wanted = {"keys": ["id"], **validate}
    runs.write(outputs=[OUTPUT | {"validate": wanted, "publish": {"mode": "Replace"}}])


def test_what_does_not_match_is_published_only_when_a_person_says_so(
    runs: LocalRuns, lake: Catalog
) -> None:
    described(runs, lake)
    first = runs.run("--output", "json", matching=9, missing=1, crash_comparing=1)
    assert first.status == 3, first.err
    assert [each.outcome for each in runs.backfill.status.attempts] == ["Failed", "Succeeded"]
    (output,) = first.document["outputs"]
    assert (output["match"], output["snapshotId"]) == ("90", None)
    assert TOLD in first.err
    told = runs.command("report", "january")
    assert (told.status, told.out.splitlines()) == (0, [TOLD, "one cause", "another [b]"])
    (figures,) = runs.command("report", "january", "--output", "json").document
    assert (figures["output"], figures["match"], figures["missing"]) == ("counts", "90", 1)
    assert figures["causes"] == ["one cause", "another [b]"]
    assert runs.run().status == 3, "running it again is no approval"
    assert len(runs.command("sample", "january", "--output", "json").document) == 1
    shown = runs.command("sample", "january").out
    assert "counts: 1 row of the result staged for lake.raw.counts" in shown
    refused = runs.command("sample", "january", "--of", "sums")
    assert (refused.status, refused.err) == (
        2,
        "error: --of: there is no output sums; the outputs are: counts\n",
    )
    approved = runs.command("approve", "january", "--output", "json")
    assert approved.status == 0, approved.err
    assert approved.document["outputs"][0]["snapshotId"] is not None


def test_what_matches_is_published_and_says_how_much(runs: LocalRuns, lake: Catalog) -> None:
    described(runs, lake)
    ended = runs.run(matching=999, missing=1)
    assert ended.status == 0, ended.err
    assert "99.9 % matched production, report: /reports/counts.html" in ended.out + ended.err


def test_what_a_result_was_compared_with_is_named(runs: LocalRuns, lake: Catalog) -> None:
    lake.create_table("raw.audited", schema=EVENTS)
    reference = {"table": "lake.raw.audited"}
    described(runs, lake, against="Reference", reference=reference)
    assert runs.run(matching=999, missing=1).status == 3, "production was not compared"
    ended = runs.command("approve", "january")
    assert ended.status == 0, ended.err
    told = "99.9 % matched the reference lake.raw.audited, report: /reports/counts.html"
    assert told in ended.out + ended.err
    assert "rows match the reference lake.raw.audited" in runs.command("report", "january").out
    (figures,) = runs.command("report", "january", "--output", "json").document
    assert figures["reference"] == "lake.raw.audited"


def test_another_comparison_repeats_only_the_comparison(runs: LocalRuns, lake: Catalog) -> None:
    described(runs, lake)
    assert runs.run(matching=9, missing=1).status == 3
    steps = len(runs.events("step"))
    wanted = {"keys": ["id"], "minMatch": "90"}
    runs.write(outputs=[OUTPUT | {"validate": wanted, "publish": {"mode": "Replace"}}])
    assert runs.run().status == 0
    assert len(runs.backfill.status.attempts) == 1, "the figures were known"
    assert len(runs.events("step")) == steps


def test_other_columns_are_compared_by_another_attempt(runs: LocalRuns, lake: Catalog) -> None:
    described(runs, lake)
    assert runs.run(matching=9, missing=1).status == 3
    steps = len(runs.events("step"))
    runs.write(outputs=[OUTPUT | {"validate": {"keys": ["at"]}, "publish": {"mode": "Replace"}}])
    assert runs.run(matching=10).status == 0
    assert len(runs.backfill.status.attempts) == 2
    assert len(runs.events("step")) == steps, "nothing is read again"


def test_columns_that_do_not_exist_are_found_before_anything_runs(
    runs: LocalRuns, lake: Catalog
) -> None:
    described(runs, lake, keys=["idd"], ignore=["written"], tolerance={"id": "5s", "at": "1"})
    ended = runs.run()
    assert ended.status == 2
    for problem in (
        "spec.outputs[0].validate.keys: table lake.raw.counts has no top-level column idd; did"
        " you mean id?",
        "spec.outputs[0].validate.ignore: table lake.raw.counts has no top-level column written",
        ("spec.outputs[0].validate.tolerance: id: '5s' is not a number; use a form such as 0.01"),
        ("spec.outputs[0].validate.tolerance: at: '1' is not a duration; use a form such as 500ms"),
    ):
        assert problem in ended.err


def test_a_report_that_does_not_exist_is_an_error_that_says_why(
    runs: LocalRuns, lake: Catalog
) -> None:
    lake.create_table("raw.counts", schema=EVENTS)
    runs.write(outputs=[OUTPUT])
    assert runs.run().status == 0
    told = runs.command("report", "january")
    assert told.status == 1
    assert "no output has spec.outputs[].validate" in told.err


def test_the_report_shows_where_publishing_removes_rows(runs: LocalRuns, lake: Catalog) -> None:
    """Or a person approves the result by a report without the rows that are lost."""
    production = lake.create_table("raw.counts", schema=EVENTS)
    times = [START + timedelta(minutes=minute) for minute in range(60)]
    production.append(pa.table({"id": range(60), "at": times}, schema=EVENTS))
    runs.write(outputs=[OUTPUT | {"publish": {"mode": "Replace"}}])
    assert runs.run().status == 3
    told = runs.command("report", "january")
    assert (told.status, told.err) == (0, "")
    assert "publishing would remove more rows of lake.raw.counts than it replaces" in told.out
    assert ": 60 rows in production, 1 in the result" in told.out
    (figures,) = runs.command("report", "january", "--output", "json").document
    assert figures["losses"]["productionRows"] == 60
    assert [each["productionRows"] for each in figures["losses"]["stretches"]] == [15, 45]
