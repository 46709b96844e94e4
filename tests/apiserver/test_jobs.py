"""Jobs on a cluster: credentials from Secrets, and pods whose program runs here under the driver's
identity.
"""

import base64
import gzip
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from absent_webhook import WEBHOOK, webhook_that_is_away
from fake_kubelet import FakeKubelet
from identities import ServiceAccountMaker
from rest import BACKFILLS, JOB_REPORTS, SPARK_APPLICATIONS, Manifest, Rest
from roles import rules_of
from watches import Watches

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput
from backfill.api.pods import PlanningOptions, PodResources
from backfill.controller.cluster.job_pods.packed_jobs import encode_progress
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import (
    JOB_LABEL,
    JobImage,
    job_name,
    job_report,
)
from backfill.controller.cluster.job_pods.runner import JobPods, PodJobs
from backfill.controller.jobs.any_job import Job, JobUsage
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.manager.listing import Relisting
from backfill.controller.manager.login import Login
from backfill.controller.manager.wiring import Caches
from backfill.kube.client import Cluster
from backfill.kube.object_names import owner_reference
from backfill.kube.resources import CONFIG_MAP, JOB_REPORT, POD
from backfill.planning.planning_progress import PlanningProgress
from backfill.planning.workspace import Workspace
from manifests import spark_application
from table_jobs import PARALLELISM, Clicks, clicks_spec, ended
from waiting import eventually

pytestmark = pytest.mark.usefixtures("crds")

OPERATOR = rules_of("operator-cluster.yaml", "ClusterRole", "backfill-operator")
DRIVER = rules_of("driver.yaml", "Role", "backfill-driver")
PRODUCTION = spark_application(
    image="registry.example/app:1",
    mainApplicationFile="local:///app/main.py",
    driver={
        "serviceAccount": "spark",
        "podSecurityContext": {"runAsNonRoot": True, "runAsUser": 185},
    },
    executor={"instances": 1},
)


class Operator:
    """What an operator knows and may do, as far as jobs in pods need it. Its requests are
    counted.
    """

    def __init__(self, kubeconfig: Path, namespace: str, most: int, start_seconds: float):
        self.requests = 0
        self.usages: list[JobUsage] = []
        login, caches = Login(kubeconfig), Caches()
        self._cluster = login.cluster(on_request=self._count)
        Relisting(self._cluster, caches.watched(), [namespace]).list_once()
        self._watching = Watches(caches.watched(), namespace, login)
        places = PodPlaces(caches.pods, most, caches.backfills)
        self.pods = JobPods(
            self._cluster,
            caches.pods,
            caches.reports,
            places,
            JobImage("jobs:1"),
            start_seconds,
            self.usages.append,
        )

    def close(self) -> None:
        self._watching.close()
        self._cluster.close()

    def _count(self, verb: str, kind: str, status: int, seconds: float) -> None:
        self.requests += 1


class Stage:
    """A production application, a Backfill of a real table, and whoever works on it."""

    def __init__(
        self, admin: Rest, namespace: str, kubeconfig: Path, clicks: Clicks, kubelet: FakeKubelet
    ):
        self.admin, self.namespace, self.kubeconfig, self.clicks, self.kubelet = (
            admin,
            namespace,
            kubeconfig,
            clicks,
            kubelet,
        )
        self.cluster = Cluster.from_kubeconfig(kubeconfig)
        admin.create(SPARK_APPLICATIONS.format(namespace), PRODUCTION).expect()
        self.backfill = self.another("january")
        self.operators: list[Operator] = []

    def another(self, name: str) -> Backfill:
        """A Backfill of the same table."""
        spec = clicks_spec(
            catalogs=[{"name": "lake", "secretRef": {"name": "lake-catalog"}}],
            workspace=str(self.kubelet.directory / "workspace"),
        )
        manifest = {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "Backfill",
            "metadata": {"name": name},
            "spec": spec.to_manifest(),
        }
        return Backfill.model_validate(
            self.admin.create(BACKFILLS.format(self.namespace), manifest).expect()
        )

    def with_secret(self, **properties: str) -> "Stage":
        secret = {
            "metadata": {"name": "lake-catalog"},
            "stringData": properties or self.clicks.properties,
        }
        self.admin.create(f"api/v1/namespaces/{self.namespace}/secrets", secret).expect()
        return self

    def operator(
        self, kubeconfig: Path | None = None, most: int = 10, start_seconds: float = 300.0
    ) -> Operator:
        """One that begins now."""
        self.operators.append(
            Operator(kubeconfig or self.kubeconfig, self.namespace, most, start_seconds)
        )
        return self.operators[-1]

    def runner(self, **options: Any) -> PodJobs:
        """The Backfill's jobs, in an operator that begins now."""
        return self.jobs_of(self.backfill, self.operator(**options))

    def jobs_of(self, backfill: Backfill, operator: Operator) -> PodJobs:
        return operator.pods.runner(lambda: backfill, lambda seconds: None)

    def job(self, backfill: Backfill | None = None, **changes: Any) -> PlanJob:
        of = backfill or self.backfill
        changed = of.model_copy(update={"spec": of.spec.model_copy(update=changes)})
        return PlanJob.of(
            changed, Workspace(str(self.kubelet.directory / "workspace")), PARALLELISM
        )

    def started(self, runner: PodJobs, job: Job) -> Manifest:
        """The job's pod, once there is only this one."""
        runner.start(job)
        return dict(eventually(lambda: runner.state and self.kubelet.pods(), "the job's pod")[0])

    def left(self) -> list[str]:
        """The objects of jobs that are there."""
        there = f"api/v1/namespaces/{self.namespace}"
        paths = (f"{there}/configmaps", f"{there}/pods", JOB_REPORTS.format(self.namespace))
        found = (self.admin.get(path, labelSelector=JOB_LABEL).expect()["items"] for path in paths)
        return [item["metadata"]["name"] for items in found for item in items]

    def close(self) -> None:
        for operator in self.operators:
            operator.close()
        self.cluster.close()


