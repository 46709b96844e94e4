"""After publishing: the state continues with live traffic."""

from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason
from backfill.api.hand_off import HandedOverQuery, HandedOverSource, HandOff, HandOffStatus
from backfill.api.quantities import count, format_duration, format_time
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.actions import Next, StartLive
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.driver import DriverState
from backfill.kube.object_names import live_name
from backfill.protocol.hand_off_messages import HandOffReport, LiveQuery, LiveReport

LOOK_SECONDS = 10.0
"""Time between two looks at a live application that is catching up."""
REPORT_PATIENCE = timedelta(minutes=2)
"""A live application is not known to have caught up if its last report is older."""
_HANDED_OVER = ConditionType.HANDED_OVER


def hand_over(observed: Observed, draft: Draft) -> Next | None:
    """Starts the live application, if the spec asks for it, and waits until it has caught up. None
    once the state is handed over.
    """
    wanted, handed = observed.backfill.spec.hand_off, draft.status.hand_off
    if wanted is None or handed is None:
        return None
    if wanted.start == "Prepare":
        draft.condition(_HANDED_OVER, "True", Reason.PREPARED, _prepared(observed, draft, handed))
        return None
    if handed.application is None:
        name = wanted.name or live_name(observed.backfill.metadata.name)
        draft.set(hand_off=handed.model_copy(update={"application": name}))
        _say_starting(draft, name)
        return Next(actions=(StartLive(),), requeue_seconds=LOOK_SECONDS)
    return _watch(observed, draft, wanted, handed.application)


def with_report(handed: HandOffStatus | None, report: HandOffReport) -> HandOffStatus:
    """The status with what a driver has reported: how long Kafka keeps what follows history, what
    is read twice, and complete checkpoints.
    """
    before = handed or HandOffStatus()
    kept = [each.kept_until for each in report.sources if each.kept_until is not None]
    starts = {each.starting_timestamp for each in report.sources}
    repeated = set(report.repeated_in)
    if not report.written:  # queries start one after the other, again in each attempt
        starts.add(before.starting_timestamp)
        repeated.update(before.repeated_in or ())
    before_reading = {
        "kept_until": min(kept, default=None),
        "starting_timestamp": min((each for each in starts if each is not None), default=None),
        "repeated_in": tuple(sorted(repeated)) or None,
    }
    known = before.model_copy(update=before_reading)
    if not report.written:
        return known
    sources = tuple(
        HandedOverSource(
            name=each.source,
            topic=each.topic,
            partitions=each.partitions,
            offsets=each.offsets,
            starting_timestamp=each.starting_timestamp,
        )
        for each in report.sources
    )
    queries = tuple(
        HandedOverQuery(
            name=each.query,
            checkpoint_location=each.checkpoint_location,
            query_id=each.query_id or None,
            batch=each.batch,
            state_partitions=each.state_partitions,
        )
        for each in report.queries
    )
    fields = {"sources": sources, "queries": queries, "seconds": report.seconds}
    return known.model_copy(update=fields)


def retention_warning(status: BackfillStatus) -> str:
    """That Kafka may remove what follows history before history is read; otherwise empty."""
    until = status.hand_off.kept_until if status.hand_off else None
    done = status.progress.eta
    if until is None or done is None or done <= until:
        return ""
    if status.hand_off is not None and status.hand_off.growing:
        return ""  # what follows is still read from the tables
    return (
        f"after {format_time(until)}, Kafka may remove records that follow history, but reading"
        " history is expected to take longer: give the topics a longer retention"
    )


def repeats_warning(status: BackfillStatus) -> str:
    """A warning if there are queries that are not known to drop the records that are read twice;
    otherwise empty.
    """
    handed = status.hand_off
    if handed is None or handed.starting_timestamp is None or not handed.repeated_in:
        return ""
    return (
        f"live traffic continues with records from {format_time(handed.starting_timestamp)}, some"
        " of which are already part of history, and these queries are not known to drop"
        f" duplicates: {', '.join(handed.repeated_in)}; their results may count these records"
        " twice"
    )


