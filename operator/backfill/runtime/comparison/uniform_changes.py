"""What a comparison shows about how values were changed, in words: a correction is meant to differ
from production, and is judged by what it has changed.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, Final

from backfill.api.quantities import count, parse_time
from backfill.runtime.comparison.count_matches import Found
from backfill.runtime.comparison.value_changes import Change

_NEARLY_ALL = Fraction(99, 100)
_FEW = 1 - _NEARLY_ALL
_MOST_SENTENCES = 5
_LONGEST_ZONE_SECONDS, _ZONE_STEP_SECONDS = 14 * 3600, 900
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_AMOUNTS: Final = {"factor": "factor", "offset": "offset", "shift": "shiftSeconds"}


def side_key(document: Mapping[str, Any]) -> str:
    """What the result was compared with: ``production`` or ``reference``, as in the document."""
    return "reference" if document["validate"].get("against") == "Reference" else "production"


def side_in_words(document: Mapping[str, Any]) -> str:
    """What the result was compared with, in words."""
    return "production" if side_key(document) == "production" else "the reference"


def stored_changes(found: Found) -> list[dict[str, object]]:
    """By column, the change that holds for most of the pairs that differ in it, if for at least
    half of them.
    """
    best: dict[str, tuple[Change, int]] = {}
    for change, held in found.changes.items():
        _, most = best.get(change.column, (None, 0))
        if held > most and 2 * held >= found.columns[change.column]:
            best[change.column] = change, held
    return [
        {
            "column": name,
            "kind": change.kind,
            **({_AMOUNTS[change.kind]: _number(change.amount)} if change.kind in _AMOUNTS else {}),
            **({"fromColumn": change.source} if change.kind == "column" else {}),
            "exact": change.exact,
            "rows": held,
            "of": found.columns[name],
        }
        for name, (change, held) in best.items()
    ]


def is_uniform(document: Mapping[str, Any]) -> bool:
    """Whether nearly all rows that are different were changed in one way in each column that
    differs, and none of these changes has lost values. Columns that differ from run to run do not
    count.
    """
    known = {
        each["column"]
        for each in document["changes"]
        if each["kind"] != "becameNull" and each["rows"] >= _NEARLY_ALL * each["of"]
    }
    pairs = document["pairs"]
    differ = {name for name, of in document["byColumn"].items() if of > _FEW * pairs}
    others = differ - dict(run_dependent(document)).keys()
    return pairs >= _NEARLY_ALL * document["rows"]["different"] and set() < others <= known


def is_explained(document: Mapping[str, Any]) -> bool:
    """Whether that is so, and hardly any row is only on one side."""
    rows = document["rows"]
    one_sided = rows["missing"] + rows["extra"]
    return is_uniform(document) and one_sided <= _FEW * (one_sided + rows["different"])


def changes_in_words(document: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each column whose values were changed in one way, those that differ most
    first.
    """
    changed = sorted(document["changes"], key=lambda each: -each["of"])
    taken = {each["column"]: each.get("fromColumn") for each in changed}
    said: dict[str, str] = {}
    for each in changed:
        name, source = each["column"], each.get("fromColumn")
        swapped = source is not None and taken.get(source) == name
        if swapped and source in said:
            continue
        what = (
            f"{name} and {source} are swapped"
            if swapped
            else change_in_words(each, side_in_words(document))
        )
        part = "" if each["rows"] == each["of"] else f" in {each['rows']:,} of them"
        said[name] = f"{rows_differ(document, name)}: {what}{part}."
    yield from islice(said.values(), _MOST_SENTENCES)
    if len(said) > _MOST_SENTENCES:
        more = count(len(said) - _MOST_SENTENCES, "more column")
        yield f"In {more}, rows differ in one way, too; the report says in which."


def rows_differ(document: Mapping[str, Any], name: str) -> str:
    """In how many rows a column differs, in words."""
    differing, rows = document["byColumn"], document["rows"]
    alone = ", and in no other column" if differs_alone(document, name) else ""
    both = count(rows["matching"] + rows["different"], "row")
    verb = "differs" if differing[name] == 1 else "differ"
    return f"{differing[name]:,} of {both} {verb} in {name}{alone}"


