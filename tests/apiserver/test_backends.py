"""Drivers on a cluster, on a real API server. The tests play the Spark operator and the kubelet
through the API.
"""

import base64
import copy
from typing import Any

import apache_definition
import pytest
from absent_webhook import WEBHOOK, webhook_that_is_away
from rest import DEFINITIONS, Rest

from backfill.api.backfill import Backfill
from backfill.api.status import Attempt, BackfillStatus
from backfill.controller.children.apache import Apache
from backfill.controller.children.child_manifests import preview_launch
from backfill.controller.cluster.driver import KubernetesBackend
from backfill.controller.cluster.live_application import KubernetesLiveApplication
from backfill.controller.cluster.plan_config_map import APPLICATION_KEY
from backfill.controller.driver import Launch
from backfill.kube.cache import Cache, labelled_key
from backfill.kube.client import Cluster
from backfill.kube.object_names import owner_reference
from backfill.kube.packed_json import packed, unpacked
from backfill.kube.request_errors import Faltering
from backfill.kube.resources import CONFIG_MAP, POD, SPARK_APPLICATION, Resource
from backfill.planning.plan import header_digest
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of, production
from waiting import eventually

CHILD = "rmi-july-11-a1"
LIVE = "rmi-july-11-live"
_DEFINITION = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
RESOURCES = {KUBEFLOW["apiVersion"]: SPARK_APPLICATION, APACHE["apiVersion"]: Apache.resource}
pytestmark = pytest.mark.usefixtures("definitions")


@pytest.fixture
def definitions(admin: Rest, crds: None) -> None:
    admin.apply(f"{DEFINITIONS}/{apache_definition.NAME}", apache_definition.definition()).expect()
    eventually(
        lambda: admin.get("apis/spark.apache.org/v1/sparkapplications").ok,
        "Apache's resources are served",
    )


class Stage:
    """A production application, a Backfill of it, the backend under test, and the Spark operator's
    part.
    """

    def __init__(self, cluster: Cluster, namespace: str, base: Manifest = KUBEFLOW, **spec: Any):
        self.cluster, self.namespace, self.base = cluster, namespace, base
        self.resource = RESOURCES[base["apiVersion"]]
        backfill = backfill_of(base, **spec)
        self.backfill: Backfill = backfill.model_copy(
            update={"metadata": backfill.metadata.model_copy(update={"namespace": namespace})}
        )
        self.children, self.pods = Cache(labelled_key), Cache(labelled_key)
        self.backend = self.new_backend()

    def new_backend(self) -> KubernetesBackend:
        return KubernetesBackend(
            self.cluster, lambda: self.backfill, {self.resource: self.children}, self.pods
        )

    def with_production(self, base: Manifest | None = None) -> "Stage":
        manifest = copy.deepcopy(base or self.base)
        manifest["metadata"] = {"name": "rmi", "namespace": self.namespace}
        self.cluster.create(self.resource, manifest)
        return self

    def with_status(self, **fields: Any) -> None:
        self.backfill = self.backfill.model_copy(update={"status": BackfillStatus(**fields)})

    @property
    def launch(self) -> Launch:
        return preview_launch(self.backfill)

    def child(self) -> Manifest | None:
        return self.cluster.get(self.resource, self.namespace, CHILD)

    def submitted(self, **status: Any) -> None:
        """The Spark operator says something of the child."""
        change = {"status": status}
        manager = {"manager": "spark-operator", "subresource": "status"}
        self.children.put(
            self.cluster.merge(self.resource, self.namespace, CHILD, change, **manager)
        )

    def state(self, state: str, message: str = "") -> None:
        """The same in Kubeflow's words."""
        self.submitted(applicationState={"state": state, "errorMessage": message}, driverInfo={})

    def driver(self, **status: Any) -> Manifest:
        """A driver pod, as Spark makes it of the child's template, with a status."""
        child = self.child()
        assert child is not None
        labels = child["spec"]["driver"]["labels"] | {"spark-role": "driver"}
        container = {
            "name": "spark-kubernetes-driver",
            "image": "spark:4.3",
            "resources": {"limits": {"memory": "3Gi"}},
        }
        metadata = {"name": f"{CHILD}-driver", "namespace": self.namespace, "labels": labels}
        self.cluster.create(
            POD,
            {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}},
        )
        return self.kubelet(**status)

    def kubelet(self, **status: Any) -> Manifest:
        manager = {"manager": "kubelet", "subresource": "status"}
        pod = self.cluster.merge(
            POD, self.namespace, f"{CHILD}-driver", {"status": status}, **manager
        )
        self.pods.put(pod)
        return pod