@pytest.fixture
def stage(
    admin: Rest, namespace: str, service_account: ServiceAccountMaker, tmp_path: Path
) -> Iterator[Stage]:
    kubelet = FakeKubelet(admin, namespace, service_account("spark", DRIVER), tmp_path / "pod")
    stage = Stage(
        admin, namespace, service_account("operator", OPERATOR), Clicks(tmp_path / "lake"), kubelet
    )
    yield stage
    stage.close()


def test_a_pod_plans_with_the_catalog_of_its_secret_and_is_removed(stage: Stage) -> None:
    job, runner = stage.job(), stage.with_secret().runner()
    done = stage.kubelet.run(stage.started(runner, job))
    assert done.returncode == 0, done.stderr
    in_pod = ended(runner, job)
    assert isinstance(in_pod.result, PlanResult), in_pod.error
    eventually(lambda: not stage.kubelet.pods(), "the end of a pod that has done its work")


def test_a_pod_that_starts_after_its_job_was_abandoned_says_so_and_does_nothing(
    stage: Stage,
) -> None:
    """As after a pause of the operator that created it: the Backfill may be gone by then."""
    job = stage.job()
    pod = stage.started(stage.with_secret().runner(), job)
    name = job_name(stage.backfill, job)
    stage.admin.delete(f"{JOB_REPORTS.format(stage.namespace)}/{name}").expect()
    done = stage.kubelet.run(pod)
    assert (done.returncode, done.stderr) == (
        1,
        f"JobReport {name} does not exist: the job was abandoned\n",
    )
    assert not Path(job.workspace.uri).exists()


def test_an_operator_that_starts_anew_finds_the_pod_and_its_result(stage: Stage) -> None:
    job = stage.job()
    pod = stage.started(stage.with_secret().runner(), job)
    stage.operators.pop().close()
    again = stage.runner()
    assert stage.started(again, job)["metadata"]["uid"] == pod["metadata"]["uid"]
    stage.kubelet.run(pod)
    assert ended(again, job).phase == "Done"
    later = stage.runner()
    later.start(job)
    assert ended(later, job).phase == "Done"
    assert not stage.kubelet.pods(), "what is done is not done again"


def test_what_a_job_in_a_pod_took_is_measured(stage: Stage) -> None:
    job, runner = stage.job(), stage.with_secret().runner()
    stage.kubelet.run(stage.started(runner, job))
    ended(runner, job)
    (usage,) = stage.operators[-1].usages
    assert (usage.key, usage.kind, usage.outcome) == ((stage.namespace, "january"), "plan", "Done")
    assert 0.01 < usage.seconds < 60
    assert usage.peak_bytes
    assert 80 * 2**20 < usage.peak_bytes < 2**30


def test_a_pod_that_ends_without_a_word_is_counted_among_the_failed(stage: Stage) -> None:
    job, runner = stage.job(), stage.runner()
    stage.kubelet.tell(stage.started(runner, job), over("OOMKilled", 137))
    ended(runner, job)
    (usage,) = stage.operators[-1].usages
    assert (usage.outcome, usage.peak_bytes) == ("Failed", None)


