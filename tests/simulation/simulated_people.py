"""People: they create the Backfill, change their minds, approve what waits, and delete it."""

from collections.abc import Callable
from typing import Any

from simulated_api_server import NAMESPACE, SimulatedApiServer
from simulated_lake import SOURCES, Commit, SimulatedLake
from virtual_time import World

from backfill.api.approval import left_to_undo, undecidable
from backfill.api.backfill import API_VERSION, Backfill
from backfill.api.decision import DECISION_KIND, decision_name, next_undo, undo_name
from backfill.api.manifests.problems import read_json
from backfill.api.status import Verdict
from backfill.controller.cluster.plan_config_map import config_map_name
from backfill.kube.resources import (
    BACKFILL,
    CONFIG_MAP,
    DECISION,
    SPARK_APPLICATION,
    SPLIT_ASSIGNMENT,
)

NAME = "july"
PLANS = (
    "nothing",
    "suspend it",
    "suspend it, and resume it soon",
    "have it tried again",
    "correct the overrides",
    "delete it",
    "delete it, and create it again",
    "undo it",
    "reject it",
    "change the production application",
    "delete the ConfigMap of its plan",
    "delete its SplitAssignment",
    "commit into the window",
    "change the branch",
)
"""What a person may be up to. Others decide about what waits for approval."""
TIMES = (5.0, 30.0, 60.0, 100.0, 150.0, 300.0, 900.0)