@pytest.fixture
def stage(cluster: Cluster, namespace: str) -> Stage:
    return Stage(cluster, namespace).with_production()


def of_container(**state: Any) -> dict[str, Any]:
    status = {
        "name": "spark-kubernetes-driver",
        "image": "spark:4.3",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
    }
    return {"containerStatuses": [status | {"state": state}]}


@pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])
def test_nothing_stands_in_the_way_of_an_application_that_is_there(
    cluster: Cluster, namespace: str, base: Manifest
) -> None:
    stage = Stage(cluster, namespace, base).with_production()
    assert stage.backend.obstacles() == ()
    assert stage.backend.parallelism == 160
    assert stage.child() is None, "it only asked"


def test_an_application_that_is_missing_is_told(cluster: Cluster, namespace: str) -> None:
    problems = [str(problem) for problem in Stage(cluster, namespace).backend.obstacles()]
    assert problems == [
        (
            'spec.applicationRef.name: there is no SparkApplication "rmi" in namespace'
            f" {namespace}; refer to a production application in this namespace"
        ),
    ]


def test_what_only_the_definition_knows_is_told_before_planning(
    cluster: Cluster, namespace: str
) -> None:
    stage = Stage(cluster, namespace, overrides={"driver": {"tolerance": "high"}}).with_production()
    (problem,) = stage.backend.obstacles()
    assert 'unknown field "spec.driver.tolerance"' in problem.message


def test_an_obstacle_that_is_gone_is_forgotten(cluster: Cluster, namespace: str) -> None:
    stage = Stage(cluster, namespace)
    assert len(stage.backend.obstacles()) == 1
    stage.with_production()
    assert stage.backend.obstacles() == ()


def test_a_webhook_that_is_away_is_told_before_an_attempt_and_as_the_reason_of_one_that_it_kept_from_being_made(
    stage: Stage,
) -> None:
    launch = stage.launch
    with webhook_that_is_away(
        stage.cluster, stage.namespace, "sparkapplications", lambda: stage.new_backend().obstacles()
    ):
        (problem,) = stage.backend.obstacles()
        assert problem.may_pass
        assert "cannot check the child SparkApplication" in problem.message
        assert f'failed calling webhook "{WEBHOOK}"' in problem.message
        with pytest.raises(Faltering):
            stage.backend.start(launch)
        unmade = stage.backend.observe(1)
        assert unmade.phase == "Absent", "it is still to be made"
        assert "failed calling webhook" in unmade.message
    eventually(lambda: not stage.backend.obstacles(), "the webhook is gone")
    stage.backend.start(launch)
    assert stage.child() is not None


def test_before_each_attempt_it_is_looked_whether_it_can_be_made(stage: Stage) -> None:
    failed = Attempt(number=1, outcome="Failed", started_at="2024-01-01T00:00:00Z")
    stage.with_status(plan_id="0123456789abcdef", attempts=(failed,))
    assert stage.backend.obstacles() == ()
    stage.cluster.delete(SPARK_APPLICATION, stage.namespace, "rmi")
    (problem,) = stage.backend.obstacles()
    assert problem.message.startswith('there is no SparkApplication "rmi"')
    stage.with_production()
    assert stage.backend.obstacles() == ()


@pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])
def test_starting_makes_the_launcher_and_the_child_once(
    cluster: Cluster, namespace: str, base: Manifest
) -> None:
    stage = Stage(cluster, namespace, base).with_production()
    assert stage.backend.observe(1).phase == "Absent"
    stage.backend.start(stage.launch)
    first = stage.child()
    # a controller that does not know that its predecessor did it
    stage.new_backend().start(stage.launch)
    assert stage.child() == first
    assert first is not None
    assert first["metadata"]["ownerReferences"][0]["uid"] == stage.backfill.metadata.uid
    assert stage.cluster.get(CONFIG_MAP, namespace, CHILD) is not None
    state = stage.backend.observe(1)
    assert (state.phase, state.reason) == ("Pending", "NotSubmitted")
    assert state.since is not None


