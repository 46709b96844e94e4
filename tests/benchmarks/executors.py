"""How much sooner more executors finish: the tasks of a run on this machine, scheduled again on
more cores than it has.

Usage: ``executors.py DIRECTORY PROGRAM``; prints one JSON line. For each number of executors the
plan is made for its cores, and its spans are run here, two tasks at a time, which gives the time of
every task, what each stage waits for, and what the driver does by itself. The simulation has a pool
of cores, gives them to the tasks of the span that began first, as Spark does, and commits the spans
in order. Since a short history would have fewer spans than there are at once, the measured ones
follow each other until there are ``SPANS``.
"""

import argparse
import heapq
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from backfill.runtime.batch.span_runner import AT_ONCE

CORES = 2
"""Of an executor."""
SPANS = 24
_LARGEST = (1, 2, 4, 8)


@dataclass
class Stage:
    """What is run in parallel; times in seconds."""

    tasks: list[float] = field(default_factory=list)
    after: set[int] = field(default_factory=set)
    """Those of its span that had ended when it began."""
    delay: float = 0.0
    """Between the last of them and its begin: the driver's part."""


@dataclass
class SpanRun:
    """What a span took; times in seconds."""

    stages: dict[int, Stage]
    ending: float
    """From its last task until its files are known."""
    commit: float


@dataclass
class _Times:
    """Of a stage, in seconds since the epoch."""

    begun: float
    ended: float
    tasks: list[float]


def measured(directory: Path, program: str, cores: int) -> list[SpanRun]:
    """The spans of a run here, planned for so many cores."""
    with tempfile.TemporaryDirectory() as log:
        command = [sys.executable, str(Path(__file__).with_name("spans.py"))]
        command += [str(directory), program, "backfill", "--cores", str(cores), "--event-log", log]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        spans = json.loads(done.stdout.splitlines()[-1])["timings"]
        stages = dict(_stages(Path(log)))
    return [_span(each, stages[each["description"]]) for each in spans]


def _stages(log: Path) -> Iterator[tuple[str, list[_Times]]]:
    """The stages that were run, by the description of their jobs."""
    described: dict[int, str] = {}
    tasks: dict[int, list[float]] = defaultdict(list)
    times: dict[str, list[_Times]] = defaultdict(list)
    files = sorted(path for path in log.rglob("*") if path.is_file())
    for line in (line for path in files for line in path.read_text().splitlines()):
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Event") == "SparkListenerJobStart":
            name = event["Properties"].get("spark.job.description", "")
            described |= dict.fromkeys(event["Stage IDs"], name)
        elif event.get("Event") == "SparkListenerTaskEnd":
            info = event["Task Info"]
            tasks[event["Stage ID"]].append((info["Finish Time"] - info["Launch Time"]) / 1e3)
        elif event.get("Event") == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            times[described[info["Stage ID"]]].append(
                _Times(
                    info["Submission Time"] / 1e3,
                    info["Completion Time"] / 1e3,
                    tasks[info["Stage ID"]],
                )
            )
    yield from times.items()


def _span(timing: dict[str, float], found: list[_Times]) -> SpanRun:
    stages = {}
    for number, stage in enumerate(found):
        before = {place for place, each in enumerate(found) if each.ended <= stage.begun}
        last = max((found[place].ended for place in before), default=timing["begun"])
        stages[number] = Stage(stage.tasks, before, max(stage.begun - last, 0.0))
    ending = timing["computed"] - max(stage.ended for stage in found)
    return SpanRun(stages, max(ending, 0.0), timing["commit"])


def simulated(spans: list[SpanRun], cores: int, at_once: int = AT_ONCE) -> float:
    """Seconds until all spans are committed, with so many cores and spans at once."""
    return _Simulation(spans, cores, at_once).run()


class _Simulation:
    """Events in order of time: a stage begins, a task ends, a span is computed, or committed."""

    def __init__(self, spans: list[SpanRun], cores: int, at_once: int):
        self._spans = spans
        self._free = cores
        self._events: list[tuple[float, int, str, int, int]] = []
        self._waiting: list[tuple[int, int, float]] = []
        """Tasks that wait for a core, those of the earliest span first."""
        self._left = [
            {number: len(stage.tasks) for number, stage in span.stages.items()} for span in spans
        ]
        self._done: list[set[int]] = [set() for _ in spans]
        self._begun: list[set[int]] = [set() for _ in spans]
        self._computed: set[int] = set()
        self._next = at_once
        self._committed = 0

    def run(self) -> float:
        for span in range(min(self._next, len(self._spans))):
            self._begin_stages(0.0, span)
        now = 0.0
        while self._events:
            now, _, kind, span, stage = heapq.heappop(self._events)
            getattr(self, f"_{kind}")(now, span, stage)
        return now

    def _at(self, time: float, kind: str, span: int, stage: int = -1) -> None:
        heapq.heappush(self._events, (time, len(self._events), kind, span, stage))

    def _begin_stages(self, now: float, span: int) -> None:
        for number, stage in self._spans[span].stages.items():
            if number not in self._begun[span] and stage.after <= self._done[span]:
                self._begun[span].add(number)
                self._at(now + stage.delay, "submitted", span, number)

    def _submitted(self, now: float, span: int, stage: int) -> None:
        for seconds in self._spans[span].stages[stage].tasks:
            heapq.heappush(self._waiting, (span, stage, seconds))
        self._schedule(now)

    def _schedule(self, now: float) -> None:
        while self._free and self._waiting:
            span, stage, seconds = heapq.heappop(self._waiting)
            self._free -= 1
            self._at(now + seconds, "ended", span, stage)

    def _ended(self, now: float, span: int, stage: int) -> None:
        self._free += 1
        self._left[span][stage] -= 1
        if not self._left[span][stage]:
            self._done[span].add(stage)
            self._begin_stages(now, span)
            if len(self._done[span]) == len(self._spans[span].stages):
                self._at(now + self._spans[span].ending, "computed_span", span)
        self._schedule(now)

    def _computed_span(self, now: float, span: int, _stage: int) -> None:
        self._computed.add(span)
        self._commit_next(now)

    def _commit_next(self, now: float) -> None:
        if self._committed in self._computed:
            self._computed.remove(self._committed)
            self._at(now + self._spans[self._committed].commit, "committed_span", self._committed)

    def _committed_span(self, now: float, span: int, _stage: int) -> None:
        self._committed = span + 1
        self._commit_next(now)
        if self._next < len(self._spans):
            self._begin_stages(now, self._next)
            self._next += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("program")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    first = 0.0
    for executors in _LARGEST:
        spans = measured(arguments.directory, arguments.program, executors * CORES)
        repeated = list(islice(cycle(spans), SPANS))
        work = sum(sum(stage.tasks) for span in repeated for stage in span.stages.values())
        seconds = simulated(repeated, executors * CORES)
        rate = work and seconds / work  # seconds for a second of work: spans differ by the plan
        first = first or rate
        figures |= {
            f"spans_{executors}": len(spans),
            f"efficiency_{executors}": first / (rate * executors),
            f"cores_at_work_{executors}": work / (seconds * executors * CORES),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
