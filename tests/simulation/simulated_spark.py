"""The Spark operator, the kubelet of one node, and what runs in its pods: drivers and jobs."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulated_api_server import SimulatedApiServer, Written
from simulated_lake import MISALIGNMENT_US, ROWS, SOURCES, SimulatedJobProcess, SimulatedLake
from virtual_time import Violation, World

from backfill.api.errors import ResultLost
from backfill.api.job_report import JOB_VARIABLE
from backfill.controller.cluster.job_pods.packed_jobs import decode_job, encode_end
from backfill.controller.cluster.job_pods.pod_manifests import JOB_KEY, JOB_LABEL, RESULT_KEY
from backfill.controller.jobs.job_messages import Message
from backfill.kube.cache import uid_of
from backfill.kube.resources import (
    CONFIG_MAP,
    JOB_REPORT,
    POD,
    SPARK_APPLICATION,
    SPLIT_ASSIGNMENT,
    Manifest,
)
from backfill.protocol.branches import result_branch
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.protocol.split_assignment import (
    OutputDelivery,
    QueryProgress,
    SourceProgress,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)

_TURN_SECONDS = 7.0
_HEARTBEAT_SECONDS = 20.0
_GRACE_SECONDS = 30.0
"""How long a driver waits for its SplitAssignment, and works on without it once it is gone."""
_CONTAINER = "spark-kubernetes-driver"


@dataclass(frozen=True)
class Settings:
    """What a driver is started with."""

    uid: str
    backfill: str
    namespace: str
    attempt: int
    plan_id: str
    checkpoints: str
    outputs: dict[str, str]
    """Table by the output's name."""
    deliver: dict[str, int]
    """By output whose rows are delivered, the snapshot that was approved."""

    @classmethod
    def of(cls, pod: Manifest) -> "Settings":
        variables = {
            each["name"]: each.get("value")
            for container in pod["spec"]["containers"]
            for each in container.get("env", ())
        }
        given = json.loads(variables[SETTINGS_VARIABLE])
        return cls(
            given["uid"],
            given["backfill"],
            given["namespace"],
            given["attempt"],
            given["planId"],
            given["checkpoints"],
            {each["name"]: each["table"] for each in given["outputs"]},
            given.get("deliver", {}),
        )