def test_a_child_of_somebody_else_is_not_taken_for_ours(stage: Stage) -> None:
    stage.cluster.create(CONFIG_MAP, {"metadata": {"name": CHILD, "namespace": stage.namespace}})
    stage.backend.start(stage.launch)
    state = stage.backend.observe(1)
    assert (state.phase, state.reason) == ("Exited", "Refused")
    assert "does not belong to this Backfill" in state.message


def test_a_refused_child_is_an_attempt_that_failed_for_that_reason(stage: Stage) -> None:
    stage.cluster.delete(SPARK_APPLICATION, stage.namespace, "rmi")
    stage.backend.start(stage.launch)
    state = stage.backend.observe(1)
    assert (state.phase, state.reason) == ("Exited", "Refused")
    assert 'there is no SparkApplication "rmi"' in state.message


def test_an_attempt_that_cannot_pull_its_image_is_outdated_once_production_has_another_one(
    stage: Stage,
) -> None:
    """Or a corrected image has no effect, although the condition says that it will."""
    stage.with_status(plan_id="0123456789abcdef")
    stage.backend.start(stage.launch)
    stage.state("SUBMITTED")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"name": "spark-kubernetes-driver", "ready": False, "restartCount": 0}
    statuses = [container | {"image": "spark:4.3", "imageID": "", "state": waiting}]
    stage.driver(phase="Pending", containerStatuses=statuses)
    assert (stage.backend.observe(1).reason, stage.backend.observe(1).outdated) == (
        "ImagePullBackOff",
        False,
    )
    change = {"spec": {"image": "registry.example/corrected:1"}}
    stage.cluster.merge(SPARK_APPLICATION, stage.namespace, "rmi", change, manager="kubectl")
    assert stage.new_backend().observe(1).outdated
    stage.with_status(plan_id="0123456789abcdef", watermark="2024-01-01T00:00:00Z")
    assert not stage.backend.observe(1).outdated, "its state is of the earlier program"


def test_attempts_after_the_first_rows_are_made_from_production_as_it_was_before_them(
    stage: Stage,
) -> None:
    content = packed(production(KUBEFLOW, image="registry.example/then:1"))
    digest = header_digest(unpacked(content))
    kept = {APPLICATION_KEY: base64.b64encode(content).decode()}
    owner = owner_reference(stage.backfill.metadata.name, stage.backfill.metadata.uid)
    metadata = {
        "name": "rmi-july-11-plan",
        "namespace": stage.namespace,
        "ownerReferences": [owner],
    }
    stage.cluster.create(CONFIG_MAP, {"metadata": metadata, "binaryData": kept})
    stage.cluster.delete(SPARK_APPLICATION, stage.namespace, "rmi")
    stage.with_status(
        plan_id="0123456789abcdef", application_digest=digest, watermark="2024-01-01T00:00:00Z"
    )
    assert stage.backend.obstacles() == ()
    stage.backend.start(stage.launch)
    child = stage.child()
    assert child is not None
    assert child["spec"]["image"] == "registry.example/then:1"


def test_a_submission_that_failed_says_why_in_one_line(stage: Stage) -> None:
    stage.backend.start(stage.launch)
    trace = (
        'Exception in thread "main"\n at x\nMessage: pods "a" is forbidden: exceeded quota: small,'
        " requested: cpu=4\n at y"
    )
    stage.state("FAILED", trace)
    state = stage.backend.observe(1)
    assert (state.phase, state.reason) == ("Exited", "QuotaExceeded")
    refused = 'pods "a" is forbidden: exceeded quota: small, requested: cpu=4'
    assert state.message == f"{refused}. Raise the ResourceQuota, or lower spec.overrides.driver."


def test_a_driver_is_followed_from_its_submission_to_its_end(stage: Stage) -> None:
    stage.backend.start(stage.launch)
    stage.state("SUBMITTED")
    assert stage.backend.observe(1).reason == "Submitted"
    stage.driver(
        phase="Pending",
        **of_container(waiting={"reason": "ImagePullBackOff", "message": "no such image"}),
    )
    state = stage.backend.observe(1)
    assert (state.phase, state.reason, state.message) == (
        "Pending",
        "ImagePullBackOff",
        "no such image",
    )
    stage.kubelet(phase="Running", **of_container(running={"startedAt": "2024-01-01T00:00:00Z"}))
    assert stage.backend.observe(1).phase == "Running"
    stage.state("COMPLETED")
    assert stage.backend.observe(1).phase == "Running", "the pod is the truth"
    stage.kubelet(
        phase="Failed", **of_container(terminated={"exitCode": 137, "reason": "OOMKilled"})
    )
    state = stage.backend.observe(1)
    assert (state.phase, state.exit_status, state.reason) == ("Exited", 137, "OOMKilled")
    assert "3Gi" in state.message


