"""The report of a comparison says what differs and where to look, whatever the rows contain."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from backfill.api.status import LostStretch, WindowLosses
from backfill.planning.workspace import Workspace
from backfill.runtime.comparison.count_matches import Counts, Found, Sample
from backfill.runtime.comparison.mismatch_causes import causes
from cases import cases
from comparison_reports import START, compared, report

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[2J\"'&"


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


def stretch(hour: int, production: int, result: int) -> LostStretch:
    at = START + timedelta(hours=hour)
    end = at + timedelta(hours=1)
    return LostStretch(start=at, end=end, production_rows=production, result_rows=result)


def test_rows_that_publishing_would_remove_are_in_the_page_and_not_only_in_the_status(
    tmp_path: Path,
) -> None:
    losses = WindowLosses(
        production_rows=9_000,
        result_rows=7_990,
        stretches=(stretch(3, 1_000, 0), stretch(5, 2_000, 1_990)),
        further=3,
    )
    text = written(compared(h3=Counts(7_990, missing=1_010)), tmp_path, losses=losses)
    assert "What Replace removes without replacement" in text
    assert "9,000 rows in production, 7,990 in the result; publish.maxLoss is 1 %." in text
    first, second = re.findall(r"<tr>(.*?)</tr>", text.split("without replacement", 1)[1])[1:3]
    assert re.findall(r"<td[^>]*>([^<]*)<", first) == [
        *("2021-07-11T03:00:00Z", "2021-07-11T04:00:00Z", "1,000", "0", "100 %", ""),
        "exceeds maxLoss",
    ]
    assert re.findall(r"<td[^>]*>([^<]*)<", second)[2:] == ["2,000", "1,990", "0.5 %", "", ""]
    assert "3 further stretches are not listed." in text
    seen = _Tags()
    seen.feed(text)
    assert not seen.open


@cases(
    ("losses", "said"),
    {
        "none": (WindowLosses(production_rows=5, result_rows=5), ""),
        "unknown": (WindowLosses(problem="no <file>"), "<p>Unknown: no &lt;file&gt;</p>"),
        "nothing is replaced": (None, ""),
    },
)
def test_a_page_says_that_nothing_is_removed_only_if_that_is_known(
    tmp_path: Path, losses: WindowLosses | None, said: str
) -> None:
    text = written(compared(h3=Counts(5)), tmp_path, losses=losses)
    assert ("without replacement" in text) == bool(said)
    assert said in text


@cases(
    ("length", "bar"),
    {
        "5 minutes": (timedelta(minutes=5), "a minute"),
        "half an hour": (timedelta(minutes=30), "a minute"),
        "an hour": (timedelta(hours=1), "5 minutes"),
        "2 hours": (timedelta(hours=2), "5 minutes"),
        "4 hours": (timedelta(hours=4), "15 minutes"),
        "half a day": (timedelta(hours=12), "an hour"),
        "10 days": (timedelta(days=10), "an hour"),
        "90 days": (timedelta(days=90), "9 hours"),
    },
)
def test_a_window_of_any_length_has_bars_enough_to_see_its_ends(
    length: timedelta, bar: str, tmp_path: Path
) -> None:
    text = written(compared(h0=Counts(5, 1)), tmp_path, length=length)
    assert f"a bar is {bar}, the highest" in text


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
    assert page.count("after the part shown") == 1
    assert page.index("after the part shown") < page.index(">plays<", page.index("Different:"))


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
