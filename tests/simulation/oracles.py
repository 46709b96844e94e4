"""The promises, checked at each write and each act, and at the end."""

import json
from collections import defaultdict
from functools import lru_cache

from simulated_api_server import SimulatedApiServer, Written
from simulated_lake import Branch, SimulatedLake
from simulated_spark import SimulatedDriver, SimulatedSparkCluster
from virtual_time import Violation, World

from backfill.api.approval import needed_approval, undoing
from backfill.api.backfill import Backfill
from backfill.api.conditions import SUMMARIES, ConditionType, Reason, find_condition
from backfill.api.decision import BackfillDecision
from backfill.api.manifests.problems import read_json
from backfill.api.status import Attempt, BackfillStatus, Verdict
from backfill.controller.jobs.staged_outputs import StagedOutput
from backfill.kube.object_names import BACKFILL_LABEL
from backfill.kube.resources import (
    BACKFILL,
    CONFIG_MAP,
    DECISION,
    JOB_REPORT,
    POD,
    SPARK_APPLICATION,
    SPLIT_ASSIGNMENT,
    Manifest,
)

MOST_BACKOFF_SECONDS = 600.0
COMMITS_LATE = "commits although its attempt has ended"


class Oracles:
    """Sees every write to the API server and every act on tables."""

    def __init__(
        self,
        world: World,
        server: SimulatedApiServer,
        lake: SimulatedLake,
        spark: SimulatedSparkCluster,
    ):
        self._world = world
        self._server = server
        self._lake = lake
        self._spark = spark
        self.operator_writes = 0
        """Writes of operators, apart from those of Leases."""
        self.seen: dict[str, dict[str, int]] = {}
        """Head of each output's branch when a person looked at a result."""
        server.listeners.append(self._written)
        spark.on_commit = self._committing
        lake.on_publish.append(self._published)
        spark.on_deliver = self._delivering
        self._calls: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """By Backfill and output, the steps that the application's own sink has got."""
        lake.on_discard.append(self._discarded)

    def _written(self, written: Written) -> None:
        if written.actor.startswith("operator") and written.resource.plural != "leases":
            self.operator_writes += 1
            if written.changes_nothing and written.resource in (BACKFILL, SPLIT_ASSIGNMENT):
                raise Violation(f"{written.actor} wrote {written.resource.plural} without a change")
        if written.resource == SPLIT_ASSIGNMENT and written.before and written.after:
            _check_release(written.before["spec"], written.after["spec"])
        if written.resource == BACKFILL:
            self._backfill_written(written)
        if written.resource == SPARK_APPLICATION and written.before is None:
            self._child_made(written)

    def _backfill_written(self, written: Written) -> None:
        if written.after is None or written.before is None:
            return
        before, after = status_of(written.before), status_of(written.after)
        if before == after:
            return
        check_transition(before, after)
        for old in before.attempts[-1:]:
            new = next((each for each in after.attempts if each.number == old.number), None)
            if new is not None and old.outcome == "Running" != new.outcome:
                self._attempt_ended(new)
        outcome = find_condition(after.conditions, ConditionType.SUCCEEDED)
        if outcome is not None and outcome.status == "True":
            self.check_published(after, written.after["metadata"]["uid"])
        self._say(before, after)

    def _say(self, before: BackfillStatus, after: BackfillStatus) -> None:
        for each in after.conditions:
            old = find_condition(before.conditions, each.type)
            if each.type in SUMMARIES:
                continue
            if old is None or (old.status, old.reason) != (each.status, each.reason):
                first = each.message.partition("\n")[0][:100]
                self._world.note(f"status: {each.type}={each.status} {each.reason}: {first}")

    def _attempt_ended(self, attempt: Attempt) -> None:
        for driver in self._spark.drivers:
            if driver.settings.attempt == attempt.number and driver.may_commit:
                raise Violation(f"attempt {attempt.number} ended while its driver may commit")

    def _child_made(self, written: Written) -> None:
        name = written.after["metadata"]["name"] if written.after else ""
        attempt = int(name.rpartition("-a")[2]) if "-a" in name else 0
        if not attempt:
            return
        backfill = self._server.get(BACKFILL, name.rpartition("-a")[0])
        owner = written.after["metadata"]["ownerReferences"][0]["uid"] if written.after else ""
        if backfill is None or backfill["metadata"]["uid"] != owner:
            return
        recorded = status_of(backfill).attempts
        if attempt not in [each.number for each in recorded]:
            raise Violation(f"the child of attempt {attempt} was created before it was recorded")

    def _committing(self, driver: SimulatedDriver) -> None:
        """Never more than one driver that can commit."""
        able = {each.settings.attempt for each in self._spark.drivers if each.may_commit}
        if len(able) > 1:
            raise Violation(f"the drivers of attempts {sorted(able)} may commit at once")
        for raw in self._server.all(BACKFILL):
            attempt = next(
                (
                    each
                    for each in status_of(raw).attempts
                    if each.number == driver.settings.attempt
                ),
                None,
            )
            ours = raw["metadata"]["uid"] == driver.settings.uid
            if ours and attempt is not None and attempt.outcome != "Running":
                # a request that a leader made before it lost its Lease may start one
                self._world.note(f"driver {attempt.number} {COMMITS_LATE}")

    def check_no_drivers(self) -> None:
        """No driver runs for a Backfill that has ended."""
        for driver in self._spark.drivers:
            raise Violation(f"the driver of attempt {driver.settings.attempt} runs for nothing")

    def _published(self, staged: StagedOutput, branch: Branch) -> None:
        """Called right before a result is published."""
        raw = self._server.get(BACKFILL, staged.name)
        if raw is None or raw["metadata"]["uid"] != staged.uid:
            raise Violation("a result is published of a Backfill that is gone")
        name, backfill = staged.output.name, read_json(Backfill, raw)
        output = next(each for each in backfill.status.outputs if each.name == name)
        if branch.steps != list(range(self._lake.header.steps)):
            raise Violation(f"steps {branch.steps} of {name} are published, not all")
        if output.staged_snapshot_id != branch.head or branch.foreign:
            raise Violation(f"what is published of {name} is not what was counted")
        if any(driver.may_commit for driver in self._spark.drivers):
            raise Violation(f"{name} is published while a driver may commit")
        result, spec = (
            backfill.status.result or "",
            {each.name: each for each in backfill.spec.outputs},
        )
        if needed_approval(spec[name], output):
            if not self._is_decided(result, Verdict.APPROVE):
                raise Violation(f"{name} is published without approval")
            if self.seen.get(result, {}).get(name) != branch.head:
                raise Violation(f"{name} was approved for something else")

    def _delivering(self, driver: SimulatedDriver, name: str, step: int) -> None:
        """Called right before the application's own sink gets the rows of a step."""
        raw, uid = self._server.get(BACKFILL, driver.settings.backfill), driver.settings.uid
        calls = self._calls[uid, name]
        if step not in (len(set(calls)), *calls[-1:]):
            raise Violation(f"step {step} of {name} is delivered after {calls}")
        calls.append(step)
        if raw is None or raw["metadata"]["uid"] != uid:
            return  # the driver is being killed
        result, snapshot = status_of(raw).result or "", driver.settings.deliver[name]
        backfill = read_json(Backfill, raw)
        output = next(each for each in backfill.status.outputs if each.name == name)
        spec = next(each for each in backfill.spec.outputs if each.name == name)
        if output.staged_snapshot_id != snapshot:
            raise Violation(f"what is delivered of {name} is not what was counted")
        if needed_approval(spec, output):
            if not self._is_decided(result, Verdict.APPROVE):
                raise Violation(f"{name} is delivered without approval")
            if self.seen.get(result, {}).get(name) != snapshot:
                raise Violation(f"{name} was approved for something else")

    def _is_decided(self, result: str, verdict: Verdict) -> bool:
        decisions = [read_json(BackfillDecision, each).spec for each in self._server.all(DECISION)]
        return any((each.result, each.decision) == (result, verdict) for each in decisions)

    def _discarded(self, uid: str) -> None:
        for driver in self._spark.drivers:
            if driver.settings.uid == uid and driver.may_commit:
                raise Violation(f"what attempt {driver.settings.attempt} works on is removed")

    def check_published(self, status: BackfillStatus, uid: str) -> None:
        """What readers find of a Backfill that has succeeded."""
        for output in status.outputs:
            found = self._lake.tables[output.table].published_steps(uid)
            undone = status.undo is not None
            if output.delivery is not None:
                found = sorted(set(self._calls[uid, output.name]))
            if output.is_published and not undone and found != list(range(self._lake.header.steps)):
                raise Violation(f"{output.table} has steps {found}, not each of them once")
            if not output.is_published:
                raise Violation(f"succeeded, but {output.name} is not published")

    def check_told(self, status: BackfillStatus, uid: str) -> None:
        """A status that is final says what there is."""
        reason = _outcome(status)[1]
        for output in status.outputs:
            found = self._lake.tables[output.table].published_steps(uid)
            if reason == Reason.UNDONE and found:
                raise Violation(f"undone, but {output.table} has steps {found}")
            if reason == Reason.REJECTED and found and not output.is_published:
                raise Violation(f"rejected, but {output.table} has steps {found}")

    def check_removed(self, uid: str, name: str, *, incomplete: bool) -> None:
        """Nothing is left of a Backfill that was deleted."""
        if not incomplete and (left := self._lake.left_behind(uid)):
            raise Violation(f"left behind after deletion: {', '.join(left)}")
        for resource in (SPARK_APPLICATION, POD, CONFIG_MAP, SPLIT_ASSIGNMENT, JOB_REPORT):
            for each in self._server.all(resource):
                labels = each["metadata"].get("labels", {})
                if labels.get(BACKFILL_LABEL) == name or each["metadata"]["name"] == name:
                    raise Violation(f"left behind: {resource.plural} {each['metadata']['name']}")
        if self._spark.drivers:
            raise Violation("a driver outlives its Backfill")


