"""What a comparison shows about why rows do not match."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from backfill.api.quantities import count
from backfill.runtime.comparison.count_matches import KINDS
from backfill.runtime.comparison.mismatch_times import Part, part_of, times_of
from backfill.runtime.comparison.uniform_changes import (
    changes_in_words,
    differs_alone,
    is_uniform,
    rows_differ,
    run_dependent,
    side_in_words,
    side_key,
)

_FEW = Fraction(1, 20)
"""Of rows of one kind that are less than this, it is not said where they are."""
_MOST_COLUMNS = 3
_COMPARE = "compare some of the rows in the report"
_WRITER = {"production": "production", "reference": "what wrote the reference"}
_CHECK_SOURCES = "check whether the sources still contain all events of"
_WITHOUT_LATE = {
    "production": "production probably does not",
    "reference": "the reference does not if a stream wrote it",
}


def causes(document: Mapping[str, Any]) -> list[str]:
    """What may be the cause, in a sentence or two for each, the most likely first."""
    rows, other = document["rows"], side_in_words(document)
    if not _apart(rows):
        return []
    if not rows[side_key(document)]:
        whose = f"{other[0].upper()}{other[1:]}"
        return [f"{whose} has no rows in the window: there is nothing to compare the result with."]
    left = _without_repeated(document)
    if is_uniform(document) and left["missing"] + left["extra"]:
        left["different"] = 0
    known = [
        *_by_clock(document, left),
        *_lacks_input(document, left),
        *_left_open(document, left),
    ]
    twice, strangers = list(_twice(document)), _nothing_in_common(document)
    where = [] if strangers else list(_where(document, left, known))
    others = 1 if 2 * left["extra"] > _apart(left) else 0  # what is known explains no extra rows
    found = [
        *changes_in_words(document),
        *(sentence for sentence, explains in twice if explains),
        *strangers,
        *where[:others],
        *known,
        *where[others:],
        *_of_the_input(document, left),
        *(sentence for sentence, explains in twice if not explains),
        *_columns(document),
    ]
    return found or [f"No single cause is evident: {_COMPARE}."]


def _apart(rows: Mapping[str, int]) -> int:
    return rows["different"] + rows["missing"] + rows["extra"]


def _without_repeated(document: Mapping[str, Any]) -> dict[str, int]:
    """The rows that do not match, without those that one side only has more often."""
    return {kind: document["rows"][kind] - _repeated(document, kind) for kind in KINDS}


def _repeated(document: Mapping[str, Any], kind: str) -> int:
    return sum(each["repeated"].get(kind, 0) for each in document["byTime"])


def _twice(document: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """What each side has more than once, and whether that is why rows do not match."""
    side, the = side_key(document), side_in_words(document)
    for of, where, kind in ((side, the, "missing"), ("result", "the result", "extra")):
        repeated, number = _repeated(document, kind), document["duplicateKeys"][of]
        these = _of(repeated, document["rows"][kind], f"only in {where}")
        times = f" ({times})" if (times := times_of(document, kind)) else ""
        if document["validate"].get("keys"):
            if number and (repeated or document["rows"]["different"]):
                explained = f" This explains {these}{times}." if repeated else ""
                yield (
                    f"{count(number, 'key')} {'occurs' if number == 1 else 'occur'} more than once"
                    f" in {where}: either rows were written twice, or the keys do not identify a"
                    f" row.{explained}",
                    bool(repeated),
                )
        elif repeated:
            equal = "is equal to a row" if repeated == 1 else "are equal to rows"
            check = "the sources contain events" if of == "result" else "rows were written"
            yield (
                f"{these[0].upper()}{these[1:]} {equal} that both have{times}: check whether"
                f" {check} twice.",
                True,
            )


def _of(some: int, every: int, where: str) -> str:
    """Some of the rows that are only somewhere, in words."""
    if every == 1:
        return f"the one row that is {where}"
    of_which = f"all {every:,}" if some == every else f"{some:,} of the {every:,}"
    return f"{of_which} rows that are {where}"


def _nothing_in_common(document: Mapping[str, Any]) -> list[str]:
    rows, the = document["rows"], side_in_words(document)
    if rows["matching"] + rows["different"] or not rows["result"]:
        return []
    if document["validate"].get("keys"):
        return [
            f"No row of the result has the keys of a row of {the}: check that no key differs from"
            " run to run, such as a random ID, and that both use the same time zone."
        ]
    return [
        f"No row of the result is equal to one of {the}: set validate.keys to see in which columns"
        " rows differ; if a column differs from run to run, such as the time of writing, add it to"
        " validate.ignore."
    ]


def _by_clock(document: Mapping[str, Any], left: Mapping[str, int]) -> Iterator[str]:
    if document["byClock"] and _apart(left):
        yield (
            f"The query uses {document['byClock']}, which follows the time of this run instead of"
            " the time of the events, so rows may be missing or different."
        )


def _lacks_input(document: Mapping[str, Any], left: Mapping[str, int]) -> Iterator[str]:
    """What the run has not read, or not used."""
    if not left["different"] + left["missing"]:
        return
    for missing in document["missingInput"]:
        yield f"Input is missing, so the result may lack rows. {missing}."
    late = document["rowsDroppedLate"]
    if late:
        it = "it" if late == 1 else "them"
        yield (
            f"The application's watermark dropped {count(late, 'row')} as late in this run, so the"
            f" result may lack rows that depend on {it}. If {_WRITER[side_key(document)]} did not"
            f" drop {it}, create a new Backfill with a smaller ordering.allowedLateness, or with"
            " ordering.policy: Exact."
        )


def _left_open(document: Mapping[str, Any], left: Mapping[str, int]) -> Iterator[str]:
    found = document["openAtEnd"]
    if not found["results"] or not left["different"] + left["missing"]:
        return
    was, it = ("was", "it") if found["results"] == 1 else ("were", "them")
    since = f", from {found['from']} on" if found["from"] else ""
    has = "has values that are not final for" if found["notFinal"] else "lacks"
    yield (
        f"{count(found['results'], 'result')} of the window {was} still open when the input"
        f" ended{since}, and the result {has} {it}: {found['remedy']}."
    )


def _where(
    document: Mapping[str, Any], left: Mapping[str, int], known: Sequence[str]
) -> Iterator[str]:
    """Where the rows are that do not match, or what all of them have in common."""
    rows, other = document["rows"], side_key(document)
    check = "" if known else f": {_CHECK_SOURCES} the window"
    what, the = "keys" if rows["different"] else "rows", side_in_words(document)
    if not rows["result"]:
        yield f"The result has no rows in the window{check}."
    elif parts := _parts(document, left):
        corrected = left["different"] and is_uniform(document)
        for part, which in parts:
            advice = "" if corrected else _advice(part, document, known)
            yield f"{_many(part, which)} {part.where}{advice}."
    elif left["missing"] and not left["different"] + left["extra"]:
        yield f"All {what} of the result are in {the}, which has more rows{check}."
    elif left["extra"] and not left["different"] + left["missing"]:
        yield (
            f"All {what} of {the} are in the result, which has more rows: {_WRITER[other]}"
            " may have dropped late events or missed some."
        )


def _parts(document: Mapping[str, Any], left: Mapping[str, int]) -> list[tuple[Part, str]]:
    """The part of the window with the rows that do not match. If what the result lacks is in
    another part than what it has instead, or only one of the two is in a part: these. Beside each
    part, what its rows are, in words.
    """
    by_kind = []
    if left["extra"] and _apart(left) > left["extra"]:
        lacks = f"{{are}} only in {side_in_words(document)}"
        if left["different"]:
            lacks = f"{{differ}} or {lacks}" if left["missing"] else "{differ}"
        both: dict[tuple[str, ...], str] = {
            tuple(kind for kind in ("different", "missing") if left[kind]): lacks,
            ("extra",): "{are} only in the result",
        }
        found = ((kinds, part_of(document, kinds)) for kinds in both)
        by_kind = [
            (part, _rows_that(both[kinds], document, kinds))
            for kinds, part in found
            if part is not None and part.apart >= _apart(left) * _FEW
        ]
    kinds = [kind for kind in KINDS if left[kind]]
    whole = part_of(document, kinds)
    if whole is None or len({part.where for part, _ in by_kind}) > 1:
        return sorted(by_kind, key=lambda each: -each[0].apart)
    is_all = left["different"] or not document["rows"]["different"]
    what = "{do} not match" if is_all else "{are} only on one side"
    return [(whole, _rows_that(what, document, KINDS))]


def _rows_that(what: str, document: Mapping[str, Any], kinds: Iterable[str]) -> str:
    other = "other " if any(_repeated(document, kind) for kind in kinds) else ""
    return f"{other}{{row}} that {what}"


def _many(part: Part, which: str) -> str:
    """How many of the rows of some kinds are in a part of the window, in words."""
    if part.whole == 1:
        return f"The one {which.format(row='row', do='does', are='is', differ='differs')} is"
    rows = which.format(row="rows", do="do", are="are", differ="differ")
    some = "All" if part.apart == part.whole else f"{part.apart:,} of"
    return f"{some} {part.whole:,} {rows} are"


def _advice(part: Part, document: Mapping[str, Any], known: Sequence[str]) -> str:
    """What to check for a part of the window; empty if the run knows it."""
    if part.at_start or part.at_end:
        return _of_the_edges(part, document, known)
    if part.mostly("extra"):
        if not part.matching:
            return f", where no row matches: {side_in_words(document)} may have a gap there"
        writer = _WRITER[side_key(document)]
        return f": {writer} may have missed events of that time, or dropped them as late"
    if known or part.whole == 1:
        return ""
    if part.mostly("missing"):
        return f": {_CHECK_SOURCES} that time"
    return ": check what was different then, such as the version of the application"


def _of_the_edges(part: Part, document: Mapping[str, Any], known: Sequence[str]) -> str:
    extra = part.mostly("extra")
    if extra and not part.at_start:
        whole = f"{side_in_words(document)} had all rows up to that point when it was compared"
        return f": check whether {whole}"
    told = document["openAtEnd"]["results"]
    fields = ["window.warmUp"] * part.at_start
    fields += ["window.drain"] * (part.at_end and not extra and not told)
    if not fields:
        return ""
    short = f": {' and '.join(fields)} may be too short"
    if extra:
        return f"{short}, or {_WRITER[side_key(document)]} may have missed events there"
    if known or not part.mostly("missing"):
        return short
    they_are = "they are" if len(fields) > 1 else "it is"
    return f"{short}. If {they_are} not, {_CHECK_SOURCES} that time"


def _of_the_input(document: Mapping[str, Any], left: Mapping[str, int]) -> Iterator[str]:
    """What else was seen in the input, and may be a cause."""
    for note in document["inputNotes"]:
        yield f"Also seen in the input: {note}."
    late = document["rowsArrivedLate"]
    if late and left["extra"] + left["different"]:
        were, it = ("was", "it") if late == 1 else ("were", "them")
        yield (
            f"{count(late, 'row')} of the input {were} so late that a stream drops {it}. The"
            f" result reflects {it}, and {_WITHOUT_LATE[side_key(document)]}."
        )


def _columns(document: Mapping[str, Any]) -> Iterator[str]:
    """Columns that differ from run to run, or in no single way."""
    depends = dict(run_dependent(document))
    for name, what in depends.items():
        yield (
            f"{name} looks like {what}, which differs from run to run: add it to validate.ignore."
        )
    known = {*depends, *(each["column"] for each in document["changes"])}
    differ = {name: of for name, of in document["byColumn"].items() if of}
    others = sorted(differ.keys() - known, key=lambda name: (-differ[name], name))
    for name in others[:_MOST_COLUMNS]:
        if known or differs_alone(document, name):
            yield f"{rows_differ(document, name)}, in no single way: {_COMPARE}."