@dataclass
class SimulatedDriver:
    """The process of a driver: it reads what is released, stages it, and reports."""

    world: World
    server: SimulatedApiServer
    lake: SimulatedLake
    settings: Settings
    chance: float
    on_end: Callable[[int, str], None]
    """Called with the exit status and the reason."""
    on_commit: Callable[["SimulatedDriver"], None]
    """Called before it commits a step."""
    on_deliver: Callable[["SimulatedDriver", str, int], None]
    """Called with an output and a step whose rows the application's own sink gets."""
    alive: bool = True
    assignment: SplitAssignmentSpec | None = None
    stopping: bool = False
    silent_until: float = 0.0
    """Until when its reports do not arrive."""
    waiting_until: float = 0.0
    """Until when the first query commits nothing."""
    channel: str = ""
    """Uid of the SplitAssignment."""
    found_at: float = 0.0
    """When the SplitAssignment was last there."""
    reported: SplitAssignmentStatus | None = None
    earlier: SplitAssignmentStatus | None = None
    """The report before the last one."""
    reported_at: float = 0.0

    def start(self) -> None:
        self.world.after(
            self.world.later(f"{self._site} starts Spark", (8.0, 90.0), 0.1), self._begin
        )

    @property
    def may_commit(self) -> bool:
        """Whether it may commit a step now."""
        return self.alive and self._released > 0

    @property
    def _released(self) -> int:
        return self.assignment.released if self.assignment else 0

    @property
    def _site(self) -> str:
        return f"driver {self.settings.attempt}"

    @property
    def _offsets(self) -> dict[str, int]:
        made = self.lake.checkpoints.setdefault(self.settings.checkpoints, {})
        for output in self.settings.outputs:
            made.setdefault(output, 0)
        return made

    def _begin(self, waited: float = 0.0) -> None:
        """Reads the SplitAssignment. Without that of its own Backfill it ends, having written
        nothing.
        """
        if not self.alive:
            return
        found = self.server.get(SPLIT_ASSIGNMENT, self.settings.backfill)
        if found is None and waited < _GRACE_SECONDS:
            self.world.after(_TURN_SECONDS, lambda: self._begin(waited + _TURN_SECONDS))
        elif self._channel() is None:
            self.world.note(f"{self._site} finds no SplitAssignment of its Backfill")
            self._exit(1, "Error")
        else:
            self.found_at = self.world.seconds
            self.report("Starting", repeated=True)
            self._turn()

    def _turn(self) -> None:
        if not self.alive:
            return
        fate = self.world.pick(
            self._site,
            (
                "works",
                "loses its executors for a while",
                "dies",
                "dies after it has staged a step",
                "fails",
                "hangs",
                "cannot report for a while",
                "reports for two in a row",
                "sees no release for a while",
                "lets its first query wait for a while",
                "has its last report but one delivered late",
            ),
            self.chance,
        )
        if fate == "hangs" or (fate in ("dies", "fails") and self._fail(fate)):
            return
        if fate == "lets its first query wait for a while":
            self.waiting_until = self.world.seconds + 60.0
        if fate == "cannot report for a while":
            self.silent_until = self.world.seconds + 100.0
        if fate != "sees no release for a while":
            self._look()
        if not self.alive:
            return
        try:
            dies = fate == "dies after it has staged a step"
            survives = fate.startswith("loses") or (
                self._read(crash=dies) and self._give(crash=dies)
            )
        except ResultLost as error:
            self.report("Failed", reason="ResultLost", message=str(error))
            survives = False
        if not survives:
            self._exit(1, "Error")
            return
        if self._ended():
            return
        self.report("Running")
        if fate == "reports for two in a row":
            self.report("Running", forced=True)
        if fate.endswith("delivered late") and self.earlier is not None:
            late = self.earlier
            self.world.after(3.0, lambda: self._deliver(late))
        self.world.after(_TURN_SECONDS, self._turn)

    def _fail(self, fate: str) -> bool:
        """Ends the process, which says so or not."""
        if fate == "fails":
            self.report("Failed", message="the query counts failed")
        self._exit(*((1, "Error") if fate == "fails" else (137, "OOMKilled")))
        return True

    def _look(self) -> None:
        """Reads the assignment."""
        found = self._channel()
        if found is None:
            self.stopping |= self.world.seconds - self.found_at > _GRACE_SECONDS
            return
        self.found_at = self.world.seconds
        spec = SplitAssignmentSpec.model_validate(found["spec"])
        if spec.attempt > self.settings.attempt:
            self._exit(1, "Error")
        elif spec.attempt == self.settings.attempt and spec.plan_id == self.settings.plan_id:
            if spec.released < self._released:
                raise Violation(f"release {spec.released} follows release {self._released}")
            if not self.stopping:
                self.assignment = spec
                self.stopping = spec.stop

    def _channel(self) -> Manifest | None:
        """The SplitAssignment; None for good once the one that was there first is gone."""
        found = self.server.get(SPLIT_ASSIGNMENT, self.settings.backfill)
        if found is None or found["metadata"]["ownerReferences"][0]["uid"] != self.settings.uid:
            return None
        self.channel = self.channel or uid_of(found)
        return found if uid_of(found) == self.channel else None

    def _read(self, *, crash: bool) -> bool:
        """Lets each query commit a step; returns False if the process dies in between."""
        released, offsets, steps = self._released, self._offsets, self.lake.header.steps
        if not released:
            return True
        queries = list(self.settings.outputs.items())
        if self.world.seconds < self.waiting_until:
            del queries[0]
        for output, table in queries:
            at = offsets[output]
            if at < min(released, steps):
                self._check_alignment(at)
                self.on_commit(self)
                branch = result_branch(self.settings.namespace, self.settings.backfill)
                self.lake.stage(table, branch, self.settings.uid, at)
                if crash:
                    return False
                offsets[output] = at + 1
            elif at == steps and released == steps:
                offsets[output] = steps + 1
        return True

    def _give(self, *, crash: bool) -> bool:
        """Gives the next batch of each output to the application's own sink, once everything is
        committed; returns False if the process dies before it has recorded that.
        """
        steps, delivered = self.lake.header.steps, self._delivered
        if self.stopping or any(at <= steps for at in self._offsets.values()):
            return True
        for output, snapshot in self.settings.deliver.items():
            branch = result_branch(self.settings.namespace, self.settings.backfill)
            table, at = self.settings.outputs[output], delivered[output]
            self.lake.check_unchanged(table, branch, self.settings.uid, snapshot)
            if at < steps:
                self.on_deliver(self, output, at)
                if crash:
                    return False
                delivered[output] = at + 1
        return True

    @property
    def _delivered(self) -> dict[str, int]:
        made = self.lake.delivered.setdefault(self.settings.checkpoints, {})
        for output in self.settings.deliver:
            made.setdefault(output, 0)
        return made

    def _check_alignment(self, step: int) -> None:
        header = self.lake.header
        slowest = min(*self._offsets.values(), header.steps - 1)
        ahead = header.step_ends_us[step] - header.step_starts_us[slowest]
        if step != slowest and ahead > MISALIGNMENT_US:
            raise Violation(f"step {step} is read while step {slowest} is not committed")

    def _ended(self) -> bool:
        """Whether the driver has ended by itself, in good order."""
        offsets, steps = self._offsets, self.lake.header.steps
        left = any(self._delivered[output] < steps for output in self.settings.deliver)
        if all(at == steps + 1 for at in offsets.values()):
            if left and not self.stopping:
                return False
            self.report("Stopped" if left else "Finished", forced=True)
        elif self.stopping and all(at >= min(self._released, steps) for at in offsets.values()):
            self.report("Stopped", forced=True)
        else:
            return False
        self._exit(0, "Completed")
        return True

    def _exit(self, status: int, reason: str) -> None:
        self.alive = False
        self.on_end(status, reason)

    def report(
        self,
        phase: Any,
        *,
        reason: str = "",
        message: str = "",
        forced: bool = False,
        repeated: bool = False,
    ) -> None:
        """Writes the status, if it has news or a heartbeat is due."""
        if self.world.seconds < self.silent_until or self._channel() is None:
            return
        queries = tuple(
            QueryProgress(
                name=f"query-{output}",
                output=output,
                open_at_end=0,
                sources=tuple(
                    SourceProgress(
                        name=source, committed=at, rows=ROWS * min(at, self.lake.header.steps)
                    )
                    for source in SOURCES
                ),
            )
            for output, at in self._offsets.items()
        )
        status = SplitAssignmentStatus(
            attempt=self.settings.attempt,
            phase=phase,
            queries=() if repeated else queries,
            executors=2,
            heartbeat=self.world.now,
            processing_seconds=self.world.seconds,
            reason=reason,
            message=message,
            deliveries=tuple(
                OutputDelivery(
                    output=output,
                    batches=self.lake.header.steps,
                    delivered=self._delivered[output],
                    rows=ROWS * self._delivered[output],
                    done=self._delivered[output] == self.lake.header.steps,
                )
                for output in self.settings.deliver
                if not repeated
            ),
        )
        news = (
            self.reported is None
            or self.reported.model_copy(
                update={
                    "heartbeat": status.heartbeat,
                    "processing_seconds": status.processing_seconds,
                }
            )
            != status
        )
        if news or forced or self.world.seconds - self.reported_at >= _HEARTBEAT_SECONDS:
            self.earlier = self.reported
            self.reported, self.reported_at = status, self.world.seconds
            self._deliver(status)

    def _deliver(self, status: SplitAssignmentStatus) -> None:
        self.server.change(
            SPLIT_ASSIGNMENT, self.settings.backfill, "status", status.to_manifest(), self._site
        )


