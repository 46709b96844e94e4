"""A cluster in memory: a controller, a driver with queries, and a network between them that loses
and mixes messages.

It uses the real watermarks and the real release. What survives a crash (the resource, checkpoints,
the sink) is kept apart from what does not. Every read is checked against the truth in the
checkpoints, which no participant knows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backfill.api.quantities import from_us
from backfill.coordination.released_steps import release
from backfill.coordination.timeline import Timeline
from backfill.coordination.watermarks import Watermarks, watermarks
from backfill.protocol.split_assignment import (
    QueryProgress,
    SourceProgress,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)


class BrokenPromiseError(AssertionError):
    """Something happened that must never happen."""


@dataclass(frozen=True)
class Row:
    source: str
    step: int
    number: int
    at_us: int


@dataclass(frozen=True)
class History:
    """A plan with its rows, and the queries that read it."""

    timeline: Timeline
    lateness_us: int
    rows: Mapping[tuple[str, int], tuple[Row, ...]]
    queries: Mapping[str, tuple[str, ...]]

    def batch(self, query: str, step: int) -> tuple[Row, ...]:
        """What a batch of a query must read: one step of all its sources."""
        return tuple(
            row for source in self.queries[query] for row in self.rows.get((source, step), ())
        )


@dataclass(frozen=True)
class Rules:
    """The functions under test."""

    watermarks: Callable[[Timeline, SplitAssignmentStatus | None], Watermarks] = watermarks
    release: Callable[[Timeline, int, int], int] = release


@dataclass
class Checkpoint:
    """What outlives the driver: offsets planned and batches committed by one query, and its
    sink.
    """

    planned: dict[int, dict[str, int]] = field(default_factory=dict)
    committed: int = 0
    sink: dict[int, tuple[Row, ...]] = field(default_factory=dict)

    def offsets(self, sources: tuple[str, ...]) -> dict[str, int]:
        return self.planned[self.committed - 1] if self.committed else dict.fromkeys(sources, 0)


@dataclass
class ReleaseFile:
    """What the agent tells the sources."""

    released: int = 0
    stop: bool = False

    def latest(self, start: int, steps: int) -> int | None:
        """Where a source that has read ``start`` steps goes on to; None: it keeps asking."""
        if start < steps and self.released > start:
            return start + 1
        if start == steps and self.released >= steps:
            return steps + 1
        return start if self.stop or start == steps + 1 else None


class Query:
    """A streaming query: asks its sources one by one, plans the batch, reads, writes, commits. One
    of these per turn.
    """

    def __init__(self, cluster: "Cluster", name: str, releases: ReleaseFile):
        self.cluster, self.name, self.releases = cluster, name, releases
        self.sources = cluster.history.queries[name]
        self.checkpoint = cluster.checkpoints[name]
        self.answers: dict[str, int] = {}
        self.read: tuple[Row, ...] | None = None
        self.written = False

    @property
    def committed(self) -> dict[str, int]:
        return self.checkpoint.offsets(self.sources)

    def turn(self) -> bool:
        """Does the next thing; False when there is nothing to do for now."""
        batch = self.checkpoint.committed
        if batch not in self.checkpoint.planned:
            return self._ask(batch)
        if self.read is None:
            self.read = self._read(batch)
        elif not self.written:
            self.checkpoint.sink.setdefault(batch, self.read)
            self.written = True
        else:
            self.checkpoint.committed += 1
            self.read, self.written = None, False
        return True

    def _ask(self, batch: int) -> bool:
        source = self.sources[len(self.answers)]
        answer = self.releases.latest(self.committed[source], self.cluster.history.timeline.steps)
        if answer is None:
            return False
        self.answers[source] = answer
        if len(self.answers) < len(self.sources):
            return True
        answers, self.answers = self.answers, {}
        if answers == self.committed:
            return False
        self.checkpoint.planned[batch] = answers
        return True

    def _read(self, batch: int) -> tuple[Row, ...]:
        before, after = self.committed, self.checkpoint.planned[batch]
        rows = tuple(
            row
            for source in self.sources
            for step in range(before[source], after[source])
            for row in self.cluster.history.rows.get((source, step), ())
        )
        if rows != self.cluster.history.batch(self.name, batch):
            raise BrokenPromiseError(
                f"batch {batch} of {self.name} is not step {batch} of its sources: {before} to"
                f" {after}"
            )
        for row in rows:
            self.cluster.check_alignment(row)
        return rows


class Driver:
    """One attempt: the application starts its queries one after another; the agent passes messages
    on.
    """

    def __init__(self, cluster: "Cluster", attempt: int):
        self.cluster, self.attempt = cluster, attempt
        self.releases = ReleaseFile()
        self.queries: list[Query] = []

    @property
    def starting(self) -> bool:
        return len(self.queries) < len(self.cluster.history.queries)

    def start_query(self) -> None:
        name = list(self.cluster.history.queries)[len(self.queries)]
        self.queries.append(Query(self.cluster, name, self.releases))

    def receive(self, spec: SplitAssignmentSpec) -> None:
        if spec.attempt == self.attempt and not self.releases.stop:
            self.releases.released = max(self.releases.released, spec.released)
            self.releases.stop = spec.stop

    def status(self) -> SplitAssignmentStatus:
        reports = (
            QueryProgress(
                name=q.name,
                sources=tuple(SourceProgress(name=s, committed=c) for s, c in q.committed.items()),
            )
            for q in self.queries
        )
        phase = (
            "Starting"
            if self.starting
            else "Finished"
            if self.finished
            else "Stopped"
            if self.at_rest
            else "Running"
        )
        return SplitAssignmentStatus(
            attempt=self.attempt, phase=phase, queries=tuple(reports), heartbeat=from_us(0)
        )

    @property
    def finished(self) -> bool:
        return not self.starting and self._all_at(self.cluster.history.timeline.steps + 1)

    @property
    def at_rest(self) -> bool:
        """Whether it was told to stop and every query has committed what is released."""
        steps = self.cluster.history.timeline.steps
        last = self.releases.released if self.releases.released < steps else steps + 1
        return not self.starting and self.releases.stop and self._all_at(last)

    def _all_at(self, step: int) -> bool:
        return all(
            committed >= step for query in self.queries for committed in query.committed.values()
        )


class Cluster:
    """Everything, with one method for each thing that can happen next."""

    def __init__(self, history: History, rules: Rules = Rules()):
        self.history = history
        self.rules = rules
        self.checkpoints = {name: Checkpoint() for name in history.queries}
        self.spec = SplitAssignmentSpec(
            backfill="b",
            plan_id="p",
            attempt=1,
            steps=history.timeline.steps,
            watermark=from_us(history.timeline.starts_us[0]),
        )
        self.suspended = False
        self.view: SplitAssignmentStatus | None = None
        self.driver: Driver | None = None
        self.to_driver: list[SplitAssignmentSpec] = []
        self.to_controller: list[SplitAssignmentStatus] = []

    # the controller

    def controller_turn(self) -> None:
        """Decides from the stored resource and the last report it has got; stores first, then
        acts.
        """
        marks = self.rules.watermarks(self.history.timeline, self.view)
        released = self.rules.release(self.history.timeline, marks.global_us, self.spec.released)
        if released < self.spec.released:
            raise BrokenPromiseError(f"released went back from {self.spec.released} to {released}")
        update = {
            "released": released,
            "watermark": from_us(marks.global_us),
            "stop": self.spec.stop or self.suspended,
        }
        if self.driver is None and not self.suspended and not self.finished:
            update |= {"attempt": self.spec.attempt + 1, "stop": False}
            self.driver = Driver(self, self.spec.attempt + 1)
        self.spec = self.spec.model_copy(update=update)
        self.to_driver.append(self.spec)

    def restart_controller(self) -> None:
        """What it knew of the driver is gone; the resource is not."""
        self.view = None

    # the driver

    def start_query(self) -> None:
        """The application starts its next query."""
        if self.driver is not None and self.driver.starting:
            self.driver.start_query()

    def report(self) -> None:
        """The agent reports, and ends the driver when it is done."""
        if self.driver is None:
            return
        self.to_controller.append(self.driver.status())
        if self.driver.finished or self.driver.at_rest:
            self.driver = None

    def query_turn(self, number: int, turns: int = 1) -> None:
        """One query does some things, as far as it can."""
        if self.driver is not None and number < len(self.driver.queries):
            for _ in range(turns):
                if not self.driver.queries[number].turn():
                    break

    def crash_driver(self) -> None:
        """The driver is gone with all it had in memory."""
        self.driver = None

    # the network

    def deliver_to_driver(self, number: int, keep: bool = False) -> None:
        """A message arrives, not always the oldest; kept, it will arrive once more."""
        if self.to_driver:
            spec = self.to_driver[number % len(self.to_driver)]
            if not keep:
                self.to_driver.remove(spec)
            if self.driver is not None:
                self.driver.receive(spec)

    def deliver_to_controller(self, number: int, keep: bool = False) -> None:
        """As for the other direction."""
        if self.to_controller:
            status = self.to_controller[number % len(self.to_controller)]
            if not keep:
                self.to_controller.remove(status)
            self.view = status

    def lose_messages(self) -> None:
        """All that is on its way is lost."""
        self.to_driver.clear()
        self.to_controller.clear()

    # the truth

    @property
    def finished(self) -> bool:
        return all(
            point.committed == self.history.timeline.steps + 1
            for point in self.checkpoints.values()
        )

    @property
    def watermark_us(self) -> int:
        """The start of the first step that some query has not committed, by the checkpoints."""
        timeline = self.history.timeline
        first = min(
            step
            for name, sources in self.history.queries.items()
            for step in self.checkpoints[name].offsets(sources).values()
        )
        return timeline.starts_us[first] if first < timeline.steps else timeline.read_end_us

    def check_alignment(self, row: Row) -> None:
        """Raises BrokenPromiseError if a row that is being read is too far ahead."""
        ahead_us, timeline = row.at_us - self.watermark_us, self.history.timeline
        if timeline.aligned and ahead_us >= timeline.max_misalignment_us + self.history.lateness_us:
            raise BrokenPromiseError(f"{row} is read {ahead_us} µs ahead of the global watermark")

    def settle(self) -> None:
        """From here on nothing fails any more: all must be done after a bounded number of rounds.

        Raises BrokenPromiseError if it is not, or if the sinks do not hold every row exactly once.
        """
        self.suspended = False
        for _ in range(5 * self.history.timeline.steps + 5 * len(self.history.queries) + 30):
            if self.finished:
                break
            self._round()
        else:
            raise BrokenPromiseError(f"no end: {self.checkpoints}, released {self.spec.released}")
        for name, sources in self.history.queries.items():
            written = [
                row for _, rows in sorted(self.checkpoints[name].sink.items()) for row in rows
            ]
            expected = [
                row
                for (source, _), rows in self.history.rows.items()
                if source in sources
                for row in rows
            ]
            if sorted(written, key=repr) != sorted(expected, key=repr):
                raise BrokenPromiseError(f"{name} wrote {len(written)} rows of {len(expected)}")

    def _round(self) -> None:
        self.controller_turn()
        self.lose_messages()
        if self.driver is not None:
            self.driver.receive(self.spec)
            for number in range(len(self.driver.queries)):
                self.query_turn(number, turns=100)
        self.start_query()
        self.report()
        self.deliver_to_controller(-1)