def history_remark(status: BackfillStatus) -> str:
    """Where history ends, once it is no longer extended; otherwise empty."""
    handed = status.hand_off
    if handed is None or handed.history_end is None or handed.complete_because is None:
        return ""
    return f"history ends at {format_time(handed.history_end)}: {handed.complete_because}"


def _watch(observed: Observed, draft: Draft, wanted: HandOff, name: str) -> Next | None:
    """Follows the live application, whose name is recorded."""
    state = observed.live or DriverState()
    _record(observed, draft, name)
    handed = draft.status.hand_off or HandOffStatus()
    if handed.created_at is None:
        if state.reason == "Refused":
            _say_blocked(draft, name, state)
        else:
            _say_starting(draft, name)
        return Next(actions=(StartLive(),), requeue_seconds=LOOK_SECONDS)
    if state.phase == "Absent":
        return _fail(draft, handed, f"SparkApplication {name} was deleted before it caught up")
    lag = handed.lag_seconds if state.phase == "Running" else None
    if lag is not None and lag <= wanted.max_lag.total_seconds():
        draft.condition(_HANDED_OVER, "True", Reason.LIVE, _live(draft, wanted, name))
        return None
    if state.phase in {"Running", "Exited"} and (astray := _astray(handed, observed.live_report)):
        message = _without_state(astray, name)
        draft.condition(_HANDED_OVER, "Unknown", Reason.LIVE_START_BLOCKED, message)
    elif state.phase == "Exited":
        why = ": ".join(filter(None, (state.reason, state.message)))
        draft.condition(
            _HANDED_OVER,
            "Unknown",
            Reason.LIVE_START_BLOCKED,
            f"SparkApplication {name} ended before it caught up: {why}",
        )
    elif state.phase == "Pending":
        draft.condition(
            _HANDED_OVER,
            "Unknown",
            Reason.STARTING,
            f"SparkApplication {name} has no driver yet{_why(state)}",
        )
    else:
        message = _catching_up(observed, handed, name)
        draft.condition(_HANDED_OVER, "Unknown", Reason.CATCHING_UP, message)
    return Next(requeue_seconds=LOOK_SECONDS)


def _record(observed: Observed, draft: Draft, name: str) -> None:
    """Records that the live application exists, and how far it is behind."""
    handed, state = draft.status.hand_off, observed.live
    if handed is None:
        return
    exists = state is not None and state.phase != "Absent" and state.reason != "Refused"
    if handed.created_at is None and exists:
        handed = handed.model_copy(update={"created_at": observed.now})
    report = observed.live_report
    queries = tuple(_as_it_goes_on(query, report) for query in handed.queries)
    lags = [query.lag_seconds for query in queries]
    known = [lag for lag in lags if lag is not None]
    stale = (
        report is None
        or observed.now - report.heartbeat > REPORT_PATIENCE
        # an application that was deleted has reported
        or (handed.created_at is not None and report.heartbeat < handed.created_at)
    )
    lag = None if stale or not known or len(known) < len(lags) else max(known)
    draft.set(hand_off=handed.model_copy(update={"queries": queries, "lag_seconds": lag}))


def _as_it_goes_on(query: HandedOverQuery, report: LiveReport | None) -> HandedOverQuery:
    """A query with what its driver reports; how far behind one is that does not run is unknown."""
    reported = report.queries if report is not None else ()
    found = next((each for each in reported if _is_same(query, each)), None)
    if found is None:  # what an earlier driver has reported of it does not count
        return query.model_copy(update={"lag_seconds": None})
    fields = {
        "live_batch": found.batch,
        "records_behind": found.records_behind,
        "lag_seconds": None if found.ended else found.lag_seconds,
    }
    return query.model_copy(update=fields)


def _is_same(query: HandedOverQuery, live: LiveQuery) -> bool:
    """Whether a query of the live application continues with a state: by its ID, else its name."""
    if query.query_id and live.query_id:
        return query.query_id == live.query_id
    return query.name == live.query


def _astray(handed: HandOffStatus, report: LiveReport | None) -> list[HandedOverQuery]:
    """The queries that have started under their names, but not with the ID in their checkpoints: at
    their locations the live driver has found nothing.
    """
    if report is None or handed.created_at is None or report.heartbeat < handed.created_at:
        return []
    started = {each.query for each in report.queries if each.query_id}
    return [query for query in _not_started(handed, report) if query.name in started]


