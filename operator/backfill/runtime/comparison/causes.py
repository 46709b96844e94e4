"""What a comparison shows about why rows do not match."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from backfill.api.quantities import count

_MOST = Fraction(9, 10)
"""So much of what does not match is worth saying, if it has one thing in common."""
_THE = {"production": "production", "reference": "the reference"}
_WRITER = {"production": "production", "reference": "what wrote it"}
_WITHOUT_LATE = {
    "production": "production probably does not",
    "reference": "the reference does not if a stream wrote it",
}


def side_key(document: Mapping[str, Any]) -> str:
    """What the result was compared with: ``production`` or ``reference``, as in the document."""
    return "reference" if document["validate"].get("against") == "Reference" else "production"


def side_in_words(document: Mapping[str, Any]) -> str:
    """What the result was compared with, in words."""
    return _THE[side_key(document)]


def causes(document: Mapping[str, Any]) -> list[str]:
    """One sentence for each cause that the figures show, the most likely first."""
    rows, other = document["rows"], side_key(document)
    if not rows["different"] + rows["missing"] + rows["extra"]:
        return []
    return [
        *_one_sided(rows, other),
        *_nothing_in_common(document),
        *(_in_one_stretch(document) if rows[other] and rows["result"] else ()),
        *_of_the_input(document),
        *_twice(document),
        *_one_column(document),
    ]


def _one_sided(rows: Mapping[str, int], other: str) -> Iterator[str]:
    if not rows[other]:
        whose = "Production" if other == "production" else "The reference"
        yield f"{whose} has no rows in the window: there is nothing to compare the result with."
    elif not rows["result"]:
        yield "The result has no rows in the window."
    elif rows["missing"] and not rows["different"] + rows["extra"]:
        yield (
            f"All rows of the result are in {_THE[other]}, which has more: check whether the"
            " sources still hold all events of the window."
        )
    elif rows["extra"] and not rows["different"] + rows["missing"]:
        yield (
            f"All rows of {_THE[other]} are in the result, which has more: {_WRITER[other]} may"
            " have dropped late events or missed some."
        )


def _nothing_in_common(document: Mapping[str, Any]) -> Iterator[str]:
    rows, other = document["rows"], side_key(document)
    if rows["matching"] + rows["different"] or not (rows[other] and rows["result"]):
        return
    if document["validate"].get("keys"):
        yield (
            f"No row of the result has the keys of a row of {_THE[other]}: check that no key is"
            " different in every run, such as a random ID, and that both have times of the same"
            " zone."
        )
    else:
        yield (
            f"No row of the result is equal to one of {_THE[other]}: if a column is different in"
            " every run, such as the time of writing, add it to validate.ignore."
        )


def _in_one_stretch(document: Mapping[str, Any]) -> Iterator[str]:
    """Rows in one stretch of the window. Those at its ends need what is read before and after."""
    last = document["stretches"] - 1
    apart = {each["number"]: _apart(each) for each in document["byTime"]}
    rows = {each["number"]: each["matching"] + _apart(each) for each in document["byTime"]}
    starts = {each["number"]: each["start"] for each in document["byTime"]}
    whole = sum(apart.values())
    if last < 2 or not whole:
        return
    number = max(apart, key=lambda each: apart[each])
    share = apart[number]
    if share < whole * _MOST or rows[number] >= sum(rows.values()) * _MOST:
        return
    of_which = f"{share:,} of {whole:,} rows that do not match are in the"
    if number == 0:
        yield f"{of_which} first stretch of the window: window.warmUp may be too short."
    elif number == last:
        yield f"{of_which} last stretch of the window: window.drain may be too short."
    else:
        yield f"{of_which} stretch of the window that begins at {starts[number]}."


def _of_the_input(document: Mapping[str, Any]) -> Iterator[str]:
    """What the run knows of its input, where such rows do not match."""
    rows = document["rows"]
    if rows["missing"] + rows["different"]:
        for missing in document["missingInput"]:
            yield f"Input is missing, so that the result may lack rows. {missing}."
    for note in document["inputNotes"]:
        yield f"Seen in the input, too: {note}."
    late = document["rowsArrivedLate"]
    if late and rows["extra"] + rows["different"]:
        were = "was" if late == 1 else "were"
        yield (
            f"{count(late, 'row')} of the input {were} so late that a stream drops"
            f" {'it' if late == 1 else 'them'}. The result has what follows from"
            f" {'it' if late == 1 else 'them'}, and {_WITHOUT_LATE[side_key(document)]}."
        )


def _twice(document: Mapping[str, Any]) -> Iterator[str]:
    if not document["validate"].get("keys"):
        return
    other = side_key(document)
    for side, where in ((other, _THE[other]), ("result", "the result")):
        keys = document["duplicateKeys"][side]
        if keys:
            yield (
                f"{count(keys, 'key')} {'occurs' if keys == 1 else 'occur'} more than once in"
                f" {where}: either rows were written twice, or the keys do not identify a row."
            )


def _one_column(document: Mapping[str, Any]) -> Iterator[str]:
    columns: Sequence[tuple[str, int]] = sorted(
        document["byColumn"].items(), key=lambda item: -item[1]
    )
    # of rows whose key occurs more than once, it is unknown in what they differ
    if (
        columns
        and columns[0][1] == document["rows"]["different"] > 0
        and not any(pairs for _, pairs in columns[1:])
    ):
        yield (
            f"All pairs that differ do so only in {columns[0][0]}. If it is not meant to be the"
            " same, add it to validate.ignore, or give it a tolerance."
        )


def _apart(each: Mapping[str, int]) -> int:
    return each["different"] + each["missing"] + each["extra"]