def differs_alone(document: Mapping[str, Any], name: str) -> bool:
    """Whether no row differs in another column. Of rows whose key occurs more than once, it is
    unknown in what they differ.
    """
    others = (of for column, of in document["byColumn"].items() if column != name)
    return document["byColumn"][name] == document["rows"]["different"] and not any(others)


def change_in_words(change: Mapping[str, Any], other: str) -> str:
    """What was done to the values of a column; ``other`` is what the result was compared with."""
    exactly, rounded = ("exactly ", "") if change["exact"] else ("", ", but for rounding")
    match change["kind"]:
        case "factor" if change["factor"] == "-1":
            return f"the result is {exactly}{other} with the opposite sign{rounded}"
        case "factor":
            return f"the result is {exactly}{change['factor']} times {other}{rounded}"
        case "offset":
            sign = "minus" if change["offset"].startswith("-") else "plus"
            amount = change["offset"].removeprefix("-")
            return f"the result is {exactly}{other} {sign} {amount}{rounded}"
        case "shift":
            return _shift_in_words(Fraction(change["shiftSeconds"]), other)
        case "rounding":
            return f"the result is {other}, but for the rounding of floating-point numbers"
        case "column":
            return f"the result has the values of column {change['fromColumn']} of {other}"
        case "text":
            return f"the result is {other}, but for case or surrounding blanks"
        case "becameNull":
            return f"the result is null where {other} has a value"
    return f"the result has a value where {other} is null"


def _shift_in_words(shift: Fraction, other: str) -> str:
    is_zone = shift % _ZONE_STEP_SECONDS == 0 and abs(shift) <= _LONGEST_ZONE_SECONDS
    hint = ", as with another time zone" if is_zone else ""
    way = "later" if shift > 0 else "earlier"
    return f"the result is exactly {_length(abs(shift))} {way} than {other}{hint}"


def _length(seconds: Fraction) -> str:
    units = (each for each in _UNITS if seconds and seconds % each[1] == 0)
    unit, length = next(units, ("second", 1))
    number = _number(seconds / length)
    return f"{number} {unit}{'' if number == '1' else 's'}"


def difference(ours: str | None, theirs: str | None) -> str:
    """The result's value minus the other one, if both are numbers or times, and their ratio."""
    if ours is None or theirs is None:
        return ""
    with suppress(ArithmeticError):
        one, other = Decimal(ours), Decimal(theirs)
        times = float(f"{one / other:.4g}") if one and other else None
        ratio = f" ({times:,.10g} times)" if times not in {None, 1} else ""
        return f"{float(one - other):+,.10g}{ratio}" if (one - other).is_finite() else ""
    with suppress(ValueError, TypeError):
        apart = datetime.fromisoformat(ours) - datetime.fromisoformat(theirs)
        return f"{'-' if apart < timedelta() else '+'}{abs(apart)}"
    return ""


def run_dependent(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Columns whose values look as if they differed from run to run, and what they look like."""
    changed = {each["column"] for each in document["changes"]}
    end, other = parse_time(document["window"]["end"]), side_key(document)
    for name, of in document["byColumn"].items():
        values = [
            (each["result"][name] or "", each[other][name] or "")
            for each in document["samples"]
            if name in each["differs"]
        ]
        if not of or not values or name in changed:
            continue
        if all(_UUID.fullmatch(text) for pair in values for text in pair):
            yield name, "a random ID"
        elif all(_is_later(*pair, end) for pair in values):
            yield name, "the time of writing"


def _is_later(ours: str, theirs: str, end: datetime) -> bool:
    """Whether the result has a time after the window, and after that of the other side."""
    try:
        one, other = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (ours, theirs))
    except ValueError:
        return False
    return one >= end and one > other


def _number(amount: Fraction) -> str:
    """As a decimal if it has few digits, otherwise as a fraction."""
    places = next((n for n in range(7) if (amount * 10**n).denominator == 1), None)
    if places is None:
        return str(amount)
    return f"{float(amount):.{places}f}" if places else str(amount.numerator)
