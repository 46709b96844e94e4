"""Warnings about a plan: fields without effect, and what is missing in a result that replaces rows:
by gaps in history, or because the application reads the rows that are replaced.
"""

from collections.abc import Iterator
from datetime import timedelta
from operator import sub

from backfill.api.output import PublishMode
from backfill.api.pods import PodOverrides, PodResources
from backfill.api.quantities import count, format_duration, format_time, from_us
from backfill.api.spec import BackfillSpec, OrderingPolicy
from backfill.planning.plan import PlanHeader, SourceTotals
from backfill.planning.plan_summary import STEP_OVERHEAD_SECONDS

_FEW_ROWS = 2_000
"""Rows of a step that a stream reads in less time than a step takes anyway."""
_LONG_OVERHEAD_SECONDS = 180
_HOUR_US = 3_600_000_000
_GAP = 10
"""A gap of at least this fraction of the window (one in so many) is worth a warning,
if the window is replaced.
"""


def remarks(spec: BackfillSpec, header: PlanHeader, *, one_process: bool) -> Iterator[str]:
    """One sentence for each warning."""
    idle = [
        *_idle_anywhere(spec),
        *_idle_of_a_hand_off(spec),
        *(_idle_on_this_machine(spec) if one_process else ()),
    ]
    if idle:
        where = "on this machine" if one_process else "here"
        yield f"these fields have no effect {where}: {', '.join(idle)}"
    yield from _read_twice(spec)
    if spec.hand_off is not None and spec.ignored_queries:
        yield (
            "spec.ignoredQueries: the live application starts these queries without state; hand"
            " over all queries of the application in one Backfill, unless these need no state"
        )
    if any(output.publish.mode is PublishMode.REPLACE for output in spec.outputs):
        for source in header.sources:
            yield from _gap(source, header)
    yield from _own_results(spec)
    if spec.execution != "Batch":
        yield from _small_steps(header)


def _small_steps(header: PlanHeader) -> Iterator[str]:
    """That a stream takes longer for its many steps than for their rows, and what to set."""
    overhead = header.steps * STEP_OVERHEAD_SECONDS
    longest = max(map(sub, header.step_ends_us, header.step_starts_us), default=0)
    by_size = longest * 4 < header.inputs.max_misalignment_us  # or by files, and no longer if it is
    if overhead < _LONG_OVERHEAD_SECONDS or header.rows >= header.steps * _FEW_ROWS or by_size:
        return
    average = -(-header.rows // header.steps)
    times = -(-_FEW_ROWS // max(average, 1))
    hours = -(-header.inputs.max_misalignment_us * times // _HOUR_US)
    length = header.inputs.read_end_us - header.inputs.read_start_us
    wanted = format_duration(timedelta(hours=min(hours, -(-length // _HOUR_US))))
    yield (
        f"steps have only {count(average, 'row')} on average, and a query that runs as a stream"
        f" takes at least {overhead / 60:.0f} minutes for the overhead of its"
        f" {count(header.steps, 'step')}: spec.maxMisalignment: {wanted} makes fewer of them, if"
        " the application's state may be larger"
    )


def _idle_anywhere(spec: BackfillSpec) -> Iterator[str]:
    policy = spec.ordering.policy
    given = spec.ordering.allowed_lateness != type(spec.ordering)().allowed_lateness
    unused = policy in {OrderingPolicy.EXACT, OrderingPolicy.UNORDERED}
    # batch jobs read this much earlier under any policy
    if given and unused and spec.execution == "Streaming":
        yield f"spec.ordering.allowedLateness with policy {policy}"


def _idle_of_a_hand_off(spec: BackfillSpec) -> Iterator[str]:
    wanted = spec.hand_off
    if wanted is not None and wanted.starting_timestamp_margin is not None and not _by_time(spec):
        yield "spec.handOff.startingTimestampMargin when all sources have Kafka offsets"
    if wanted is not None and wanted.start == "Prepare":
        defaults = type(wanted)(to=wanted.to)
        for name in ("name", "overrides", "max_lag"):
            if getattr(wanted, name) != getattr(defaults, name):
                field = type(wanted).model_fields[name].alias
                yield f"spec.handOff.{field} with start: Prepare"


def _by_time(spec: BackfillSpec) -> list[str]:
    """Names of the sources that a hand-off continues by time."""
    return [each.name for each in spec.sources if not each.kafka.identifies_records]


def _read_twice(spec: BackfillSpec) -> Iterator[str]:
    """That a hand-off by time reads records twice, and may lose others."""
    by_time = _by_time(spec)
    margin = spec.hand_off.starting_timestamp_margin if spec.hand_off is not None else None
    if margin is None or not by_time:
        return
    several = len(by_time) > 1
    yield (
        f"{'sources' if several else 'source'} {', '.join(by_time)}: live traffic continues with"
        f" records up to {format_duration(margin)} older than the newest"
        f" row{' of each' if several else ''}; queries must drop duplicates, and older records"
        " that are missing from the table are lost"
    )


def _idle_on_this_machine(spec: BackfillSpec) -> Iterator[str]:
    if spec.scaling != type(spec.scaling)():
        yield "spec.scaling"
    if spec.overrides.driver.model_copy(update={"memory": None}) != PodOverrides():
        yield "fields of spec.overrides.driver other than memory"
    if spec.overrides.executor != PodOverrides():
        yield "spec.overrides.executor"
    if spec.planning.resources != PodResources():
        yield "spec.planning.resources"
    if any(catalog.secret_ref for catalog in spec.catalogs):
        yield "spec.catalogs[].secretRef (PyIceberg's own configuration is used)"


def _gap(source: SourceTotals, header: PlanHeader) -> Iterator[str]:
    """The longest part of the window without a row of a source, if it is long.

    Condition ``InputComplete`` says nothing of it, because the source may always have such pauses:
    between bursts, at night, or with few rows. What Replace would delete there is counted after the
    last step.
    """
    start_us, end_us = header.inputs.start_us, header.inputs.end_us
    times = zip(header.step_starts_us, header.step_ends_us, source.step_rows, strict=True)
    read = [
        (first, last) for first, last, rows in times if rows and last > start_us and first < end_us
    ]
    edges = zip(
        [start_us, *(last for _, last in read)],
        [*(first for first, _ in read), end_us],
        strict=True,
    )
    first, last = max(edges, key=lambda edge: edge[1] - edge[0])
    if (last - first) * _GAP >= end_us - start_us:
        stretch = f"[{format_time(from_us(first))}, {format_time(from_us(last))})"
        yield (
            f"source {source.name} has no rows in {stretch}: Replace deletes existing results that"
            " depend on rows of that time and writes no new ones"
        )


def _own_results(spec: BackfillSpec) -> Iterator[str]:
    """Static tables with the rows that Replace deletes: an application may leave out of its result
    what it finds in them.
    """
    start = format_time(spec.window.start)
    for number, static in enumerate(spec.static_tables):
        as_of = static.snapshot(spec.window.end).as_of
        if as_of is not None and as_of <= spec.window.start:
            continue
        for output in spec.outputs:
            if output.table == static.table and output.publish.mode is PublishMode.REPLACE:
                yield (
                    f"spec.staticTables[{number}]: {static.table} is also the table of output"
                    f" {output.name}, so the application reads the old results of the window; if it"
                    " leaves out rows that are already there, as a left_anti join does, Replace"
                    f" deletes these and writes no new ones: set asOf to {start} or earlier, or"
                    " publish with Append or Upsert"
                )