def test_a_secret_that_is_not_text_is_named_and_nothing_is_done(stage: Stage, admin: Rest) -> None:
    secret = {
        "metadata": {"name": "lake-catalog"},
        "data": {"keystore": base64.b64encode(b"\xff\xfe").decode()},
    }
    admin.create(f"api/v1/namespaces/{stage.namespace}/secrets", secret).expect()
    job, runner = stage.job(), stage.runner()
    done = stage.kubelet.run(stage.started(runner, job))
    assert done.returncode == 0, done.stderr
    error = str(ended(runner, job).error)
    assert "keystore in the Secret of catalog lake is not text" in error


def test_bad_input_and_its_problems_come_back_from_a_pod(stage: Stage) -> None:
    source = stage.backfill.spec.sources[0].model_copy(update={"table": "lake.raw.click"})
    job, runner = stage.job(sources=(source,)), stage.with_secret().runner()
    assert stage.kubelet.run(stage.started(runner, job)).returncode == 0
    error = ended(runner, job).error
    assert isinstance(error, BadInput)
    assert "did you mean lake.raw.clicks?" in error.problems[0].fix


def test_a_quota_that_is_full_is_waited_for_however_long(stage: Stage, admin: Rest) -> None:
    quotas = f"api/v1/namespaces/{stage.namespace}/resourcequotas"
    admin.create(quotas, {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}).expect()
    admin.patch(
        f"{quotas}/full/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    ).expect()
    job, runner = stage.job(), stage.with_secret().runner()
    runner.start(job)

    def waits() -> str:
        return str(runner.state and runner.state.waits_for)

    eventually(lambda: "its pod to be admitted" in waits(), lambda: f"the quota, and not {waits()}")
    assert "exceeded quota: full" in waits()
    assert "raise the ResourceQuota, or lower spec.planning.resources" in waits()
    assert stage.left() == []
    admin.delete(f"{quotas}/full").expect()
    pod = eventually(lambda: runner.state and stage.kubelet.pods(), "the job's pod")[0]
    stage.kubelet.run(pod)
    assert ended(runner, job).phase == "Done"


@pytest.mark.hostile
def test_pods_and_results_that_a_tenant_forges_hold_up_nobody(stage: Stage, admin: Rest) -> None:
    uid = stage.backfill.metadata.uid
    for number in range(4):
        forged = {
            "metadata": {
                "name": f"january-job-{number:010x}" if number % 2 else f"forged-{number}",
                "labels": {
                    "backfill.dev/backfill": "january" if number % 2 else "nobody",
                    "backfill.dev/job": "plan",
                },
                "ownerReferences": [owner_reference("january", uid)] if number < 2 else [],
            },
            "spec": {"containers": [{"name": "c", "image": "sleep"}]},
        }
        admin.create(f"api/v1/namespaces/{stage.namespace}/pods", forged).expect()
    august = stage.with_secret().another("august")
    job, runner = stage.job(august), stage.jobs_of(august, stage.operator(most=2))
    runner.start(job)
    eventually(
        lambda: runner.state and not runner.state.waits_for.startswith("its turn"), "its turn"
    )
    eventually(
        lambda: [pod for pod in stage.kubelet.pods() if "august-job" in pod["metadata"]["name"]],
        "its pod",
    )
    (name,) = [
        pod["metadata"]["name"]
        for pod in stage.kubelet.pods()
        if "august-job" in pod["metadata"]["name"]
    ]
    bomb = base64.b64encode(gzip.compress(b"[" + b"[]," * 1_000_000 + b"0]")).decode()
    admin.patch(
        f"{JOB_REPORTS.format(stage.namespace)}/{name}/status", {"status": {"result": bomb}}
    ).expect()
    assert "it has more than 500,000 values" in str(ended(runner, job).error)


def test_secrets_do_not_come_back_from_a_pod(stage: Stage) -> None:
    job, runner = (
        stage.job(),
        stage.with_secret(type="sql", uri="no url of me:hunter2@db", password="hunter2").runner(),
    )
    done = stage.kubelet.run(stage.started(runner, job))
    error = str(ended(runner, job).error)
    assert "catalog lake cannot be opened" in error
    assert "hunter2" not in error + done.stderr


def test_secrets_are_not_in_the_traceback_of_a_job_that_breaks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_off(job: PlanJob, on_progress: object) -> PlanResult:
        raise RuntimeError("no token for hunter2 from https://me:swordfish@db/lake")

    job, runner = (
        stage.job(),
        stage.with_secret(type="rest", uri="https://lake", credential="hunter2").runner(),
    )
    monkeypatch.setattr(PlanJob, "run", break_off)
    stage.kubelet.run_here(stage.started(runner, job))
    error, printed = str(ended(runner, job).error), capsys.readouterr().err
    assert "RuntimeError: no token for *** from https://***@db/lake" in error
    assert "Traceback" in printed
    assert not any(secret in error + printed for secret in ("hunter2", "swordfish"))


def waiting(reason: str, message: str) -> Manifest:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [status_of(state)]}