class SimulatedSparkCluster:
    """Turns SparkApplications into driver pods, and runs pods."""

    def __init__(
        self,
        world: World,
        server: SimulatedApiServer,
        lake: SimulatedLake,
        *,
        chance: float,
        driver_chance: float,
        job_chance: float,
    ):
        self._world = world
        self._server = server
        self._lake = lake
        self._chance = chance
        self._driver_chance = driver_chance
        self._job_chance = job_chance
        self._processes: dict[str, SimulatedDriver | SimulatedJobProcess] = {}
        """Processes by the uid of their pod."""
        self.on_commit: Callable[[SimulatedDriver], None] = lambda driver: None
        """Called with a driver before it commits a step."""
        self.on_deliver: Callable[[SimulatedDriver, str, int], None] = lambda *_: None
        """Called with a driver that delivers a step of an output."""
        self._lost: set[str] = set()
        """Pods whose node does not respond."""
        server.ends_pod = self._ends_pod
        server.listeners.append(self._written)

    @property
    def drivers(self) -> list[SimulatedDriver]:
        """The drivers whose process is alive."""
        return [
            each
            for each in self._processes.values()
            if isinstance(each, SimulatedDriver) and each.alive
        ]

    def _written(self, written: Written) -> None:
        if written.before is not None or written.after is None:
            return
        made = written.after
        if written.resource == SPARK_APPLICATION and "ownerReferences" in made["metadata"]:
            self._world.after(1.0, lambda: self._submit(made))
        elif written.resource == POD:
            self._world.after(
                self._world.later("kubelet starts a pod", (1.0, 60.0), self._chance),
                lambda: self._run(made),
            )

    def _submit(self, child: Manifest) -> None:
        name, attempt = child["metadata"]["name"], child["metadata"]["name"].rpartition("-a")[2]
        fate = self._world.pick(
            f"Spark operator submits {attempt}",
            (
                "at once",
                "and fails",
                "after a minute",
                "after 40 minutes",
                "at once, and says so after two minutes",
                "at once, and the image cannot be pulled",
            ),
            self._chance,
        )
        if fate == "and fails":
            self._say(name, "SUBMISSION_FAILED", "the submission failed")
            return
        waits = {"after a minute": 60.0, "after 40 minutes": 2400.0}.get(fate, 1.0)
        self._world.after(waits, lambda: self._create_driver(child, fate))

    def _create_driver(self, child: Manifest, fate: str) -> None:
        name = child["metadata"]["name"]
        there = self._server.get(SPARK_APPLICATION, name)
        exists = there is not None and uid_of(there) == uid_of(child)
        if (
            not exists
            and self._world.pick(
                "Spark operator",
                ("notices a deletion", "submits what was just deleted"),
                self._chance,
            )
            == "notices a deletion"
        ):
            return
        delay = 120.0 if fate.endswith("two minutes") else 1.0
        self._world.after(delay, lambda: self._say_if_new(name, "SUBMITTED"))
        driver = child["spec"]["driver"]
        metadata = {
            "name": f"{name}-driver",
            "labels": driver["labels"] | {"spark-role": "driver"},
            "ownerReferences": [
                {"kind": "SparkApplication", "uid": uid_of(child), "name": name, "controller": True}
            ],
        }
        if self._server.get(POD, metadata["name"]) is not None:
            return
        pod = {"metadata": metadata, "spec": driver["template"]["spec"]}
        made = self._server.create(POD, pod, "Spark operator")
        if fate.endswith("pulled"):
            self._lost.add(f"unpulled {uid_of(made)}")

    def _say_if_new(self, name: str, state: str) -> None:
        child = self._server.get(SPARK_APPLICATION, name)
        if child is not None and "status" not in child:
            self._say(name, state)

    def _say(self, name: str, state: str, message: str = "") -> None:
        status = {
            "applicationState": {"state": state, "errorMessage": message},
            "lastSubmissionAttemptTime": self._world.text_now,
        }
        if state in ("COMPLETED", "FAILED"):
            status["terminationTime"] = self._world.text_now
        self._server.change(SPARK_APPLICATION, name, "status", status, "Spark operator")

    def _run(self, pod: Manifest) -> None:
        """The kubelet starts a pod."""
        name, uid = pod["metadata"]["name"], uid_of(pod)
        there = self._server.get(POD, name)
        if there is None or uid_of(there) != uid or "deletionTimestamp" in there["metadata"]:
            return
        if f"unpulled {uid}" in self._lost:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
            self._say_of_pod(name, "Pending", waiting)
            return
        started = {"running": {"startedAt": self._world.text_now}}
        if JOB_LABEL in pod["metadata"]["labels"]:
            process = self._job(there)
            if process is not None:
                self._processes[uid] = process
                self._say_of_pod(name, "Running", started)
            return
        self._say_of_pod(name, "Running", started)
        settings = Settings.of(there)
        driver = SimulatedDriver(
            self._world,
            self._server,
            self._lake,
            settings,
            self._driver_chance,
            lambda status, reason: self._ended(name, uid, status, reason),
            self.on_commit,
            self.on_deliver,
        )
        self._processes[uid] = driver
        driver.start()
        self._world.after(
            self._world.later("Spark operator reports a running driver", (1.0, 60.0), self._chance),
            lambda: self._say(name.removesuffix("-driver"), "RUNNING"),
        )

    def _job(self, pod: Manifest) -> SimulatedJobProcess | None:
        name, uid = pod["metadata"]["name"], uid_of(pod)
        given = next(
            each["value"]
            for container in pod["spec"]["containers"]
            for each in container["env"]
            if each["name"] == JOB_VARIABLE
        )
        config_map = self._server.get(CONFIG_MAP, given)
        if config_map is None:  # it waits for it, as for any volume
            self._world.after(10.0, lambda: self._run(pod))
            return None
        if self._server.get(JOB_REPORT, given) is None:
            self._ended(name, uid, 1, "Error")
            return None
        job = decode_job(base64.b64decode(config_map["binaryData"][JOB_KEY]))

        def end(message: Message | None) -> None:
            fate = self._world.pick(
                f"{name} hands in its result",
                ("once", "twice", "and is not heard"),
                self._job_chance,
            )
            if message is None or fate == "and is not heard":
                self._ended(name, uid, 1, "Error")
                return
            result = {RESULT_KEY: base64.b64encode(encode_end(job, message)).decode()}
            self._server.change(JOB_REPORT, given, "status", result, "job")
            if fate == "twice":
                self._server.change(JOB_REPORT, given, "status", {**result, "progress": ""}, "job")
            self._ended(name, uid, 0, "Completed")

        return SimulatedJobProcess(self._world, self._lake, job, "", self._job_chance, end)

    def _say_of_pod(self, name: str, phase: str, state: Manifest) -> None:
        status = {"phase": phase, "containerStatuses": [{"name": _CONTAINER, "state": state}]}
        self._server.change(POD, name, "status", status, "kubelet")

    def _ended(self, name: str, uid: str, status: int, reason: str) -> None:
        """A process has ended by itself."""
        self._processes.pop(uid, None)
        there = self._server.get(POD, name)
        if there is None or uid_of(there) != uid:
            return
        ended = {
            "exitCode": status,
            "reason": reason,
            "finishedAt": self._world.text_now,
        }
        self._say_of_pod(name, "Failed" if status else "Succeeded", {"terminated": ended})
        if "deletionTimestamp" in there["metadata"]:
            self._server.remove(POD, name, "kubelet")
        child = name.removesuffix("-driver")
        if child != name:
            self._world.after(
                self._world.later("Spark operator reports an end", (1.0, 90.0), self._chance),
                lambda: self._say(child, "FAILED" if status else "COMPLETED"),
            )

    def _ends_pod(self, name: str, grace: int | None) -> bool:
        """The kubelet is to end a pod; whether it is gone at once."""
        pod = self._server.get(POD, name)
        if pod is None:
            return True
        uid = uid_of(pod)
        if uid not in self._processes:
            return True
        if grace == 0:
            self._kill(uid)
            return True
        seconds = self._world.later("kubelet ends a pod", (3.0, 30.0, 400.0), self._chance)
        self._world.after(seconds, lambda: self._gone(name, uid))
        return False

    def _gone(self, name: str, uid: str) -> None:
        self._kill(uid)
        there = self._server.get(POD, name)
        if there is not None and uid_of(there) == uid:
            self._server.remove(POD, name, "kubelet")

    def _kill(self, uid: str) -> None:
        process = self._processes.pop(uid, None)
        if isinstance(process, SimulatedDriver):
            process.alive = False
        elif process is not None:
            process.kill()
