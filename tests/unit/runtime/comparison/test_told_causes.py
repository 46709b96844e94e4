"""The report of a comparison names causes that its figures show, and no others."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from backfill.api.output import Output
from backfill.planning.plan import PlanHeader
from backfill.runtime.comparison.compare_outputs import clues_of
from backfill.runtime.comparison.count_matches import Counts, Found, Repeated
from backfill.runtime.comparison.mismatch_causes import causes
from backfill.runtime.comparison.report import Clues
from backfill.runtime.queries.tracker import OpenResults, ReportedBatch, Tracker, Traits
from cases import cases
from comparison_reports import START, compared, report

HALF_HOUR, DAY = timedelta(minutes=30), timedelta(days=1)
FIRST = "from 2021-07-11T00:00:00Z to before 2021-07-11T01:00:00Z"
LAST = "from 2021-07-11T11:00:00Z to before 2021-07-11T12:00:00Z"
OF_THAT_TIME = "check whether the sources still contain all events of that time."
NOT_DRAIN = f"window.drain may be too short. If it is not, {OF_THAT_TIME}"
NOT_WARM_UP = f"window.warmUp may be too short. If it is not, {OF_THAT_TIME}"


def told(found: Found, clues: Clues = Clues(), **more: Any) -> list[str]:  # noqa: B008
    return causes(report(found, clues, **more).document())


def told_without_keys(found: Found, clues: Clues = Clues()) -> list[str]:  # noqa: B008
    document = report(found, clues).document()
    document["validate"] = {}
    return causes(document)


def otherwise_equal(stretches: int = 12, every: int = 1, **others: Counts) -> Found:
    """A hundred equal rows in each stretch of time except for some."""
    equal = {f"h{number}": Counts(100) for number in range(0, stretches, every)}
    return compared(**(equal | others))


def twice(found: Found, number: int, missing: int = 0, extra: int = 0) -> Found:
    """With rows in one stretch that one side has more often than the other."""
    found.buckets[number] += Counts(missing=missing, extra=extra)
    found.repeated[number] = Repeated(missing, extra)
    found.duplicate_keys_in_other, found.duplicate_keys_in_result = missing, extra
    return found


@cases(
    ("found", "said"),
    {
        "the first hour differs": (
            otherwise_equal(h0=Counts(50, 50)),
            f"All 50 rows that do not match are at the start of the window, {FIRST}:"
            " window.warmUp may be too short.",
        ),
        "the first hour is missing": (
            otherwise_equal(h0=Counts(0, 0, 100)),
            f"All 100 rows that do not match are at the start of the window, {FIRST}: {NOT_WARM_UP}",
        ),
        "the first hour is extra": (
            otherwise_equal(h0=Counts(0, 0, 0, 100)),
            f"All 100 rows that do not match are at the start of the window, {FIRST}:"
            " window.warmUp may be too short, or production may have missed events there.",
        ),
        "most of the last hour is missing": (
            otherwise_equal(h3=Counts(98, 1, 1), h11=Counts(5, 0, 95)),
            f"95 of 97 rows that do not match are at the end of the window, {LAST}: {NOT_DRAIN}",
        ),
        "the last hour is extra": (
            otherwise_equal(h11=Counts(0, 0, 0, 100)),
            f"All 100 rows that do not match are at the end of the window, {LAST}: check whether"
            " production had all rows up to that point when it was compared.",
        ),
        "both ends": (
            otherwise_equal(h0=Counts(50, 50), h11=Counts(50, 0, 50)),
            f"All 100 rows that do not match are at the start and the end of the window, {FIRST}"
            f" and {LAST}: window.warmUp and window.drain may be too short.",
        ),
        "both ends are missing": (
            otherwise_equal(h0=Counts(50, 0, 50), h11=Counts(50, 0, 50)),
            f"All 100 rows that do not match are at the start and the end of the window, {FIRST}"
            f" and {LAST}: window.warmUp and window.drain may be too short. If they are not,"
            f" {OF_THAT_TIME}",
        ),
        "both ends of different lengths": (
            otherwise_equal(h0=Counts(50, 50), h10=Counts(60, 0, 40), h11=Counts(50, 0, 50)),
            "All 140 rows that do not match are at the start and the end of the window,"
            f" {FIRST} and from 2021-07-11T10:00:00Z to before 2021-07-11T12:00:00Z:"
            " window.warmUp and window.drain may be too short.",
        ),
        "production has a hole": (
            otherwise_equal(**dict.fromkeys(("h5", "h6", "h7"), Counts(0, 0, 0, 100))),
            "All 300 rows that do not match are in the stretch from 2021-07-11T05:00:00Z to before"
            " 2021-07-11T08:00:00Z, where no row matches: production may have a gap there.",
        ),
        "production has a long hole": (
            otherwise_equal(**{f"h{hour}": Counts(0, 0, 0, 100) for hour in range(2, 10)}),
            "All 800 rows that do not match are in the stretch from 2021-07-11T02:00:00Z to before"
            " 2021-07-11T10:00:00Z, where no row matches: production may have a gap there.",
        ),
        "production lacks some rows of a time": (
            otherwise_equal(h5=Counts(40, 0, 0, 60), h7=Counts(98, 2)),
            "60 of 62 rows that do not match are in the stretch from 2021-07-11T05:00:00Z to before"
            " 2021-07-11T06:00:00Z: production may have missed events of that time, or dropped"
            " them as late.",
        ),
        "the result has a hole": (
            otherwise_equal(h5=Counts(0, 0, 100), h6=Counts(0, 0, 100)),
            "All 200 rows that do not match are in the stretch from 2021-07-11T05:00:00Z to before"
            f" 2021-07-11T07:00:00Z: {OF_THAT_TIME}",
        ),
        "a stretch differs": (
            otherwise_equal(h5=Counts(50, 50)),
            "All 50 rows that do not match are in the stretch from 2021-07-11T05:00:00Z to before"
            " 2021-07-11T06:00:00Z: check what was different then, such as the version of the"
            " application.",
        ),
        "one row differs": (
            otherwise_equal(h5=Counts(99, 1)),
            "The one row that does not match is in the stretch from 2021-07-11T05:00:00Z to"
            " before 2021-07-11T06:00:00Z.",
        ),
        "some are missing throughout": (
            compared(**{f"h{hour}": Counts(90, 0, 10) for hour in range(12)}),
            "All rows of the result are in production, which has more rows: check whether the"
            " sources still contain all events of the window.",
        ),
        "two are missing at times that have nothing in common": (
            otherwise_equal(h2=Counts(99, 0, 1), h5=Counts(99, 0, 1)),
            "All rows of the result are in production, which has more rows: check whether the"
            " sources still contain all events of the window.",
        ),
        "some are extra throughout": (
            compared(**{f"h{hour}": Counts(90, 0, 0, 10) for hour in range(12)}),
            "All rows of production are in the result, which has more rows: production may have"
            " dropped late events or missed some.",
        ),
        "all kinds throughout": (
            compared(**{f"h{hour}": Counts(90, 1, 2, 3) for hour in range(12)}),
            "No single cause is evident: compare some of the rows in the report.",
        ),
        "one stretch has all rows": (
            compared(h0=Counts(1_000, 0, 5, 5)),
            "No single cause is evident: compare some of the rows in the report.",
        ),
        "one end has nearly all rows": (
            compared(h11=Counts(1_000, 0, 5, 5), h4=Counts(50)),
            "No single cause is evident: compare some of the rows in the report.",
        ),
        "production has no rows": (
            compared(h11=Counts(0, 0, 0, 3)),
            "Production has no rows in the window: there is nothing to compare the result with.",
        ),
        "the result has no rows": (
            compared(h0=Counts(0, 0, 3)),
            "The result has no rows in the window: check whether the sources still contain all"
            " events of the window.",
        ),
        "no row has the keys of another": (
            compared(h4=Counts(0, 0, 3, 3)),
            "No row of the result has the keys of a row of production: check that no key differs"
            " from run to run, such as a random ID, and that both use the same time zone.",
        ),
    },
)
def test_figures_show_one_cause(found: Found, said: str) -> None:
    assert told(found) == [said]


@cases(
    ("found", "length", "said"),
    {
        "half an hour": (
            otherwise_equal(30, h28=Counts(50, 0, 50), h29=Counts(0, 0, 100)),
            HALF_HOUR,
            "All 150 rows that do not match are at the end of the window, from 2021-07-11T00:28:00Z"
            f" to before 2021-07-11T00:30:00Z: {NOT_DRAIN}",
        ),
        "an hour": (
            otherwise_equal(h0=Counts(50, 50)),
            timedelta(hours=1),
            "All 50 rows that do not match are at the start of the window, from"
            " 2021-07-11T00:00:00Z to before 2021-07-11T00:05:00Z: window.warmUp may be too short.",
        ),
        "two hours, with results by the hour": (
            otherwise_equal(24, 12, h12=Counts(40, 60)),
            timedelta(hours=2),
            "All 60 rows that do not match are at the end of the window, from 2021-07-11T01:00:00Z"
            " to before 2021-07-11T02:00:00Z: window.drain may be too short.",
        ),
        "a week, with results by the day": (
            otherwise_equal(168, 24, h144=Counts(40, 0, 60)),
            7 * DAY,
            "All 60 rows that do not match are at the end of the window, from 2021-07-17T00:00:00Z"
            f" to before 2021-07-18T00:00:00Z: {NOT_DRAIN}",
        ),
        "90 days, with a hole of 5": (
            otherwise_equal(240, **{f"h{n}": Counts(0, 0, 0, 100) for n in range(80, 94)}),
            90 * DAY,
            "All 1,400 rows that do not match are in the stretch from 2021-08-10T00:00:00Z to"
            " before 2021-08-15T06:00:00Z, where no row matches: production may have a gap there.",
        ),
        "a window that ends within an hour": (
            otherwise_equal(13, h12=Counts(0, 0, 100)),
            timedelta(hours=12, minutes=20),
            "All 100 rows that do not match are at the end of the window, from 2021-07-11T12:00:00Z"
            f" to before 2021-07-11T12:20:00Z: {NOT_DRAIN}",
        ),
    },
)
def test_ends_of_windows_of_any_length_are_known(
    found: Found, length: timedelta, said: str
) -> None:
    assert told(found, length=length) == [said]


def test_rows_that_production_has_twice_are_no_missing_events_and_no_end_of_a_window() -> None:
    found = twice(otherwise_equal(), 11, missing=5)
    assert told_without_keys(found) == [
        f"All 5 rows that are only in production are equal to rows that both have ({LAST}): check"
        " whether rows were written twice."
    ]
    assert told(found) == [
        "5 keys occur more than once in production: either rows were written twice, or the keys do"
        f" not identify a row. This explains all 5 rows that are only in production ({LAST})."
    ]


def test_rows_that_the_result_has_twice_are_no_rows_that_production_has_missed() -> None:
    found = twice(otherwise_equal(), 11, extra=1)
    assert told_without_keys(found) == [
        f"The one row that is only in the result is equal to a row that both have ({LAST}): check"
        " whether the sources contain events twice."
    ]
    assert told(found) == [
        "1 key occurs more than once in the result: either rows were written twice, or the keys do"
        f" not identify a row. This explains the one row that is only in the result ({LAST})."
    ]


def test_rows_that_are_everywhere_twice_have_no_time() -> None:
    found = otherwise_equal()
    for number in (1, 10):
        twice(found, number, missing=5)
    assert told_without_keys(found) == [
        "All 10 rows that are only in production are equal to rows that both have: check whether"
        " rows were written twice."
    ]


@pytest.mark.parametrize("side", ["result", "production"])
def test_a_hole_is_seen_beside_rows_that_production_has_twice(side: str) -> None:
    hole = Counts(0, 0, 100) if side == "result" else Counts(0, 0, 0, 100)
    first, second = told_without_keys(twice(otherwise_equal(h5=hole), 11, missing=5))
    of = "5 of the 105" if side == "result" else "All 5"
    assert first.startswith(f"{of} rows that are only in production are equal to rows that both")
    assert second.startswith(
        "All 100 other rows that do not match are in the stretch from 2021-07-11T05:00:00Z"
    )


@cases(
    ("lacks", "words"),
    {
        "missing": (Counts(60, 0, 40), "40 rows that are only in production are"),
        "different": (Counts(60, 40), "40 rows that differ are"),
        "both": (Counts(60, 20, 20), "40 rows that differ or are only in production are"),
        "few": (Counts(80, 0, 20), "20 rows that are only in production are"),
    },
)
def test_an_end_and_a_hole_of_production_are_told_apart(lacks: Counts, words: str) -> None:
    hole = dict.fromkeys(("h4", "h5", "h6"), Counts(0, 0, 0, 100))
    middle, end = told(otherwise_equal(h11=lacks, **hole))
    assert end.startswith(f"All {words} at the end of the window, {LAST}: window.drain may be too")
    assert middle == (
        "All 300 rows that are only in the result are in the stretch from 2021-07-11T04:00:00Z to"
        " before 2021-07-11T07:00:00Z, where no row matches: production may have a gap there."
    )


def test_the_cause_of_most_rows_comes_first() -> None:
    hole = dict.fromkeys(("h4", "h5", "h6"), Counts(0, 0, 0, 100))
    found = otherwise_equal(h11=Counts(60, 0, 40), **hole)
    middle, dropped, end = told(found, Clues(dropped_late=3_000))
    assert "from 2021-07-11T04:00:00Z" in middle
    assert "dropped 3,000 rows" in dropped
    assert end.endswith(f"{LAST}: window.drain may be too short.")


def test_of_several_kinds_the_one_that_is_in_a_part_is_told() -> None:
    spread = {f"h{hour}": Counts(90, 10) for hour in range(12)}
    (only,) = told(compared(**(spread | {"h4": Counts(90, 10, 0, 20)})))
    assert only.startswith("All 20 rows that are only in the result are in the stretch from")
    (only,) = told(compared(**(spread | {"h4": Counts(90, 10, 0, 1)})))
    assert only == "No single cause is evident: compare some of the rows in the report.", (
        "it is one of 121"
    )


def test_rows_that_both_have_twice_are_no_cause() -> None:
    found = otherwise_equal(h4=Counts(0, 0, 100))
    found.duplicate_keys_in_other = found.duplicate_keys_in_result = 7
    (only,) = told(found)
    assert only.startswith("All 100 rows that do not match")
    (only,) = told_without_keys(found)
    assert only.startswith("All 100 rows that do not match")


def test_keys_that_occur_twice_may_be_why_rows_differ() -> None:
    found = otherwise_equal(h4=Counts(50, 3, 2, 2), h8=Counts(50, 3, 2, 2))
    found.columns = {"written": 6, "plays": 0}
    found.duplicate_keys_in_other = 2
    keys, column = told(found)
    assert keys.startswith("2 keys occur more than once in production")
    assert column.startswith("6 of 1,106 rows differ in written, and in no other column, in no")


def test_a_column_that_always_differs_in_one_stretch_is_told_with_it() -> None:
    found = otherwise_equal(h5=Counts(50, 50))
    found.columns = {"plays": 50, "title": 0}
    stretch, column = told(found)
    assert "in the stretch from 2021-07-11T05:00:00Z" in stretch
    assert column == (
        "50 of 1,200 rows differ in plays, and in no other column, in no single way: compare some of"
        " the rows in the report."
    )


def test_without_keys_a_column_may_keep_all_rows_from_being_equal() -> None:
    (only,) = told_without_keys(compared(h4=Counts(0, 0, 9, 9)))
    assert only.endswith("such as the time of writing, add it to validate.ignore.")


def test_nothing_is_said_of_what_is_equal() -> None:
    found = compared(h4=Counts(50))
    found.duplicate_keys_in_other = 2
    assert told(found, Clues(("a gap",), ("twice",), "now()", 3, 3, 3)) == []
    assert told(Found()) == []


def test_a_column_is_not_blamed_for_rows_of_which_it_is_unknown_what_differs() -> None:
    found = compared(h4=Counts(50, 100))
    found.columns = {"written": 3, "plays": 0}
    found.duplicate_keys_in_result = 9
    assert not any("in written" in cause for cause in told(found))
    found.buckets, found.columns = {4: Counts(50, 0, 1, 1)}, {"written": 0}
    assert not any("in written" in cause for cause in told(found))


HOLE = "impressions: no rows from 03:00 to 04:00"
TWICE = "impressions: at least 7 rows have the same Kafka offset as another row"
CLUES = {
    "input": HOLE,
    "twice": TWICE,
    "clock": "The query uses now() in a filter, which follows the time of this run",
    "dropped": "The application's watermark dropped 3,000 rows as late in this run",
    "arrived": "3 rows of the input were so late that a stream drops them",
    "open": "40 results of the window were still open when the input ended",
}
ALL_CLUES = Clues(
    (HOLE,),
    (TWICE,),
    "now() in a filter",
    dropped_late=3_000,
    arrived_late=3,
    open_at_end=40,
    needed_drain_seconds=7_200,
)


@cases(
    ("counts", "names"),
    {
        "missing": (Counts(9, 0, 1, 0), ["input", "twice", "clock", "dropped", "open"]),
        "extra": (Counts(9, 0, 0, 1), ["twice", "clock", "arrived"]),
        "different": (Counts(9, 1, 0, 0), list(CLUES)),
        "equal": (Counts(9, 0, 0, 0), []),
        "no result": (Counts(0, 0, 9), ["input", "twice", "clock", "dropped", "open"]),
        "nothing to compare": (Counts(0, 0, 0, 9), []),
    },
)
def test_what_the_run_knows_is_said_where_it_may_explain_something(
    counts: Counts, names: Sequence[str]
) -> None:
    said = told(compared(h4=counts), ALL_CLUES)
    assert [name for name, words in CLUES.items() if any(words in each for each in said)] == names
    assert not any("check whether the sources" in each for each in said)


def test_what_the_run_knows_is_not_said_of_rows_that_are_only_there_twice() -> None:
    assert len(told(twice(otherwise_equal(), 11, missing=5), Clues(dropped_late=3_000))) == 1


def test_rows_that_the_run_dropped_are_said_with_what_avoids_that() -> None:
    throughout = compared(**{f"h{hour}": Counts(90, 0, 10) for hour in range(12)})
    assert told(throughout, Clues(dropped_late=3_000)) == [
        "The application's watermark dropped 3,000 rows as late in this run, so the result may"
        " lack rows that depend on them. If production did not drop them, create a new Backfill"
        " with a smaller ordering.allowedLateness, or with ordering.policy: Exact.",
        "All rows of the result are in production, which has more rows.",
    ]


def test_results_that_were_left_open_are_said_with_the_drain_that_closes_them() -> None:
    found = otherwise_equal(h11=Counts(60, 0, 40))
    since = START + timedelta(hours=11)
    lacks, where = told(found, Clues(open_at_end=40, open_from=since, needed_drain_seconds=7_200.5))
    assert lacks == (
        "40 results of the window were still open when the input ended, from 2021-07-11T11:00:00Z"
        " on, and the result lacks them: a new Backfill with a window.drain longer than 2h1s lets"
        " them close, if the sources have later events."
    )
    assert where == f"All 40 rows that do not match are at the end of the window, {LAST}."
    lacks, _ = told(found, Clues(open_at_end=1, needed_drain_seconds=60))
    assert lacks == (
        "1 result of the window was still open when the input ended, and the result lacks it: it"
        " closes only once every source has events more than 1m after the window's end."
    )
    lacks, _ = told(found, Clues(open_at_end=1, not_final=True))
    assert lacks == (
        "1 result of the window was still open when the input ended, and the result has values"
        " that are not final for it: a new Backfill with a longer window.drain lets it close."
    )


def test_one_late_row_is_one() -> None:
    clues = Clues(dropped_late=1, arrived_late=1)
    dropped, _, arrived = told(compared(h4=Counts(9, 1), h7=Counts(99)), clues)
    assert "dropped 1 row as late in this run, so the result may lack rows that depend on it." in (
        dropped
    )
    assert "If production did not drop it, create" in dropped
    assert arrived.startswith(
        "1 row of the input was so late that a stream drops it. The result reflects it"
    )


def test_causes_that_production_has_are_not_said_of_a_reference() -> None:
    wish: Mapping[str, Any] = {
        "against": "Reference",
        "reference": {"table": "lake.audit.summary"},
    }
    middle, ends = ("h4",), ("h0", "h11")
    for counts in (
        Counts(0, 0, 0, 3),
        Counts(5, 0, 3),
        Counts(5, 0, 0, 3),
        Counts(0, 0, 3, 3),
        Counts(5, 3, 1),
    ):
        for others in ({}, {f"h{hour}": Counts(9) for hour in range(12)}):
            for names in (middle, ends, ends[:1], ends[1:]):
                found = compared(**(others | dict.fromkeys(names, counts)))
                found.duplicate_keys_in_other = 1
                found.repeated = {4: Repeated(1 if counts.missing > 1 else 0)}
                for keys in ((), ["id"]):
                    said = told(found, ALL_CLUES, keys=keys, **wish)
                    assert said
                    assert not any("production" in cause.lower() for cause in said)


def test_clues_are_those_of_the_query_that_writes_the_output(header: PlanHeader) -> None:
    tracker = Tracker(header, ["impressions", "playbacks"], lambda _source, _step: 0, lambda: 0)
    tracker.add("one", "plays", {"impressions": 0}, Traits(by_clock="now() in a filter"))
    tracker.add("other", "summary", {"playbacks": 0}, Traits(output_mode="update"))
    tracker.commit(ReportedBatch("one", 0, 1, 1, {"impressions": 9}, late_rows=2))
    late = ReportedBatch("other", 0, 1, 1, {"playbacks": 9}, late_rows=5, arrived_late=3)
    tracker.commit(late)
    tracker.record_open_results("other", OpenResults(7, None, 60.0))
    plays, summary, neither = (
        clues_of(tracker, Output.model_validate({"name": name, "table": f"lake.default.{name}"}))
        for name in ("plays", "summary", "neither")
    )
    assert (plays.dropped_late, plays.by_clock, plays.open_at_end) == (2, "now() in a filter", 0)
    assert (summary.dropped_late, summary.arrived_late, summary.open_at_end) == (5, 3, 7)
    assert (summary.needed_drain_seconds, summary.not_final, plays.not_final) == (60.0, True, False)
    assert neither == Clues()


def test_rows_that_a_function_dropped_are_said_of_each_output_that_it_writes(
    header: PlanHeader,
) -> None:
    tracker = Tracker(header, ["impressions"], lambda _source, _step: 0, lambda: 0)
    tracker.add_function("f", {"impressions": 0}, Traits(), ("plays", "summary"))
    tracker.commit(ReportedBatch("f", 0, 1, 1, {"impressions": 9}, late_rows=2))
    for name in ("plays", "summary"):
        output = Output.model_validate({"name": name, "table": f"lake.default.{name}"})
        assert clues_of(tracker, output).dropped_late == 2