def over(reason: str, code: int, log: str = "") -> Manifest:
    ended = {"reason": reason, "exitCode": code, "message": log}
    return {"phase": "Failed", "containerStatuses": [status_of({"terminated": ended})]}


def status_of(state: Manifest) -> Manifest:
    container = {
        "name": "spark-kubernetes-driver",
        "image": "app",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
    }
    return container | {"state": state}


NOT_SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [NOT_SCHEDULED | {"message": "0/3 nodes are available"}],
}


TOO_LARGE = "the plan job needs more than 2Gi of memory: raise planning.resources.memory"
NO_MODULE = "ModuleNotFoundError: No module named 'backfill'"
TRACEBACK = "Traceback\n" + "  File\n" * 200 + f"{NO_MODULE}\n"
UNREACHABLE = "sh: cannot reach postgresql://lake:swordfish@db"
DISK_FULL = "Pod ephemeral local storage usage exceeds its limit."


def evicted(message: str) -> Manifest:
    return {"phase": "Failed", "reason": "Evicted", "message": message}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (over("OOMKilled", 137), TOO_LARGE),
        (over("Error", 1), "ended without a result: Error"),
        (over("Error", 1, TRACEBACK), f"ended without a result: Error: {NO_MODULE}"),
        (over("Error", 1, UNREACHABLE), "cannot reach postgresql://***@db"),
        (evicted("low on memory"), "Evicted: low on memory"),
        (evicted(DISK_FULL), "raise planning.resources.ephemeralStorage"),
    ],
)
def test_a_pod_that_fails_fails_its_job_and_says_why(
    stage: Stage, status: Manifest, said: str
) -> None:
    job, runner = stage.job(), stage.runner()
    stage.kubelet.tell(stage.started(runner, job), status)
    assert said in str(ended(runner, job).error)


@pytest.mark.parametrize(
    ("status", "reason", "blocked"),
    [
        (waiting("ImagePullBackOff", "no such image"), "ImagePullBackOff: no such image", True),
        (UNSCHEDULABLE, "Unschedulable: 0/3 nodes are available", False),
    ],
)
def test_a_pod_that_does_not_start_says_why_and_waits_for_a_person_or_a_node(
    stage: Stage, status: Manifest, reason: str, blocked: bool
) -> None:
    job = stage.job()
    stage.kubelet.tell(stage.started(stage.runner(), job), status)
    runner = stage.runner(start_seconds=0.1)
    runner.start(job)
    eventually(lambda: runner.state and reason in runner.state.waits_for, "the reason")
    state = runner.state
    assert state is not None
    assert (state.phase, state.blocked) == ("Running", blocked)
    assert ("--job-image" in state.waits_for) == blocked


def test_a_pod_on_a_node_that_does_not_start_fails_in_the_end(stage: Stage) -> None:
    job, runner = stage.job(), stage.runner(start_seconds=8.0)
    stage.kubelet.tell(stage.started(runner, job), waiting("ContainerCreating", ""))
    assert "did not start within 8 s: ContainerCreating" in str(ended(runner, job).error)


def test_a_pod_that_waits_with_an_earlier_image_of_jobs_is_made_anew(stage: Stage) -> None:
    job = stage.job()
    pod = stage.started(stage.runner(), job)
    stage.kubelet.tell(pod, waiting("ImagePullBackOff", "no such image"))
    stage.operators.pop().close()
    operator = stage.operator()
    operator.pods = replace(operator.pods, image=JobImage("jobs:2"))
    runner = stage.jobs_of(stage.backfill, operator)
    runner.start(job)

    def images() -> list[str]:
        assert runner.state is not None
        return [each["spec"]["containers"][0]["image"] for each in stage.kubelet.pods()]

    eventually(lambda: images() == ["jobs:2"], "a pod with the new image")