def _not_started(handed: HandOffStatus, report: LiveReport) -> list[HandedOverQuery]:
    """The queries of which no live query has the ID."""
    ids = {each.query_id for each in report.queries}
    return [query for query in handed.queries if query.query_id and query.query_id not in ids]


def _fail(draft: Draft, handed: HandOffStatus, message: str) -> Next:
    """Ends the Backfill. A retry creates the live application again."""
    forgotten = {"application": None, "created_at": None, "lag_seconds": None}
    draft.set(hand_off=handed.model_copy(update=forgotten))
    draft.fail(_HANDED_OVER, Reason.HAND_OFF_FAILED, message)
    return Next(at_rest=True)


def _say_starting(draft: Draft, name: str) -> None:
    draft.condition(
        _HANDED_OVER, "Unknown", Reason.STARTING, f"creating the live SparkApplication {name}"
    )


def _say_blocked(draft: Draft, name: str, state: DriverState) -> None:
    message = f"the live SparkApplication {name} cannot be created{_why(state)}"
    draft.condition(_HANDED_OVER, "Unknown", Reason.LIVE_START_BLOCKED, message)


def _why(state: DriverState) -> str:
    return f": {state.message}" if state.message else ""


def _without_state(queries: list[HandedOverQuery], name: str) -> str:
    """Which queries lack their state, and what to do. The places come last: the message ends where
    there are too many.
    """
    whose = "its" if len(queries) == 1 else "their"
    return (
        f"SparkApplication {name} started {_names(queries)} without {whose} state, so {whose}"
        f" results are wrong: delete {name} and everything it wrote, and start the application"
        " with each query's checkpointLocation set to where its state is; if the state was on a"
        " pod's own disk, create the Backfill again with another checkpointLocation\nthe state is"
        f" in {_places(queries)}"
    )


def _names(queries: list[HandedOverQuery]) -> str:
    what = "the query" if len(queries) == 1 else "the queries"
    return f"{what} {', '.join(each.name for each in queries)}"


def _places(queries: list[HandedOverQuery]) -> str:
    return ", ".join(each.checkpoint_location for each in queries)


def _catching_up(observed: Observed, handed: HandOffStatus, name: str) -> str:
    message = f"SparkApplication {name} is catching up with Kafka"
    report = observed.live_report
    if report is None:
        return f"{message}; its driver has not reported yet"
    if observed.now - report.heartbeat > REPORT_PATIENCE:
        return f"{message}; its driver has sent no report for {format_duration(REPORT_PATIENCE)}"
    if report.message:
        return f"{message}: {report.message}"
    missing = _not_started(handed, report)
    if missing:
        return f"{message}; no query has started yet from the state in {_places(missing)}"
    return message


def _live(draft: Draft, wanted: HandOff, name: str) -> str:
    message = (
        f"SparkApplication {name} reads live traffic, at most {format_duration(wanted.max_lag)}"
        " behind"
    )
    remarks = (repeats_warning(draft.status), history_remark(draft.status))
    return "; ".join(filter(None, (message, *remarks)))


def _prepared(observed: Observed, draft: Draft, handed: HandOffStatus) -> str:
    """Where the checkpoints are, how the application is started, and what it reads twice."""
    places = "; ".join(f"{query.name} in {query.checkpoint_location}" for query in handed.queries)
    remarks = (repeats_warning(draft.status), history_remark(draft.status))
    places = "\n".join(filter(None, (*remarks, places)))
    written = f"{count(len(handed.queries), 'checkpoint')} written"
    reference = observed.backfill.spec.application_ref
    application = reference.name
    if observed.policy.screen:
        return f"{written}; start {application} as usual: it continues with live traffic\n{places}"
    namespace = observed.backfill.metadata.namespace
    # a cluster may have those of both Spark operators
    kind = f"sparkapplications.{reference.api_version.partition('/')[0]}"
    patch = """'{"spec":{"suspend":false}}'"""
    # first what to do: the message ends where there are too many places
    return (
        f"{written}; start {application} as usual, for example: kubectl patch {kind} {application}"
        f" -n {namespace} --type merge -p {patch}\n{places}"
    )
