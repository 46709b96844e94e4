"""One history of one Backfill, from its creation to its deletion."""

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from choices import Choices, History, shortest
from oracles import Oracles, is_undoing, new_reasons, outcome_of, status_of
from simulated_api_server import SimulatedApiServer, Written
from simulated_lake import SimulatedLake
from simulated_operator import SimulatedOperator, virtual_time
from simulated_people import NAME, SimulatedPeople, backfill_spec, short
from simulated_spark import SimulatedSparkCluster
from virtual_time import Violation, World

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.controller.decisions.deleting import REMOVAL_LIMIT
from backfill.controller.decisions.job_retries import PATIENCE
from backfill.kube.resources import BACKFILL

TROUBLE_SECONDS = 1500.0
"""How long things may go wrong."""
CALM_SECONDS = 3 * 3600.0
"""Within which everything has come to its end after that."""
_SETTLING_SECONDS = 300.0
_CHANCES = (0.0, 0.05, 0.15, 0.3)


@dataclass(frozen=True)
class Result:
    """How a history went."""

    history: History
    lines: tuple[str, ...]
    failure: str
    """Which promise was broken; empty if none was."""
    outcome: str
    """Reason of the condition ``Succeeded`` in the end."""
    events: int

    @property
    def kind(self) -> str:
        """The failure without its figures."""
        return re.sub(r"\d+", "", self.failure).partition(":")[0]