def test_a_secret_that_is_missing_is_named_by_what_the_kubelet_warns_of(
    stage: Stage, admin: Rest
) -> None:
    job, runner = stage.job(), stage.runner()
    pod = stage.started(runner, job)
    stage.kubelet.tell(pod, waiting("ContainerCreating", ""))
    warned = 'MountVolume.SetUp failed for volume "lake" : secret "lake-catalog" not found'
    involved = {"kind": "Pod", "namespace": stage.namespace, "name": pod["metadata"]["name"]}
    events: list[Manifest] = [
        {
            "metadata": {"name": "of-the-scheduler"},
            "message": "0/3 nodes are available",
            "eventTime": "2024-01-01T00:00:00.000000Z",
            "reportingComponent": "scheduler",
            "reportingInstance": "one",
            "action": "Scheduling",
            "reason": "FailedScheduling",
        },
        {
            "metadata": {"name": "of-the-kubelet"},
            "message": warned,
            "lastTimestamp": "2024-01-01T00:01:00Z",
            "reason": "FailedMount",
        },
    ]
    for event in events:
        event |= {"involvedObject": involved, "type": "Warning"}
        admin.create(f"api/v1/namespaces/{stage.namespace}/events", event).expect()
    state = eventually(
        lambda: (found := runner.state) and warned in found.waits_for and found, "the warning"
    )
    assert state.phase == "Running"
    assert state.blocked


def test_a_pod_that_is_deleted_fails_its_job(stage: Stage) -> None:
    job, runner = stage.job(), stage.runner()
    pod = stage.started(runner, job)
    stage.kubelet.tell(pod, UNSCHEDULABLE)
    eventually(
        lambda: runner.state and "Unschedulable" in runner.state.waits_for, "the watch is at work"
    )
    stage.cluster.delete(POD, stage.namespace, pod["metadata"]["name"], grace_seconds=0)
    assert "was deleted before the plan job was done" in str(ended(runner, job).error)


def test_a_pod_that_has_not_started_is_made_anew_after_an_edit_which_may_be_what_lets_it_start(
    stage: Stage,
) -> None:
    job, operator = stage.job(), stage.operator(most=1)
    runner = operator.pods.runner(lambda: stage.backfill, lambda seconds: None)
    first = stage.started(runner, job)
    planning = PlanningOptions(resources=PodResources(memory="1Gi"))
    spec = stage.backfill.spec.model_copy(update={"planning": planning})
    metadata = stage.backfill.metadata.model_copy(update={"generation": 2})
    stage.backfill = stage.backfill.model_copy(update={"spec": spec, "metadata": metadata})

    def smaller() -> bool:
        assert runner.state
        assert runner.state.phase == "Running", runner.state.error
        limits = [
            pod["spec"]["containers"][0]["resources"]["limits"] for pod in stage.kubelet.pods()
        ]
        return [limit["memory"] for limit in limits] == ["1Gi"]

    eventually(smaller, "a pod with less memory")
    assert stage.kubelet.pod()["metadata"]["name"] == first["metadata"]["name"]


def test_what_is_cancelled_is_removed_and_can_be_started_again(stage: Stage) -> None:
    job, runner = stage.job(), stage.with_secret().runner()
    pod = stage.started(runner, job)
    runner.cancel()
    assert runner.state is None
    eventually(lambda: not stage.kubelet.pods(), "the end of the pod")
    again = stage.started(runner, job)
    assert again["metadata"]["name"] == pod["metadata"]["name"]
    stage.kubelet.run(again)
    assert ended(runner, job).phase == "Done"


def test_another_job_takes_the_place_of_the_one_under_way(stage: Stage) -> None:
    runner = stage.runner(most=1)
    first = stage.started(runner, stage.job())
    runner.start(stage.job(max_misalignment=timedelta(hours=2)))

    def only_another() -> bool:
        assert runner.state
        assert runner.state.phase == "Running", runner.state.error
        names = [pod["metadata"]["name"] for pod in stage.kubelet.pods()]
        return len(names) == 1 and names != [first["metadata"]["name"]]

    eventually(only_another, "the pod of the other job")


def test_a_job_waits_for_the_end_of_the_pod_before_it_which_may_be_about_to_commit(
    stage: Stage,
) -> None:
    runner = stage.runner()
    first = stage.started(runner, stage.job())
    stage.kubelet.bind(first)
    another = stage.job(max_misalignment=timedelta(hours=2))
    runner.start(another)
    eventually(
        lambda: runner.state and "it is being deleted" in runner.state.waits_for,
        "the wait is told",
    )
    assert [pod["metadata"]["name"] for pod in stage.kubelet.pods()] == [first["metadata"]["name"]]
    stage.kubelet.delete(first)
    pods = eventually(
        lambda: runner.state and stage.kubelet.pods(),
        lambda: f"the next pod, and not {runner.state}",
    )
    names = [pod["metadata"]["name"] for pod in pods]
    assert names == [job_name(stage.backfill, another)]


