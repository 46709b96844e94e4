"""A correction is reported by what it has changed, in words for the one who decides about it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any

from backfill.planning.workspace import Workspace
from backfill.runtime.comparison.count_matches import Counts, Found, Sample
from backfill.runtime.comparison.report import Clues
from backfill.runtime.comparison.uniform_changes import difference
from backfill.runtime.comparison.value_changes import Change
from cases import cases
from comparison_reports import compared, report

VERBS = ("approve", "reject")


def corrected(changes: Mapping[Change, int], pairs: int = 12, **columns: int) -> Found:
    """Rows of twelve hours that all differ, and what was done to them."""
    found = compared(**{f"h{hour}": Counts(different=pairs // 12) for hour in range(12)})
    found.pairs, found.changes = pairs, dict(changes)
    found.columns = {**{change.column: pairs for change in changes}, **columns}
    return found


def factor(amount: str, *, exact: bool = True) -> Change:
    return Change("c", "factor", Fraction(amount), exact=exact)


def shift(**length: float) -> Change:
    return Change("c", "shift", Fraction(timedelta(**length) // timedelta(seconds=1)))


@cases(
    ("change", "said"),
    {
        "halved": (factor("1/2"), "the result is exactly 0.5 times production"),
        "a long fraction": (factor("1/60"), "the result is exactly 1/60 times production"),
        "a unit": (factor("1000"), "the result is exactly 1000 times production"),
        "a sign": (factor("-1"), "the result is exactly production with the opposite sign"),
        "rounded": (
            factor("1/1000", exact=False),
            "the result is 0.001 times production, but for rounding",
        ),
        "more": (
            Change("c", "offset", Fraction("2.5")),
            "the result is exactly production plus 2.5",
        ),
        "less": (Change("c", "offset", Fraction(-7)), "the result is exactly production minus 7"),
        "a time zone": (
            shift(hours=-1),
            "the result is exactly 1 hour earlier than production, as with another time zone",
        ),
        "a zone of half an hour": (
            shift(minutes=330),
            "the result is exactly 330 minutes later than production, as with another time zone",
        ),
        "days": (shift(days=2), "the result is exactly 2 days later than production"),
        "seconds": (shift(seconds=7), "the result is exactly 7 seconds later than production"),
        "milliseconds": (
            Change("c", "shift", Fraction(1, 1_000)),
            "the result is exactly 0.001 seconds later than production",
        ),
        "floats": (
            Change("c", "rounding", Fraction(1), exact=False),
            "the result is production, but for the rounding of floating-point numbers",
        ),
        "another column": (
            Change("c", "column", source="d"),
            "the result has the values of column d of production",
        ),
        "text": (
            Change("c", "text"),
            "the result is production, but for case or surrounding blanks",
        ),
        "lost": (Change("c", "becameNull"), "the result is null where production has a value"),
        "filled": (Change("c", "wasNull"), "the result has a value where production is null"),
    },
)
def test_a_change_is_said_in_a_sentence(change: Change, said: str) -> None:
    document = report(corrected({change: 12})).document()
    assert document["causes"] == [f"12 of 12 rows differ in c, and in no other column: {said}."]
    assert document["explained"] == (change.kind != "becameNull")


def test_the_change_that_holds_for_most_rows_counts() -> None:
    found = corrected({factor("2"): 1_188, Change("c", "offset", Fraction(1)): 1_150}, pairs=1_200)
    document = report(found).document()
    assert document["changes"] == [
        {"column": "c", "kind": "factor", "factor": "2", "exact": True, "rows": 1_188, "of": 1_200}
    ]
    assert document["causes"][0].endswith(
        ": the result is exactly 2 times production in 1,188 of them."
    )
    assert document["explained"]
    found.changes = {factor("2"): 1_187}
    assert not report(found).document()["explained"]
    found.changes = {factor("2"): 599}
    assert report(found).document()["changes"] == []


def test_columns_that_are_swapped_are_said_once() -> None:
    swapped = {Change(a, "column", source=b): 12 for a, b in (("a", "b"), ("b", "a"), ("c", "a"))}
    assert report(corrected(swapped)).document()["causes"] == [
        "12 of 12 rows differ in a: a and b are swapped.",
        "12 of 12 rows differ in c: the result has the values of column a of production.",
    ]


def test_many_columns_take_a_few_sentences() -> None:
    changes = {Change(f"c{number}", "wasNull"): 12 for number in range(9)}
    *_, last = causes = report(corrected(changes)).document()["causes"]
    assert len(causes) == 6
    assert last == "In 4 more columns, rows differ in one way, too; the report says in which."


def test_a_column_that_differs_in_no_single_way_is_beside_those_that_do() -> None:
    document = report(corrected({factor("2"): 12}, pairs=12, plays=7, title=0)).document()
    assert not document["explained"]
    assert document["causes"][1] == (
        "7 of 12 rows differ in plays, in no single way: compare some of the rows in the report."
    )


def test_a_correction_of_a_part_of_the_window_has_no_wrong_advice() -> None:
    found = corrected({factor("2"): 1})
    found.buckets = {hour: Counts(100) for hour in range(12)} | {0: Counts(50, 1)}
    found.pairs = found.columns["c"] = 1
    said = report(found, Clues(arrived_late=0)).document()["causes"]
    assert said[0].startswith("1 of 1,151 rows differs in c, and in no other column: ")
    assert said[1].endswith(
        "at the start of the window, from 2021-07-11T00:00:00Z to before 2021-07-11T01:00:00Z."
    )


def test_rows_that_are_only_on_one_side_are_looked_at_without_corrected_ones() -> None:
    found = corrected({factor("2"): 1_200}, pairs=1_200)
    found.buckets[5] = Counts(0, 80, 20)
    document = report(found).document()
    assert not document["explained"]
    assert document["causes"][1].startswith(
        "All 20 rows that are only on one side are in the stretch from 2021-07-11T05:00:00Z"
    )
    found.buckets = {hour: Counts(0, 100, 5) for hour in range(12)}
    assert report(found).document()["causes"][1].startswith("All keys of the result are in produ")


def sampled(ours: str, theirs: str) -> list[str]:
    found = corrected({}, c=12)
    found.samples = [Sample("different", {"id": "1", "c": ours}, {"id": "1", "c": theirs}, ("c",))]
    return [each for each in report(found).document()["causes"] if "validate.ignore" in each]


def test_a_time_of_writing_is_no_part_of_a_correction() -> None:
    found = corrected({factor("2"): 12}, written=12)
    times = {"id": "1", "c": "2", "written": "2021-07-19 03:00:00"}
    other = {"id": "1", "c": "1", "written": "2021-07-11 01:00:00"}
    found.samples = [Sample("different", times, other, ("c", "written"))]
    assert report(found).document()["explained"]
    found.changes = {}
    found.columns["c"] = 0
    assert not report(found).document()["explained"], "nothing was corrected"


def test_only_values_that_depend_on_the_run_are_to_be_ignored() -> None:
    assert sampled("2021-07-19 03:00:00.5", "2021-07-11 00:00:01") == [
        "c looks like the time of writing, which differs from run to run: add it to"
        " validate.ignore."
    ]
    ids = (
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "7C9E667974254 0DE944BE07FC1F90AE7".replace(" ", ""),
    )
    assert sampled(*ids)[0].startswith("c looks like a random ID")
    for values in (
        ("2021-07-11 03:00:00", "2021-07-11 00:00:01"),
        ("2021-07-19 03:00:00", "2021-07-20 00:00:01"),
        ("7", "8"),
        (ids[0], "8"),
        ("", "2021-07-20 00:00:01"),
    ):
        assert sampled(*values) == []


@cases(
    ("ours", "theirs", "said"),
    {
        "half": ("12.50", "25.00", "-12.5 (0.5 times)"),
        "many digits": ("1", "3", "-2 (0.3333 times)"),
        "large": ("12345678.25", "1", "+12,345,677.25 (12,350,000 times)"),
        "nearly equal": ("0.30000000000000004", "0.3", "+4e-17"),
        "zero": ("7", "0", "+7"),
        "times": ("2021-07-11 02:00:00", "2021-07-11 00:00:00.5", "+1:59:59.500000"),
        "dates": ("2021-07-11", "2021-07-13", "-2 days, 0:00:00"),
        "text": ("seven", "8", ""),
        "null": (None, "8", ""),
        "no number": ("NaN", "8", ""),
        "infinite": ("Infinity", "Infinity", ""),
        "huge": ("1E+999999999", "-1E-999999999", ""),
        "with and without a zone": ("2021-07-11T00:00:00Z", "2021-07-11", ""),
    },
)
def test_the_difference_of_two_values_is_rounded(
    ours: str | None, theirs: str | None, said: str
) -> None:
    assert difference(ours, theirs) == said


def page(found: Found, directory: Path, **validate: Any) -> str:
    return Path(report(found, **validate).write(Workspace(str(directory)))).read_text()


def test_the_page_of_a_correction_does_not_alarm(tmp_path: Path) -> None:
    found = corrected({factor("2"): 12})
    row = {"id": "1", "at": "2021-07-11 00:00:00", "c": "2"}
    found.samples = [Sample("different", row, row | {"c": "1"}, ("c",))]
    text = page(found, tmp_path)
    assert 'class="verdict explained"' in text
    assert "0 % of 12 rows match production, below minMatch (99.9 %). Nearly all values" in text
    assert "Both sides have 12 rows with the same keys; no key is only on one side." in text
    assert "+1 (2 times)" in text
    found.columns["d"] = 12
    assert 'class="verdict short"' in page(found, tmp_path)
    found.buckets[0] += Counts(missing=2_000, extra=1)
    assert "; 2,000 only in production, 1 only in the result." in page(found, tmp_path)


@cases(
    ("channel", "mode", "commands"),
    {
        "a cluster": (
            "kubernetes:again",
            "Replace",
            [f'kubectl backfill {verb} again -n default --reason "..."' for verb in VERBS],
        ),
        "one machine": (
            "/state/channel",
            "Append",
            [f'backfill {verb} again --reason "..."' for verb in VERBS],
        ),
        "nothing to publish": ("kubernetes:again", "None", []),
    },
)
def test_a_reader_who_decides_has_the_commands(
    tmp_path: Path, channel: str, mode: str, commands: list[str]
) -> None:
    made = report(corrected({factor("2"): 12}), mode=mode)
    made = replace(made, settings=made.settings.model_copy(update={"channel": channel}))
    text = unescape(Path(made.write(Workspace(str(tmp_path)))).read_text())
    assert re.findall("<code>(.*?)</code>", text) == commands
    assert ("--state-dir" in text) == (mode == "Append")