class SimulatedPeople:
    """All people of one team."""

    def __init__(
        self,
        world: World,
        server: SimulatedApiServer,
        lake: SimulatedLake,
        seen: dict[str, dict[str, int]],
        *,
        chance: float,
    ):
        """``seen`` gets the heads of branches that somebody looked at."""
        self._world = world
        self._server = server
        self._lake = lake
        self._seen = seen
        self._chance = chance
        self.undone = self.rejected = self._starting_over = False
        self.busy_until = 0.0
        self._spec: dict[str, Any] = {}

    def create(self, spec: dict[str, Any]) -> str:
        """Applies the application and the Backfill. Returns the Backfill's uid."""
        self._server.create(SPARK_APPLICATION, _production(), "people")
        self._spec = spec
        uid = self._apply()
        for number in (1, 2):
            what = self._world.pick(f"person {number}", PLANS, self._chance)
            if what != PLANS[0]:
                when = self._world.later(f"person {number} waits", TIMES, 0.9)
                self._act_later(what, when)
        return uid

    def at_stage(self, reason: str) -> None:
        """Somebody may do something because a condition has got a reason."""
        what = self._world.pick(f"person at {reason}", PLANS, self._chance)
        if what != PLANS[0]:
            when = self._world.later(f"person at {reason} waits", (0.5, 3.0, 12.0), 0.6)
            self._act_later(what, when)

    def _act_later(self, what: str, seconds: float) -> None:
        act = self._acts()[what]
        self._world.after(seconds, lambda: None if self._world.choices.quiet else act())
        self.busy_until = max(self.busy_until, self._world.seconds + seconds + 1.0)

    def _apply(self) -> str:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Backfill",
            "metadata": {"name": NAME},
            "spec": self._spec,
        }
        made = self._server.create(BACKFILL, manifest, "people")
        return str(made["metadata"]["uid"])

    def _acts(self) -> dict[str, Callable[[], None]]:
        return {
            "suspend it": lambda: self.edit(suspend=True),
            "suspend it, and resume it soon": self._suspend_shortly,
            "have it tried again": lambda: self.edit(retryNonce=str(self._world.seconds)),
            "correct the overrides": lambda: self.edit(
                overrides={"sparkConf": {"spark.x": str(self._world.seconds)}}
            ),
            "delete it": self.delete,
            "delete it, and create it again": self._start_over,
            "delete the ConfigMap of its plan": lambda: self._server.delete(
                CONFIG_MAP, config_map_name(NAME), "people"
            ),
            "delete its SplitAssignment": lambda: self._server.delete(
                SPLIT_ASSIGNMENT, NAME, "people"
            ),
            "undo it": lambda: self._decide(Verdict.UNDO),
            "reject it": lambda: self._decide(Verdict.REJECT, unasked=True),
            "change the production application": self._change_production,
            "commit into the window": self._commit,
            "change the branch": self._change_branch,
        }

    def edit(self, **fields: Any) -> None:
        """Changes fields of the spec."""
        found = self._server.get(BACKFILL, NAME)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            self._world.note(f"a person sets {fields}")
            self._server.change(BACKFILL, NAME, "spec", {**found["spec"], **fields}, "people")
            self._lake.excused_until = self._world.seconds + 300.0

    def delete(self) -> None:
        """Deletes the Backfill."""
        self._world.note("a person deletes it")
        self._server.delete(BACKFILL, NAME, "people")
        self._lake.excused_until = self._world.seconds + 300.0

    def _start_over(self) -> None:
        self.delete()
        if not self._starting_over:
            self._starting_over = True
            self._again()

    def _again(self) -> None:
        """Creates the Backfill once there is no other one of its name."""
        if self._server.get(BACKFILL, NAME) is None:
            self._world.note("a person creates it again")
            self._starting_over = False
            self._apply()
        else:
            self._world.after(5.0, self._again)
            self.busy_until = max(self.busy_until, self._world.seconds + 10.0)

    def decide(self) -> None:
        """Somebody looks at what waits for approval, and decides about it."""
        backfill = self._backfill()
        if backfill is None or undecidable(backfill, Verdict.APPROVE):
            return
        result = backfill.status.result or ""
        if self._server.get(DECISION, decision_name(result)) is not None:
            return
        verdict = self._world.pick("reviewer", ("approves", "rejects"), self._chance)
        self._decide(Verdict.REJECT if verdict == "rejects" else Verdict.APPROVE)

    def _decide(self, verdict: Verdict, *, unasked: bool = False) -> None:
        """Creates a decision. ``unasked``: even if the command line would refuse it."""
        backfill = self._backfill()
        if backfill is None or backfill.status.result is None:
            return
        if undecidable(backfill, verdict) and not unasked:
            return
        status = backfill.status
        result, number = status.result or "", next_undo(status)
        undo = verdict is Verdict.UNDO
        self.undone = self.undone or bool(undo and left_to_undo(status))
        name = undo_name(result, number) if undo else decision_name(result)
        self._seen[result] = {
            each.name: each.staged_snapshot_id for each in status.outputs if each.staged_snapshot_id
        }
        spec = {
            "backfill": NAME,
            "result": result,
            "decision": verdict.value,
            "by": "jane",
            "reason": "as agreed",
        }
        manifest = {
            "apiVersion": API_VERSION,
            "kind": DECISION_KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        if self._server.get(DECISION, name) is None:
            self._world.note(f"jane decides: {verdict.value}")
            self.rejected = self.rejected or verdict is Verdict.REJECT
            self._server.create(DECISION, manifest, "people")

    def _backfill(self) -> Backfill | None:
        found = self._server.get(BACKFILL, NAME)
        return read_json(Backfill, found) if found is not None else None

    def _suspend_shortly(self) -> None:
        self.edit(suspend=True)
        seconds = self._world.later("suspension", (2.0, 60.0, 600.0), 0.5)
        self._world.after(
            seconds, lambda: None if self._world.choices.quiet else self.edit(suspend=False)
        )
        self.busy_until = max(self.busy_until, self._world.seconds + seconds + 1.0)

    def _change_production(self) -> None:
        spec = _production()["spec"] | {"image": f"app:{self._world.seconds:g}"}
        self._server.change(SPARK_APPLICATION, "app", "spec", spec, "people")

    def _commit(self) -> None:
        for name, table in self._lake.tables.items():
            table.main.append(Commit(self._lake.next_snapshot(), "other"))
            self._lake.conflicting.add(name)

    def _change_branch(self) -> None:
        """Somebody takes the last step away from a result that was counted, or else writes into the
        branch.
        """
        backfill = self._backfill()
        counted = backfill is not None and backfill.status.result is not None
        for name, table in self._lake.tables.items():
            for branch in table.branches.values():
                branch.head = self._lake.next_snapshot()
                branch.foreign = not counted
                del branch.steps[-1:]
                self._lake.damaged.add(name)


def short(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without what can be found of its application."""
    left = {key: value for key, value in spec.items() if key not in ("sources", "outputs")}
    return left | {"publish": spec["outputs"][0]["publish"]["mode"]}


def backfill_spec(
    *, outputs: int, mode: str, manual: bool, protect: bool, ttl: bool, backoff: str
) -> dict[str, Any]:
    """The spec of a Backfill of the simulated tables."""
    spec: dict[str, Any] = {
        "applicationRef": {"name": "app"},
        "window": {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"},
        "maxMisalignment": "2h",
        "sources": [
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "at",
                "snapshot": {"protect": protect},
            }
            for name in SOURCES
        ],
        "outputs": [
            {
                "name": name,
                "table": f"lake.ops.{name}",
                "timestampColumn": "at",
                "publish": {"mode": mode, "approval": "Manual" if manual else "Automatic"},
            }
            for name in ("counts", "sums")[:outputs]
        ],
        "failurePolicy": {"maxAttempts": 3, "backoff": backoff},
        "ttlAfterFinished": "30m" if ttl else None,
    }
    return {key: value for key, value in spec.items() if value is not None}


def _production() -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "app", "namespace": NAMESPACE},
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": "4.3.0",
            "image": "app:1",
            "mainApplicationFile": "local:///app/main.py",
            "driver": {"cores": 1, "memory": "1g"},
            "executor": {"cores": 1, "memory": "1g", "instances": 2},
        },
    }
