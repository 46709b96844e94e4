"""How much to read around the window, and how strictly in order: from what the program's results
depend on, and from how late rows arrived.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from backfill.api.quantities import count, format_duration
from backfill.api.spec import Ordering
from backfill.api.status import execution_in_words
from backfill.controller.proposing.proposed import Chosen, Proposal, ProposedSource
from backfill.planning.lateness_sample import ArrivalLags
from backfill.protocol.explanation import ExplainedQuery

_SECOND_US = 1_000_000
_LONGEST_LAG_US = 366 * 86_400 * _SECOND_US
"""A row that is further from its event time has a wrong one, such as the beginning of 1970."""
_DEFAULT_LATENESS = Ordering().allowed_lateness


@dataclass(frozen=True, slots=True)
class Times:
    """The lengths of time of the manifest."""

    warm_up: Chosen[str]
    drain: Chosen[str]
    allowed_lateness: Chosen[str]


def times(
    proposal: Proposal,
    explained: Sequence[ExplainedQuery] | None,
    lags: Mapping[str, ArrivalLags],
) -> Times:
    """The lengths of time for a program.

    Args:
        proposal: its sources and outputs.
        explained: what its results depend on; None where that could not be found out.
        lags: by source, how late its rows arrived, where that was measured.
    """
    outside = [each.name for each in proposal.outputs if each.timestamp_column is None]
    warm_up, drain = _warm_up(proposal, explained, lags), _drain(proposal, explained, lags)
    if outside:
        todo = (
            f"Output {outside[0]} has no timestampColumn, so the results of warmUp and drain cannot"
            " be excluded: both must be 0s."
        )
        warm_up, drain = Chosen("0s", todo=(todo,)), Chosen("0s", todo=(todo,))
    return Times(warm_up, drain, _allowed_lateness(proposal, lags))


def measured(source: ProposedSource, lags: ArrivalLags) -> str:
    """What was measured of a source, and how."""
    early = f"; the earliest {_length(-lags.least_us)} before it" if lags.least_us < 0 else ""
    files = f"{lags.files:,} of {count(lags.of_files, 'file')}"
    return (
        f"Measured on {count(lags.rows, 'row')} of {source.table.value} that arrived in the window,"
        f" from {files}: they arrived"
        f" ({source.timestamp_column.value}) up to {_length(max(lags.greatest_us, 0))} after they"
        f" happened ({source.event_column}), half of them within {_length(max(lags.half_us, 0))}"
        f" and 99.9% within {_length(max(lags.most_us, 0))}{early}."
    )


def _warm_up(
    proposal: Proposal, explained: Sequence[ExplainedQuery] | None, lags: Mapping[str, ArrivalLags]
) -> Chosen[str]:
    if explained is None:
        return Chosen("0s", todo=(_unknown("before", "sessions, windows and joins"),))
    why, todo, longest = [], _sessions(proposal), 0.0
    for query in explained:
        back = query.look_back_seconds
        if back is None:
            todo.append(_of_a_stream(query, "before"))
        elif back > 0:
            longest = max(longest, back)
            why.append(f"Results of {query.query} depend on rows up to {_seconds(back)} earlier.")
    early = _greatest([-each.early_us for each in lags.values()], todo)
    if early > 0:
        longest += math.ceil(early / _SECOND_US)
        why.append(f"99.9% of the rows arrived at most {_length(early)} before their event time.")
    if not longest and not todo:
        why.append("No result depends on rows before the window.")
    return Chosen(_seconds(longest), tuple(why), tuple(todo))


def _drain(
    proposal: Proposal, explained: Sequence[ExplainedQuery] | None, lags: Mapping[str, ArrivalLags]
) -> Chosen[str]:
    why: list[str] = []
    todo: list[str] = []
    longest = 0.0
    late = _greatest([each.most_us for each in lags.values()], todo)
    if explained is None:
        todo.append(_unknown("after", "the watermark delay, windows and joins"))
    else:
        todo += _sessions(proposal)
    for query in explained or ():
        ahead = query.look_ahead_seconds
        if ahead is None:
            delay = _delay(proposal, query.query)
            longest = max(longest, delay)
            todo.append(_of_a_stream(query, "after"))
        elif ahead > 0:
            # of a stream, later events must have arrived, and not only happened
            arrives = ahead + late / _SECOND_US if query.execution == "Streaming" else ahead
            longest = max(longest, arrives)
            why.append(
                f"Rows that results of {query.query} depend on may arrive up to {_seconds(arrives)}"
                " after these results, including the watermark delay."
            )
    if late > longest * _SECOND_US:
        longest = _rounded_up(late) / _SECOND_US
        why.append(f"99.9% of the rows arrived within {_length(late)} of their event time.")
    if not longest and not todo:
        why.append("No result depends on rows after the window.")
    return Chosen(_seconds(longest), tuple(why), tuple(todo))


def _greatest(lags: Sequence[int], todo: list[str]) -> int:
    """The greatest plausible lag, or 0 if there is none. For the others, adds to ``todo`` what to
    check.
    """
    right = [each for each in lags if each <= _LONGEST_LAG_US]
    if len(right) < len(lags):
        todo.append(
            "More than one in a thousand rows of a source have an event time more than a year away"
            " from their arrival time. They are ignored here; check these rows."
        )
    return max(right, default=0)


def _allowed_lateness(proposal: Proposal, lags: Mapping[str, ArrivalLags]) -> Chosen[str]:
    default = format_duration(_DEFAULT_LATENESS)
    watermarks = {
        (watermark.inputs, watermark.delay_seconds)
        for query in proposal.survey.queries
        for watermark in query.watermarks
    }
    if not watermarks:
        why = "The default: the program has no watermark, so no row can be too late."
        return Chosen(default, (why,))
    delay = min(seconds for _, seconds in watermarks)
    of_inputs = {source.read.name: lags.get(source.name) for source in proposal.sources}
    found = [of_inputs.get(name) for inputs, _ in watermarks for name in inputs]
    rooms = [
        seconds * _SECOND_US - max(known.most_us, 0)
        for inputs, seconds in watermarks
        for name in inputs
        if (known := of_inputs.get(name)) is not None
    ]
    if not rooms or any(each is None for each in found):
        todo = (
            f"Set this to at most the watermark delay of {_seconds(delay)} minus the usual lateness"
            " of events, which could not be measured for every source: no event time column was"
            " found besides the arrival time, or the table has no rows in the window."
        )
        return Chosen(
            format_duration(min(_DEFAULT_LATENESS, timedelta(seconds=delay))), (), (todo,)
        )
    least = min(rooms)
    room = timedelta(seconds=max(least, 0) // _SECOND_US)
    why = (
        f"The watermark delay of {_seconds(delay)} minus the lateness of 99.9% of the rows leaves"
        f" {format_duration(room)}"
    )
    if room >= _DEFAULT_LATENESS:
        return Chosen(default, (f"The default. {why}.",))
    if least >= 0:
        return Chosen(format_duration(room), (f"{why}.",))
    todo = (
        "Production drops rows as late: more than one in a thousand arrive after the watermark"
        f" delay of {_seconds(delay)}. Therefore, history is read in order of arrival."
    )
    return Chosen("0s", (), (todo,))


def _unknown(side: str, what: str) -> str:
    return (
        f"How much input is needed {side} the window depends on the reach of {what}. It can be"
        " computed once all tables are known: run init again, or see backfill plan --explain."
    )


def _of_a_stream(query: ExplainedQuery, side: str) -> str:
    how = execution_in_words(query.execution, query.execution_reason)
    return (
        f"How much input is needed {side} the window cannot be computed for {query.query}, which"
        f" {how}. Set {'warmUp' if side == 'before' else 'drain'} to the time span that the query's"
        " state covers."
    )


def _sessions(proposal: Proposal) -> list[str]:
    return [
        f"{query.name or 'A query'} has session windows: add the length of the longest session."
        for query in proposal.survey.queries
        if query.sessions
    ]


def _delay(proposal: Proposal, query: str) -> float:
    found = [
        watermark.delay_seconds
        for output in proposal.outputs
        if query in {output.name, output.query.name, output.query.function}
        for watermark in output.query.watermarks
    ]
    return max(found, default=0.0)


def _rounded_up(us: int) -> int:
    """A round length that is not shorter: whole seconds, and whole minutes from a minute on."""
    unit = 60 * _SECOND_US if us > 60 * _SECOND_US else _SECOND_US
    return -(-us // unit) * unit


def _length(us: int) -> str:
    return format_duration(timedelta(microseconds=_rounded_to_read(us)))


def _rounded_to_read(us: int) -> int:
    unit = _SECOND_US if us >= _SECOND_US else 1_000
    return -(-us // unit) * unit


def _seconds(seconds: float) -> str:
    return format_duration(timedelta(seconds=math.ceil(seconds)))