@lru_cache(maxsize=64)
def _status_of(text: str) -> BackfillStatus:
    return BackfillStatus.model_validate_json(text)


def status_of(manifest: Manifest) -> BackfillStatus:
    """The status of a Backfill."""
    return _status_of(json.dumps(manifest.get("status", {})))


def _check_release(before: Manifest, after: Manifest) -> None:
    if after["attempt"] < before["attempt"]:
        raise Violation(f"attempt {after['attempt']} is assigned after {before['attempt']}")
    if (after["attempt"], after["planId"]) != (before["attempt"], before["planId"]):
        return
    for field in ("released", "releasedAhead"):
        if after.get(field, 0) < before.get(field, 0):
            raise Violation(f"{field} went from {before[field]} back to {after.get(field, 0)}")
    if before.get("stop") and not after.get("stop"):
        raise Violation("a driver that was asked to stop is asked to go on")
    if before.get("stop") and after["released"] != before["released"]:
        raise Violation("something is released to a driver that was asked to stop")


def check_transition(before: BackfillStatus, after: BackfillStatus) -> None:
    """Whether a status may follow another one."""
    old, new = (_outcome(each) for each in (before, after))
    if old[0] == "True" and new[0] != "True" and new[1] not in _AFTER_SUCCESS:
        raise Violation(f"Succeeded=True becomes {new}")
    if before.plan_id and after.plan_id not in (before.plan_id, None):
        raise Violation(f"plan {before.plan_id} becomes {after.plan_id}")
    if before.plan_id and after.plan_id is None and before.progress.committed:
        raise Violation("the plan of committed steps is dropped")
    if after.observed_generation < before.observed_generation:
        raise Violation("the observed generation goes back")
    _check_attempts(before.attempts, after.attempts)
    published = {each.name: each.snapshot_id for each in before.outputs if each.snapshot_id}
    now = {each.name: each.snapshot_id for each in after.outputs}
    for name, snapshot in published.items():
        if after.plan_id and now.get(name) != snapshot:
            raise Violation(f"the publication of {name} is forgotten")
    last = after.attempts[-1] if after.attempts else None
    if after.next_attempt_at and last is not None and last.finished_at:
        wait = (after.next_attempt_at - last.finished_at).total_seconds()
        if wait > MOST_BACKOFF_SECONDS:
            raise Violation(f"the next attempt waits for {wait:g} s")