def test_an_unschedulable_driver_is_pending_with_the_schedulers_words(stage: Stage) -> None:
    stage.backend.start(stage.launch)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    stage.driver(phase="Pending", conditions=[condition])
    state = stage.backend.observe(1)
    assert (state.phase, state.reason, state.message) == (
        "Pending",
        "Unschedulable",
        "0/3 nodes are available",
    )


def test_a_driver_whose_pod_is_gone_has_exited_though_the_spark_operator_says_nothing(
    stage: Stage,
) -> None:
    stage.backend.start(stage.launch)
    stage.state("RUNNING")
    state = stage.backend.observe(1)
    assert (state.phase, state.reason) == ("Exited", "DriverGone")


def test_a_pod_that_the_cache_has_not_seen_yet_is_asked_for_before_it_is_called_gone(
    stage: Stage,
) -> None:
    stage.backend.start(stage.launch)
    stage.state("RUNNING")
    pod = stage.driver(
        phase="Running", **of_container(running={"startedAt": "2024-01-01T00:00:00Z"})
    )
    stage.pods.forget(pod)
    stage.pods = Cache(labelled_key)
    assert stage.new_backend().observe(1).phase == "Running"


def test_the_pod_of_an_earlier_backfill_of_the_name_is_not_taken_for_ours(stage: Stage) -> None:
    stage.backend.start(stage.launch)
    stage.driver(phase="Running", **of_container(running={"startedAt": "2024-01-01T00:00:00Z"}))
    stage.backfill = stage.backfill.model_copy(
        update={"metadata": stage.backfill.metadata.model_copy(update={"uid": "another"})}
    )
    assert stage.backend.observe(1).phase == "Absent"


def test_killing_ends_child_and_driver_and_says_so_only_when_the_pod_is_gone(stage: Stage) -> None:
    stage.backend.start(stage.launch)
    stage.driver(phase="Running", **of_container(running={"startedAt": "2024-01-01T00:00:00Z"}))
    stage.cluster.merge(
        POD,
        stage.namespace,
        f"{CHILD}-driver",
        {"metadata": {"finalizers": ["backfill.dev/held"]}},
        manager="tests",
    )
    stage.backend.kill(1)
    stage.backend.kill(1)  # may be asked again
    pod = stage.cluster.get(POD, stage.namespace, f"{CHILD}-driver")
    assert stage.child() is None
    assert pod is not None
    assert pod["metadata"]["deletionTimestamp"]
    stage.pods.put(pod)
    assert stage.backend.observe(1).phase == "Running"
    stage.cluster.merge(
        POD, stage.namespace, f"{CHILD}-driver", {"metadata": {"finalizers": None}}, manager="tests"
    )
    stage.pods.forget(pod)
    assert stage.backend.observe(1).phase == "Absent"


def test_killing_leaves_another_child_of_the_name_alone(stage: Stage) -> None:
    stage.backend.start(stage.launch)
    child = stage.child()
    assert child is not None
    stage.cluster.delete(SPARK_APPLICATION, stage.namespace, CHILD)
    del child["metadata"]["uid"], child["metadata"]["resourceVersion"]
    stage.cluster.create(SPARK_APPLICATION, child)
    stage.backend.kill(1)
    assert stage.child() is not None


def test_apaches_end_is_what_was_before_the_resources_were_released(
    cluster: Cluster, namespace: str
) -> None:
    stage = Stage(cluster, namespace, APACHE).with_production()
    stage.backend.start(stage.launch)
    states = [
        {"currentStateSummary": "Submitted"},
        {"currentStateSummary": "SchedulingFailure", "message": "Message: exceeded quota: small"},
        {"currentStateSummary": "ResourceReleased"},
    ]
    stage.submitted(
        currentState=states[-1],
        stateTransitionHistory={str(number): state for number, state in enumerate(states)},
    )
    state = stage.backend.observe(1)
    assert (state.phase, state.reason) == ("Exited", "QuotaExceeded")


