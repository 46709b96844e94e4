"""The report of a comparison says what differs and where to look, whatever the rows contain."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from backfill.api.output import Output
from backfill.planning.workspace import Workspace
from backfill.runtime.comparison.causes import causes
from backfill.runtime.comparison.compare import Counts, Found, Sample
from backfill.runtime.comparison.report import Clues, Report
from backfill.runtime.settings import RuntimeSettings

START = datetime(2021, 7, 11, tzinfo=UTC)
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[2J\"'&"
HOUR_US = 3_600_000_000


def report(
    found: Found,
    clues: Clues = Clues(),  # noqa: B008
    keys: Sequence[str] = (),
    **validate: Any,
) -> Report:
    output = Output.model_validate(
        {
            "name": "summary",
            "table": "lake.default.summary",
            "timestampColumn": "at",
            "keys": keys,
            "validate": {"keys": [] if keys else ["id"], **validate},
        }
    )
    settings = RuntimeSettings.model_validate(
        {
            "backfill": "again",
            "namespace": "default",
            "uid": "u",
            "attempt": 1,
            "plan_id": "p",
            "plan": "/plan",
            "checkpoints": "/c",
            "channel": "/c",
            "scratch": "/s",
            "window": {"start": START, "end": START + timedelta(hours=12)},
            "sources": (),
            "outputs": (output,),
            "main_file": "app.py",
        }
    )
    return Report(settings, output, found, HOUR_US, 7, 8, START, clues)


def compared(**stretches: Counts) -> Found:
    return Found(buckets={int(name.removeprefix("h")): each for name, each in stretches.items()})


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def written(found: Found, directory: Path, **validate: Any) -> str:
    location = report(found, **validate).write(Workspace(str(directory)))
    return Path(location).read_text()


def test_values_of_rows_are_shown_and_do_nothing(tmp_path: Path) -> None:
    row = {"id": HOSTILE, HOSTILE: HOSTILE, "at": None}
    found = compared(h0=Counts(1, 1, 1, 1))
    found.columns = {HOSTILE: 1, "at": 0}
    found.samples = [
        Sample("different", row, row, (HOSTILE,)),
        Sample("missing", None, row, ()),
        Sample("extra", row, None, ()),
    ]
    text = written(found, tmp_path)
    seen = _Tags()
    seen.feed(text)
    assert not seen.open
    assert not seen.tags & {"script", "img", "link", "iframe", "a", "object"}
    assert not any(name.startswith("on") for name in seen.attributes)
    assert not re.search(r"https?://|url\(|[\u202e\x1b]", text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_reader_is_told_the_share_and_what_follows_from_it(tmp_path: Path) -> None:
    text = written(compared(h3=Counts(999, 1)), tmp_path, minMatch="99.95")
    assert "99.9 % of 1,000 rows match production, below minMatch (99.95 %)." in text
    text = written(compared(h3=Counts(999, 1)), tmp_path, minMatch="99.9")
    assert "99.9 % of 1,000 rows match production, not below minMatch (99.9 %)." in text
    text = written(compared(h3=Counts(1)), tmp_path)
    assert "100 % of 1 row matches production" in text
    text = written(Found(), tmp_path)
    assert "100 % of 0 rows match production" in text
    text = written(compared(h2=Counts(5, 1), h3=Counts(5, 0, 1, 1)), tmp_path)
    assert "a bar is an hour, the highest (from 2021-07-11T03:00:00Z) 2 rows." in text


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            compared(h0=Counts(5, 9), h5=Counts(100, 1)),
            "9 of 10 rows that do not match are in the first",
        ),
        (compared(h3=Counts(99), h11=Counts(5, 0, 20)), "window.drain may be too short"),
        (
            compared(h5=Counts(0, 0, 0, 60), h7=Counts(900, 2)),
            "60 of 62 rows that do not match are in the stretch of the window that begins at"
            " 2021-07-11T05:00:00Z.",
        ),
        (compared(h4=Counts(5, 0, 3), h7=Counts(2)), "sources still hold all events"),
        (compared(h4=Counts(5, 0, 0, 3), h7=Counts(2)), "production may have dropped late events"),
        (compared(h4=Counts(0, 0, 0, 3)), "Production has no rows in the window"),
        (compared(h4=Counts(0, 0, 3, 3)), "No row of the result has the keys of a row"),
    ],
)
def test_what_the_figures_tell_is_said(found: Found, said: str) -> None:
    told = " ".join(causes(report(found).document()))
    assert said in told


def test_duplicates_and_a_column_that_always_differs_are_told() -> None:
    found = compared(h4=Counts(50, 3, 2, 2))
    found.columns = {"written": 3, "plays": 0}
    found.duplicate_keys_in_other = 2
    told = causes(report(found).document())
    assert told[0].startswith("2 keys occur more than once in production")
    assert "only in written" in told[1]


def test_keys_of_the_output_are_those_that_rows_were_compared_by(tmp_path: Path) -> None:
    found = compared(h4=Counts(50, 1))
    found.columns, found.duplicate_keys_in_result = {"plays": 1}, 2
    row = {"id": "the-row", "plays": "1"}
    found.samples = [Sample("different", row, row | {"plays": "2"}, ("plays",))]
    keyed = report(found, keys=["id"])
    assert causes(keyed.document())[0].startswith("2 keys occur more than once in the result")
    page = Path(keyed.write(Workspace(str(tmp_path)))).read_text()
    assert "multiset" not in page
    assert "the-row" in page, "a pair is shown with its keys"


def test_texts_that_differ_where_they_are_cut_are_not_shown_as_if_they_were_equal(
    tmp_path: Path,
) -> None:
    found = compared(h4=Counts(50, 1))
    found.columns = {"note": 1, "plays": 1}
    row = {"id": "1", "note": "a" * 200 + "…", "plays": "1"}
    found.samples = [Sample("different", row, row | {"plays": None}, ("note", "plays"))]
    page = written(found, tmp_path)
    assert page.count("after what is shown") == 1
    assert page.index("after what is shown") < page.index(">plays<", page.index("Different:"))


def test_of_a_production_without_rows_no_edge_is_blamed() -> None:
    assert len(causes(report(compared(h11=Counts(0, 0, 0, 3))).document())) == 1
    assert len(causes(report(compared(h0=Counts(0, 0, 3))).document())) == 1


def test_an_edge_that_has_all_rows_is_not_blamed() -> None:
    assert causes(report(compared(h0=Counts(1_000, 0, 5, 5))).document()) == []
    assert causes(report(compared(h11=Counts(1_000, 0, 5, 5), h4=Counts(50))).document()) == []


def test_without_keys_a_column_may_keep_all_rows_from_being_equal() -> None:
    document = report(compared(h4=Counts(0, 0, 9, 9))).document()
    document["validate"] = {}
    assert "add it to validate.ignore" in causes(document)[0]


def test_nothing_is_said_of_what_is_equal() -> None:
    found = compared(h4=Counts(50))
    found.duplicate_keys_in_other = 2
    assert causes(report(found).document()) == []


def test_a_column_is_not_blamed_for_rows_of_which_it_is_unknown_what_differs() -> None:
    found = compared(h4=Counts(50, 100))
    found.columns = {"written": 3, "plays": 0}
    found.duplicate_keys_in_result = 9
    assert not any("only in" in cause for cause in causes(report(found).document()))
    found.buckets, found.columns = {4: Counts(50, 0, 1, 1)}, {"written": 0}
    assert not any("only in" in cause for cause in causes(report(found).document()))


HOLE = "impressions: it has no rows from 03:00 to 04:00"
TWICE = "impressions: at least 7 rows have the Kafka offset of another row"


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(9, 0, 1, 0), [HOLE, TWICE]),
        (Counts(9, 0, 0, 1), [TWICE, "3 rows of the input were so late that a stream drops them"]),
        (Counts(9, 1, 0, 0), [HOLE, TWICE, "so late that a stream drops them"]),
        (Counts(9, 0, 0, 0), []),
    ],
)
def test_what_the_run_knows_of_its_input_is_said_where_it_may_explain_something(
    counts: Counts, said: list[str]
) -> None:
    clues = Clues((HOLE,), (TWICE,), arrived_late=3)
    told = causes(report(compared(h4=counts, h7=Counts(5)), clues).document())
    every = [HOLE, TWICE, "so late that a stream drops them"]
    assert [each for each in every if any(each in cause for cause in told)] == [
        each for each in every if any(each in words for words in said)
    ]
    assert all(any(words in cause for cause in told) for words in said)


def test_one_late_row_is_one() -> None:
    (told,) = (
        cause
        for cause in causes(report(compared(h4=Counts(9, 1)), Clues(arrived_late=1)).document())
        if "late" in cause
    )
    assert told.startswith("1 row of the input was so late that a stream drops it. The result has")


def test_a_reference_is_named_where_production_would_be(tmp_path: Path) -> None:
    found = compared(h0=Counts(5, 1, 1, 1))
    found.columns, found.duplicate_keys_in_other = {"plays": 1}, 2
    row = {"id": "1", "plays": "1"}
    found.samples = [
        Sample("different", row, row, ("plays",)),
        Sample("missing", None, row, ()),
        Sample("extra", row, None, ()),
    ]
    table = "lake.audit.<b>"
    wish = {"against": "Reference", "reference": {"table": table}}
    text = written(found, tmp_path, **wish)
    assert "production" not in text.lower()
    assert "again: summary compared with the reference lake.audit.&lt;b&gt;" in text
    assert "62.5 % of 8 rows match the reference, below minMatch" in text
    assert "snapshot of the reference" in text
    document = report(found, **wish).document()
    assert (document["referenceSnapshotId"], document["rows"]["reference"]) == (8, 7)  # type: ignore[index]
    assert "production" not in str(document).lower()


def test_causes_that_production_has_are_not_said_of_a_reference() -> None:
    wish: dict[str, Any] = {"against": "Reference", "reference": {"table": "lake.audit.summary"}}
    for counts in (
        Counts(0, 0, 0, 3),
        Counts(5, 0, 3),
        Counts(5, 0, 0, 3),
        Counts(0, 0, 3, 3),
        Counts(5, 3, 1),
    ):
        found = compared(h4=counts)
        found.duplicate_keys_in_other = 1
        for keys in ((), ["id"]):
            told = causes(report(found, Clues(arrived_late=3), keys, **wish).document())
            assert told
            assert not any("production" in cause.lower() for cause in told)