def test_an_operator_that_starts_anew_waits_as_well_for_the_pod_of_the_job_before(
    stage: Stage,
) -> None:
    first = stage.started(stage.runner(), stage.job())
    stage.kubelet.bind(first)
    runner = stage.runner()
    runner.start(stage.job(max_misalignment=timedelta(hours=2)))
    said = eventually(lambda: runner.state and runner.state.waits_for, "the wait is told")
    assert said == f"pod {first['metadata']['name']} to terminate (it is being deleted)"
    assert len(stage.kubelet.pods()) == 1


def test_a_pod_that_can_not_be_removed_is_waited_for_until_it_has_ended_by_itself(
    stage: Stage, service_account: ServiceAccountMaker
) -> None:
    """The operator may delete nothing."""
    rules = [
        rule | {"verbs": [verb for verb in rule["verbs"] if verb != "delete"]} for rule in OPERATOR
    ]
    runner = stage.with_secret().runner(
        kubeconfig=service_account("operator-without-delete", rules)
    )
    first = stage.started(runner, stage.job())
    another = stage.job(max_misalignment=timedelta(hours=2))
    runner.start(another)
    assert runner.state
    assert runner.state.waits_for == f"pod {first['metadata']['name']} to terminate"
    stage.kubelet.tell(first, over("Completed", 0))
    pods = eventually(
        lambda: runner.state and len(found := stage.kubelet.pods()) == 2 and found, "both pods"
    )
    newest = next(
        pod for pod in pods if pod["metadata"]["name"] == job_name(stage.backfill, another)
    )
    stage.kubelet.run(newest)
    assert ended(runner, another).phase == "Done"


def test_what_failed_is_done_once_more_when_it_is_asked_for_by_an_operator_that_starts_anew(
    stage: Stage,
) -> None:
    job = stage.job()
    stage.with_secret(type="sql", uri="sqlite:////nowhere/at-all.db")
    first_runner = stage.runner()
    first = stage.started(first_runner, job)
    stage.kubelet.run(first)
    assert ended(first_runner, job).phase == "Failed"
    stage.operators.pop().close()
    secret = f"api/v1/namespaces/{stage.namespace}/secrets/lake-catalog"
    stage.admin.patch(secret, {"stringData": stage.clicks.properties}).expect()
    runner = stage.runner()
    again = stage.started(runner, job)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    stage.kubelet.run(again)
    assert ended(runner, job).phase == "Done"


def test_a_webhook_that_keeps_the_pod_from_being_made_is_named_until_it_answers(
    stage: Stage, cluster_admin: Path
) -> None:
    runner, job = stage.runner(), stage.job()
    cluster = Cluster.from_kubeconfig(cluster_admin)

    def waits_for() -> str:
        return runner.state.waits_for if runner.state is not None else ""

    def refused() -> bool:
        runner.cancel()
        runner.start(job)
        return WEBHOOK in waits_for()

    with webhook_that_is_away(cluster, stage.namespace, "pods", refused):
        assert stage.kubelet.pods() == []
        assert waits_for().startswith("the API server: cannot create pods ")
    eventually(lambda: runner.state and stage.kubelet.pods(), "the job's pod")
    cluster.close()


def test_a_job_under_way_costs_no_requests(stage: Stage) -> None:
    job, runner = stage.job(), stage.runner()
    stage.kubelet.tell(
        stage.started(runner, job),
        {"phase": "Running"} | waiting("ContainerCreating", "pulls the image"),
    )
    eventually(
        lambda: runner.state and "pulls the image" in runner.state.waits_for,
        "the watch tells of the pod",
    )
    before = stage.operators[-1].requests
    for _ in range(100):
        assert runner.state
        assert runner.state.phase == "Running"
    assert stage.operators[-1].requests == before


def test_progress_of_a_pod_arrives(stage: Stage) -> None:
    job, runner = stage.job(), stage.runner()
    pod = stage.started(runner, job)
    progress = PlanningProgress("clicks", 3, 7, 1000)
    name = pod["metadata"]["name"]
    said = {"status": {"progress": encode_progress(progress)}}
    stage.admin.patch(f"{JOB_REPORTS.format(stage.namespace)}/{name}/status", said).expect()
    stage.kubelet.tell(
        pod,
        {"phase": "Running", "containerStatuses": [status_of({"running": {"startedAt": None}})]},
    )
    eventually(lambda: runner.state and runner.state.progress == progress, "the progress")