class _Simulation:
    def __init__(self, choices: Choices, random: Random):
        """``random`` decides how much goes wrong, and nothing else."""
        world = self.world = World(choices)
        chances = {
            name: random.choice(_CHANCES)
            for name in ("requests", "watches", "spark", "drivers", "jobs", "people")
        }
        steps = 3 + choices.number("steps", 4, 0.5)
        self.server = SimulatedApiServer(world)
        self.lake = SimulatedLake(world, steps)
        self.spark = SimulatedSparkCluster(
            world,
            self.server,
            self.lake,
            chance=chances["spark"],
            driver_chance=chances["drivers"],
            job_chance=chances["jobs"],
        )
        self.oracles = Oracles(world, self.server, self.lake, self.spark)
        self.people = SimulatedPeople(
            world, self.server, self.lake, self.oracles.seen, chance=2 * chances["people"]
        )
        self._chances = chances
        self._replicas = 1 + choices.number("second replica", 2, 0.4)
        self._started = 0
        self._operators: list[SimulatedOperator] = []
        self._deleted_at: float | None = None
        self._incomplete: set[str] = set()
        self.server.listeners.append(self._written)
        self.manual = bool(choices.number("approval Manual", 2, 0.4))
        spec = backfill_spec(
            outputs=1 + choices.number("second output", 2, 0.3),
            mode="Deliver"
            if choices.number("mode Deliver", 2, 0.2)
            else ("Append", "Replace")[choices.number("mode Replace", 2, 0.4)],
            manual=self.manual,
            protect=bool(choices.number("protected snapshots", 2, 0.4)),
            backoff=("10s", "9m")[choices.number("backoff of 9 minutes", 2, 0.3)],
            ttl=bool(choices.number("ttlAfterFinished", 2, 0.2)),
        )
        self.uids: list[str] = []
        if choices.number("short spec", 2, 0.3):
            self.lake.application = spec
            spec = short(spec)
        self.people.create(spec)
        self._storms()
        for _ in range(self._replicas):
            self._start_operator()
        self.outcome = ""

    def _storms(self) -> None:
        """Times when the API server, or the catalog and the store, are away."""
        for who in ("API server", "catalog"):
            lengths = (0.0, 40.0, 240.0, 1200.0)
            length = self.world.later(f"{who} is away, which", lengths, self._chances["jobs"])
            if length:
                at = self.world.later(f"{who} is away later, which", (5.0, 40.0, 120.0, 300.0), 0.8)
                self.world.after(at, lambda who=who, length=length: self._away(who, length))

    def _away(self, who: str, seconds: float) -> None:
        if self.world.choices.quiet:
            return
        until = self.world.seconds + seconds
        if who == "catalog":
            self.lake.away_until = until
        else:
            self.server.away_until = until

    def _start_operator(self) -> None:
        self._started += 1
        self._operators.append(
            SimulatedOperator(
                self.world,
                self.server,
                f"operator-{self._started}",
                chance=self._chances["requests"] / 3,
                watch_chance=self._chances["watches"],
                on_exit=self._restart,
            )
        )

    def _restart(self) -> None:
        self.world.after(
            self.world.later("operator restarts", (5.0, 90.0), 0.2), self._start_operator
        )

    def _written(self, written: Written) -> None:
        if written.resource != BACKFILL:
            return
        if written.after is None:
            self._deleted_at = self.world.seconds
            self.world.note("the Backfill is gone")
            return
        uid = written.after["metadata"]["uid"]
        if uid not in self.uids:
            self.uids.append(uid)
        reason = outcome_of(written.after)[1]
        if reason == Reason.CLEANUP_INCOMPLETE:
            self._incomplete.add(uid)
        if "deletionTimestamp" not in written.after["metadata"]:
            self.outcome = reason
        for stage in new_reasons(written):
            self.people.at_stage(stage)
        published = find_condition(status_of(written.after).conditions, ConditionType.PUBLISHED)
        if published is not None and published.reason == Reason.WAITING_FOR_APPROVAL:
            wait = self.world.later("reviewer waits", (20.0, 300.0), 0.3)
            self.world.after(wait, self.people.decide)

    def run(self) -> None:
        """Runs to the end.

        Raises:
            Violation: a promise was broken.
        """
        self._pass(TROUBLE_SECONDS, until_rest=True)
        self.world.choices.quiet = True
        self.lake.away_until = self.server.away_until = 0.0
        self.world.note("from here on, nothing goes wrong any more")
        self.people.edit(suspend=False)
        self._pass(CALM_SECONDS, until_rest=True)
        self._check_end()
        self._check_steady()
        self._check_deletion()

    def _pass(self, seconds: float, *, until_rest: bool) -> None:
        """Lets time pass, and looks now and then whether all is done."""
        end = self.world.seconds + seconds
        while self.world.seconds < end and not (until_rest and self._rests()):
            self.world.run_until(min(self.world.seconds + 30.0, end))

    def _rests(self) -> bool:
        found = self.server.get(BACKFILL, NAME)
        if self.world.seconds < self.people.busy_until and not self.world.choices.quiet:
            return False
        return found is None or (
            "deletionTimestamp" not in found["metadata"]
            and outcome_of(found)[0] in ("True", "False")
            and not is_undoing(found)
        )

    def _check_end(self) -> None:
        found = self.server.get(BACKFILL, NAME)
        if found is None:
            return
        if "deletionTimestamp" in found["metadata"]:
            raise Violation("its deletion does not end")
        value, reason = outcome_of(found)
        if value not in ("True", "False"):
            stage = [(each.type.value, each.reason.value) for each in status_of(found).conditions]
            raise Violation(f"it does not come to an end: {stage}")
        self.oracles.check_told(status_of(found), found["metadata"]["uid"])
        if value == "False" and not self._is_justified(reason):
            condition = find_condition(status_of(found).conditions, ConditionType.SUCCEEDED)
            raise Violation(
                f"it fails without a cause: {reason}: {condition and condition.message}"
            )

    def _is_justified(self, reason: str) -> bool:
        """Whether what has gone wrong explains a failure."""
        first = self.lake.first_failure
        long = first is not None and self.world.seconds - first >= PATIENCE.total_seconds()
        taken = {site: value for (site, _), value in self.world.choices.taken.items()}
        return {
            Reason.ATTEMPTS_EXHAUSTED: any(
                site.startswith(("driver", "Spark operator", "kubelet", "garbage", "operator"))
                for site in taken
            ),
            Reason.PLANNING_FAILED: long,
            Reason.PUBLISH_FAILED: long,
            Reason.PUBLISH_CONFLICT: bool(self.lake.conflicting),
            Reason.RESULT_LOST: bool(self.lake.damaged),
            Reason.REJECTED: self.people.rejected,
            Reason.UNDONE: self.people.undone,
        }.get(Reason(reason), False)

    def _check_steady(self) -> None:
        """A Backfill that is at rest is not written any more, also if it is reconciled again."""
        self._pass(_SETTLING_SECONDS, until_rest=False)
        found = self.server.get(BACKFILL, NAME)
        if found is not None and "ttlAfterFinished" in found["spec"]:
            self._pass(3600.0, until_rest=False)
        self.oracles.check_no_drivers()
        writes = self.oracles.operator_writes
        for each in self._operators:
            if each.leads:
                each.poke()
        self._pass(60.0, until_rest=False)
        if self.oracles.operator_writes != writes:
            raise Violation("it goes on writing although nothing happens")

    def _check_deletion(self) -> None:
        found = self.server.get(BACKFILL, NAME)
        if found is not None:
            self.people.delete()
            self._pass(REMOVAL_LIMIT.total_seconds() + 60.0, until_rest=True)
            if self.server.get(BACKFILL, NAME) is not None:
                raise Violation("its deletion does not end")
            if self.uids[-1] in self._incomplete:
                raise Violation("its deletion gave up although nothing went wrong")
        self._pass(_SETTLING_SECONDS, until_rest=False)
        for uid in self.uids:
            self.oracles.check_removed(uid, NAME, incomplete=uid in self._incomplete)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(seed: int, favoured: Collection[str] = ()) -> Result:
    """The history of a seed. ``favoured`` are options, in words, that it takes more often."""
    random = Random(seed)
    return _run(Choices(random, favoured=favoured), random)


def replay(history: History) -> Result:
    """A history again, or one with fewer deviations."""
    return _run(Choices(history=history), Random(0))


def _run(choices: Choices, random: Random) -> Result:
    failure, simulation = "", None
    with _quiet_logs():
        world = None
        try:
            simulation = _Simulation(choices, random)
            world = simulation.world
            with virtual_time(world):
                simulation.run()
        except Violation as violation:
            failure = str(violation)
    assert simulation is not None
    assert world is not None
    return Result(
        dict(choices.taken), tuple(world.lines), failure, simulation.outcome, world.events
    )


def shrunk(result: Result) -> Result:
    """The shortest history that breaks the same promise."""
    found = shortest(result.history, lambda history: replay(history).kind == result.kind)
    return replay(found)