def test_a_cluster_without_that_spark_operator_is_an_obstacle(
    cluster: Cluster, namespace: str
) -> None:
    stage = Stage(cluster, namespace)
    cluster.delete(_DEFINITION, None, apache_definition.NAME)
    eventually(
        lambda: not cluster.serves(Apache.resource), "Apache's resources are not served any more"
    )
    stage = Stage(cluster, namespace, APACHE)
    (problem,) = stage.backend.obstacles()
    assert str(problem).startswith(
        "spec.applicationRef.apiVersion: the cluster has no SparkApplications of"
        " spark.apache.org/v1"
    )


def test_an_application_that_is_no_python_program_is_an_obstacle(
    cluster: Cluster, namespace: str
) -> None:
    stage = Stage(cluster, namespace).with_production(production(KUBEFLOW, type="Scala"))
    assert [problem.field for problem in stage.backend.obstacles()] == [
        "SparkApplication/rmi: spec.type"
    ]


def handing_over(cluster: Cluster, namespace: str, base: Manifest, **hand_off: Any) -> Stage:
    window = {"start": "2021-07-11T00:00:00Z", "end": "Live"}
    wanted = {"to": "Live", "start": "Deploy", **hand_off}
    return Stage(cluster, namespace, base, window=window, handOff=wanted).with_production()


def live_application(stage: Stage) -> KubernetesLiveApplication:
    children = {stage.resource: stage.children}
    return KubernetesLiveApplication(stage.cluster, lambda: stage.backfill, children)


@pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])
def test_a_live_application_is_made_once_and_belongs_to_nobody(
    cluster: Cluster, namespace: str, base: Manifest
) -> None:
    stage = handing_over(cluster, namespace, base)
    assert stage.backend.obstacles() == ()
    assert cluster.get(stage.resource, namespace, LIVE) is None, "it only asked"
    assert live_application(stage).observe(LIVE).phase == "Absent"
    live_application(stage).start(stage.backfill)
    first = cluster.get(stage.resource, namespace, LIVE)
    assert first is not None
    assert "ownerReferences" not in first["metadata"]
    # a controller that does not know that its predecessor did it
    later = live_application(stage)
    later.start(stage.backfill)
    assert cluster.get(stage.resource, namespace, LIVE) == first
    assert (later.observe(LIVE).phase, later.observe(LIVE).reason) == ("Pending", "NotSubmitted")


def test_a_live_application_is_followed_and_its_absence_is_told(
    cluster: Cluster, namespace: str
) -> None:
    stage = handing_over(cluster, namespace, KUBEFLOW)
    live = live_application(stage)
    live.start(stage.backfill)
    for state, phase in (("RUNNING", "Running"), ("FAILED", "Exited")):
        said = {"applicationState": {"state": state, "errorMessage": "oom"}, "driverInfo": {}}
        manager = {"manager": "spark-operator", "subresource": "status"}
        change = {"status": said}
        stage.children.put(cluster.merge(SPARK_APPLICATION, namespace, LIVE, change, **manager))
        assert live.observe(LIVE).phase == phase
    assert live.observe(LIVE).message == "oom"
    gone = cluster.get(SPARK_APPLICATION, namespace, LIVE)
    assert gone is not None
    cluster.delete(SPARK_APPLICATION, namespace, LIVE)
    stage.children.forget(gone)
    assert live.observe(LIVE).phase == "Absent"


def test_a_name_that_is_taken_is_told_before_history_is_read(
    cluster: Cluster, namespace: str
) -> None:
    stage = handing_over(cluster, namespace, KUBEFLOW, name="profiles")
    theirs = copy.deepcopy(KUBEFLOW) | {"metadata": {"name": "profiles", "namespace": namespace}}
    cluster.create(SPARK_APPLICATION, theirs)
    (problem,) = stage.backend.obstacles()
    assert str(problem) == (
        "spec.handOff.name: SparkApplication profiles already exists and does not belong to this"
        " Backfill; use another name for the live application, or delete the existing one"
    )
    live = live_application(stage)
    live.start(stage.backfill)
    state = live.observe("profiles")
    assert (state.phase, state.reason) == ("Exited", "Refused")
    assert "SparkApplication profiles already exists" in state.message