def test_pods_are_bounded_in_number_and_jobs_wait_in_order_also_for_those_of_an_operator_before(
    stage: Stage,
) -> None:
    backfills = [stage.backfill, stage.another("february"), stage.another("march")]
    jobs = [stage.job(backfill) for backfill in backfills]
    first = stage.started(stage.with_secret().runner(most=1), jobs[0])
    operator = stage.operator(most=1)
    runners = [stage.jobs_of(backfill, operator) for backfill in backfills]
    for number in (2, 1, 0):
        runners[number].start(jobs[number])
        assert runners[number].state
    assert [runner.state and runner.state.waits_for for runner in runners[1:]] == [
        "its turn",
        "its turn",
    ]
    assert stage.kubelet.pods() == [first]
    stage.kubelet.run(first)
    assert ended(runners[0], jobs[0]).phase == "Done"
    eventually(
        lambda: runners[2].state and runners[2].state.waits_for != "its turn",
        "the turn of who waits longest",
    )
    assert runners[1].state
    assert runners[1].state.waits_for == "its turn"
    names = [pod["metadata"]["name"] for pod in stage.kubelet.pods()]
    assert names == [job_name(backfills[2], jobs[2])]


def test_without_the_application_there_is_no_pod_and_the_field_is_named(stage: Stage) -> None:
    stage.admin.delete(f"{SPARK_APPLICATIONS.format(stage.namespace)}/app").expect()
    job, runner = stage.job(), stage.runner()
    runner.start(job)
    error = ended(runner, job).error
    assert isinstance(error, BadInput)
    assert error.problems[0].field == "spec.applicationRef.name"


RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
LOOSE_DRIVER = {
    "hostNetwork": True,
    "podSecurityContext": {
        "runAsUser": 0,
        "seccompProfile": {"type": "Unconfined"},
        "sysctls": [{"name": "a.b", "value": "1"}],
    },
    "securityContext": {
        "privileged": True,
        "allowPrivilegeEscalation": True,
        "runAsNonRoot": False,
        "capabilities": {"add": ["SYS_ADMIN"]},
        "seLinuxOptions": {"type": "spc_t"},
        "procMount": "Unmasked",
    },
    "sidecars": [
        {"name": "beside", "image": "proxy", "ports": [{"containerPort": 80, "hostPort": 80}]}
    ],
    "initContainers": [{"name": "before", "image": "setup", "securityContext": {"runAsUser": 0}}],
}


def label(stage: Stage, labels: dict[str, str]) -> None:
    stage.admin.patch(
        f"api/v1/namespaces/{stage.namespace}", {"metadata": {"labels": labels}}
    ).expect()


def with_driver(stage: Stage, **driver: Any) -> None:
    """Production has another driver."""
    path = f"{SPARK_APPLICATIONS.format(stage.namespace)}/app"
    stage.admin.patch(path, {"spec": {"driver": {"podSecurityContext": None} | driver}}).expect()


@pytest.mark.parametrize("driver", [{}, LOOSE_DRIVER], ids=["nothing", "everything"])
def test_a_namespace_with_restricted_pod_security_takes_the_pod_whatever_production_says(
    stage: Stage, driver: dict[str, Any]
) -> None:
    with_driver(stage, **driver)
    label(stage, RESTRICTED)
    job, runner = stage.job(), stage.with_secret().runner()
    pod = stage.started(runner, job)
    assert pod["spec"]["securityContext"]["runAsUser"] == 185
    assert pod["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] is True
    stage.kubelet.run(pod)
    assert ended(runner, job).phase == "Done"


def test_the_user_is_the_applications_choice_where_the_namespace_leaves_it(stage: Stage) -> None:
    with_driver(stage, securityContext={"privileged": True, "runAsUser": 0})
    pod = stage.started(stage.runner(), stage.job())
    assert "securityContext" not in pod["spec"] or "runAsUser" not in pod["spec"]["securityContext"]
    context = pod["spec"]["containers"][0]["securityContext"]
    assert (
        context["runAsUser"],
        context["allowPrivilegeEscalation"],
        context.get("privileged"),
    ) == (0, False, None)


HARD = {
    f"{kind}.{name}": "2Gi"
    for kind in ("requests", "limits")
    for name in ("memory", "ephemeral-storage")
} | {
    "requests.cpu": "1",
    "limits.cpu": "2",
    "pods": "1",
}


def quota(stage: Stage, hard: dict[str, str]) -> str:
    """A ResourceQuota as its controller, which does not run here, would have it."""
    quotas = f"api/v1/namespaces/{stage.namespace}/resourcequotas"
    stage.admin.create(quotas, {"metadata": {"name": "hard"}, "spec": {"hard": hard}}).expect()
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    stage.admin.patch(f"{quotas}/hard/status", {"status": status}).expect()
    return f"{quotas}/hard"


def test_a_quota_on_everything_takes_the_pod(stage: Stage) -> None:
    quota(stage, HARD)
    job, runner = stage.job(), stage.with_secret().runner()
    stage.kubelet.run(stage.started(runner, job))
    assert ended(runner, job).phase == "Done"


LIMITS = {"max": {"cpu": "1", "memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "4"}}


def test_a_limit_range_that_the_defaults_do_not_fit_is_named_until_the_resources_fit(
    stage: Stage,
) -> None:
    limits = [{"type": "Container", **LIMITS}]
    path = f"api/v1/namespaces/{stage.namespace}/limitranges"
    stage.admin.create(path, {"metadata": {"name": "small"}, "spec": {"limits": limits}}).expect()
    job, runner = stage.job(), stage.runner()
    runner.start(job)

    def waits() -> str:
        return str(runner.state and runner.state.waits_for)

    eventually(lambda: "choose spec.planning.resources within the LimitRange" in waits(), waits)
    assert "maximum memory usage per Container is 1Gi" in waits()
    assert stage.left() == []
    fitting = PodResources(cpu="1", memory="1Gi")
    planning = PlanningOptions(resources=fitting)
    stage.backfill = stage.backfill.model_copy(
        update={"spec": stage.backfill.spec.model_copy(update={"planning": planning})}
    )
    runner = stage.runner()
    assert stage.started(runner, job)["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"


DENIAL = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
            }
        ]
    },
    "validations": [{"expression": "false", "message": "images come from registry.internal"}],
}


