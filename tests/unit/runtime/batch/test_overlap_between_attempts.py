"""What a span has found where the next one begins holds for the attempt that computes that one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.outputs.window_rows import Stretch
from backfill.runtime.batch.determined_columns import Lasting
from backfill.runtime.batch.overlap_check import OverlapCheck, SharedResults
from backfill.runtime.batch.spans import Span

STRIP = 10
FIRST = Span(range(3), {}, Stretch(0, 500, 500))
SECOND = Span(range(3, 6), {}, Stretch(500, 900, 900))
LATER = replace(FIRST, after_us=STRIP), SECOND
"""The strip is in the second one's stretch."""
EARLIER = FIRST, replace(SECOND, before_us=STRIP)


def check(
    *spans: Span,
    before: Mapping[str, int] | None = None,
    lasting: Lasting = Lasting.RUN,
    digest: int = 1,
) -> OverlapCheck:
    def compute(_span: Span) -> Any:
        raise AssertionError("the other span is of another attempt")

    compared = SharedResults("at", [0], digest, lasting)
    return OverlapCheck("q", spans, compared=compared, compute=compute, before=before)


def found(rows: int) -> dict[str, dict[str, int]]:
    return {"overlap": {f"{name} 0": rows for name in ("rows", "low", "high")}}


def compare(
    checked: OverlapCheck, span: Span, rows: int, *, may_differ: bool = False
) -> dict[str, int] | None:
    return checked.compare(span, found(rows), lambda _strip, _session_us: may_differ)


@pytest.mark.parametrize("spans", [LATER, EARLIER])
def test_the_next_attempt_finds_what_the_one_before_has_found(spans: tuple[Span, Span]) -> None:
    first, second = spans
    kept = compare(check(*spans), first, 7)
    assert kept is not None
    assert compare(check(second, before=kept), second, 7) is None
    assert compare(check(second, before=kept), second, 8, may_differ=True) is None
    with pytest.raises(UnsupportedProgram, match="the two batch jobs that computed them;"):
        compare(check(second, before=kept), second, 8)


def test_spans_that_are_cut_elsewhere_are_not_compared() -> None:
    kept = compare(check(*EARLIER), FIRST, 7)
    for other in (SECOND, replace(SECOND, stretch=Stretch(600, 900, 900), before_us=STRIP)):
        assert check(other, before=kept).strips(other) == []
    short = replace(SECOND, stretch=Stretch(500, 505, 505))
    assert check(short, before=compare(check(*LATER), FIRST, 7)).strips(short) == []


def test_what_other_sums_or_other_tables_gave_is_not_compared() -> None:
    first, second = EARLIER
    kept = compare(check(*EARLIER), first, 7)
    assert kept is not None
    assert check(second, before=kept).strips(second)
    of_older_version = {name: number for name, number in kept.items() if name != "digest"}
    for other in (
        check(second, before=kept, digest=2),
        check(second, before=of_older_version),
        check(second, before=kept, lasting=Lasting.ATTEMPT),
    ):
        assert other.strips(second) == []
    for lasting in (Lasting.ATTEMPT, Lasting.JOB):
        assert compare(check(*EARLIER, lasting=lasting), first, 7) is None


@pytest.mark.parametrize("lasting", Lasting)
def test_jobs_that_each_read_a_table_may_find_that_it_has_changed(
    lasting: Lasting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OverlapCheck, "_examples", lambda *_: "at noon")
    first, second = EARLIER
    checked = check(*EARLIER, lasting=lasting)
    compare(checked, first, 7)
    if lasting is Lasting.JOB:
        compare(checked, second, 8)
        assert "a table that each of them read separately may have changed" in caplog.text
    else:
        with pytest.raises(UnsupportedProgram, match="at noon"):
            compare(checked, second, 8)