_AFTER_SUCCESS = (Reason.UNDONE, Reason.REMOVING, Reason.REMOVAL_FAILED, Reason.CLEANUP_INCOMPLETE)


def _check_attempts(before: tuple[Attempt, ...], after: tuple[Attempt, ...]) -> None:
    numbers = [each.number for each in after]
    if numbers != sorted(set(numbers)):
        raise Violation(f"attempts are numbered {numbers}")
    if before and (not after or after[-1].number < before[-1].number):
        raise Violation("an attempt is forgotten")
    if after and after[-1].number > (before[-1].number if before else 0) + 1:
        raise Violation(f"attempt {after[-1].number} follows {before[-1].number if before else 0}")
    if (
        after
        and before
        and after[-1].number > before[-1].number
        and before[-1].outcome == "Running"
    ):
        raise Violation(f"attempt {after[-1].number} follows one that has not ended")
    known = {each.number: each for each in after}
    for old in before:
        new = known.get(old.number)
        if new is not None and old.outcome not in ("Running", new.outcome):
            raise Violation(f"attempt {old.number} was {old.outcome} and is {new.outcome}")


def _outcome(status: BackfillStatus) -> tuple[str, str]:
    found = find_condition(status.conditions, ConditionType.SUCCEEDED)
    return (found.status, found.reason) if found is not None else ("", "")


def new_reasons(written: Written) -> list[str]:
    """The reasons that conditions have got by a write, apart from those that summarise others."""
    if written.before is None or written.after is None:
        return []
    before, after = status_of(written.before), status_of(written.after)
    known = {(each.type, each.reason) for each in before.conditions}
    return [
        each.reason.value
        for each in after.conditions
        if each.type not in SUMMARIES and (each.type, each.reason) not in known
    ]


def is_undoing(manifest: Manifest) -> bool:
    """Whether a publication is being undone."""
    return undoing(status_of(manifest)) is not None


def outcome_of(manifest: Manifest) -> tuple[str, str]:
    """Status and reason of the condition ``Succeeded``."""
    return _outcome(status_of(manifest))