def test_a_policy_that_denies_the_pod_is_waited_for_and_leaves_nothing_behind(stage: Stage) -> None:
    policies = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    name, here = (
        f"deny-{stage.namespace}",
        {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
    )
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": here},
    }
    stage.admin.create(policies, {"metadata": {"name": name}, "spec": DENIAL}).expect()
    stage.admin.create(
        f"{policies[:-8]}policybindings", {"metadata": {"name": name}, "spec": binding}
    ).expect()
    try:
        pods, pod = (
            f"api/v1/namespaces/{stage.namespace}/pods",
            {
                "metadata": {"name": "x"},
                "spec": UNSPECIAL,
            },
        )
        eventually(
            lambda: stage.admin.create(pods, pod, dryRun="All").status == 422, "the policy is known"
        )
        job, runner = stage.job(), stage.with_secret().runner()
        runner.start(job)
        assert runner.state
        assert runner.state.phase == "Running"
        assert (
            "images come from registry.internal; change the driver of the SparkApplication"
            in runner.state.waits_for
        )
        assert stage.left() == []
    finally:
        stage.admin.delete(f"{policies[:-8]}policybindings/{name}")
        stage.admin.delete(f"{policies}/{name}")
    stage.kubelet.run(eventually(lambda: runner.state and stage.kubelet.pods(), "the job's pod")[0])
    assert ended(runner, job).phase == "Done"


UNSPECIAL = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}


def test_an_account_that_is_missing_is_named_and_waited_for(stage: Stage) -> None:
    stage.admin.delete(f"api/v1/namespaces/{stage.namespace}/serviceaccounts/spark").expect()
    runner = stage.runner()
    runner.start(stage.job())
    assert runner.state
    assert runner.state.phase == "Running"
    assert "create the ServiceAccount" in runner.state.waits_for


@pytest.mark.hostile
def test_the_pod_of_a_job_may_write_the_status_of_reports_and_nothing_else(stage: Stage) -> None:
    """Whoever takes it over reaches no ConfigMap, no plan, no Secret, and not the job itself."""
    report = job_report(stage.backfill, stage.job())
    name, there = report["metadata"]["name"], f"api/v1/namespaces/{stage.namespace}"
    stage.cluster.create(JOB_REPORT, report)
    stage.cluster.create(
        CONFIG_MAP, {"metadata": {"name": "of-a-team", "namespace": stage.namespace}}
    )
    pod, reports = Rest(stage.kubelet.kubeconfig), JOB_REPORTS.format(stage.namespace)
    written = pod.patch(
        f"{reports}/{name}/status", {"status": {"progress": "{}"}, "spec": {"job": "publish"}}
    ).expect()
    assert (written["spec"]["job"], written["status"]["progress"]) == ("plan", "{}")
    assert pod.patch(f"{reports}/{name}", {"spec": {"job": "publish"}}).status == 403
    assert pod.patch(f"{there}/configmaps/of-a-team", {"data": {"a": "b"}}).status == 403
    assert pod.patch(f"{there}/configmaps/{name}", {"data": {"a": "b"}}).status == 403
    assert pod.create(f"{there}/configmaps", {"metadata": {"name": "new"}}).status == 403
    for hidden in (
        f"{reports}/{name}",
        reports,
        f"{there}/configmaps/of-a-team",
        f"{there}/secrets/lake-catalog",
    ):
        assert pod.get(hidden).status == 403
    pod.close()
