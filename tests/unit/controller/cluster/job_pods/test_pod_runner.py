"""What the operator does with the pod of a job, on a cluster in memory."""

import base64
from typing import Any, cast

from backfill.api.errors import BackfillError
from backfill.controller.cluster.job_pods.packed_jobs import encode_end
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import (
    RESULT_KEY,
    JobImage,
    job_name,
    job_report,
)
from backfill.controller.cluster.job_pods.runner import JobPods
from backfill.controller.jobs.any_job import Job
from backfill.controller.jobs.job_messages import Message
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.kube.cache import Cache, labelled_key, own_key
from backfill.kube.client import Cluster
from backfill.kube.object_names import BACKFILL_LABEL
from backfill.kube.resources import JOB_REPORT, POD, Manifest, Resource
from backfill.planning.workspace import Workspace
from cases import cases
from spark_applications import KUBEFLOW, backfill_of

BACKFILL = backfill_of(KUBEFLOW)
FAILED = Message("Failed", error=BackfillError("a branch could not be removed"))


class _Objects:
    """A report with the end of a job, its pod, and with which grace period that was deleted."""

    def __init__(self, report: Manifest) -> None:
        self.report = report
        self.grace: list[int | None] = []

    def get(self, resource: Resource, *_: str) -> Manifest | None:
        return self.report if resource is JOB_REPORT else None

    def delete(self, resource: Resource, *_: str, uid: str, grace_seconds: int | None) -> bool:
        assert (resource, uid) == (POD, "pod-1")
        self.grace.append(grace_seconds)
        return True

    def log(self, *_: str, tail_lines: int) -> list[str]:
        return []


@cases(
    "job, end, grace",
    {
        "a discard that is done": (DiscardJob.of(BACKFILL), Message("Done"), 0),
        "a discard that failed": (DiscardJob.of(BACKFILL), FAILED, None),
        "another job": (PlanJob.of(BACKFILL, Workspace("s3://lake/b"), 1), FAILED, None),
    },
)
def test_only_the_pod_of_the_last_job_is_deleted_without_a_grace_period(
    job: Job, end: Message, grace: int | None
) -> None:
    metadata: dict[str, Any] = {
        "namespace": BACKFILL.metadata.namespace,
        "name": job_name(BACKFILL, job),
        "labels": {BACKFILL_LABEL: BACKFILL.metadata.name},
        "resourceVersion": "1",
    }
    report = job_report(BACKFILL, job)
    report["metadata"] |= metadata | {"uid": "report-1"}
    objects, pods, reports = _Objects(report), Cache(labelled_key), Cache(labelled_key)
    spec = {"containers": [{"name": "spark-kubernetes-driver", "image": "jobs:1"}]}
    pod = {"metadata": metadata | {"uid": "pod-1"}, "spec": spec, "status": {"phase": "Running"}}
    pods.put(pod)
    reports.put(report)
    places = PodPlaces(pods, 1, Cache(own_key), lambda: 1)
    shared = JobPods(cast(Cluster, objects), pods, reports, places, JobImage("jobs:1"))
    runner = shared.runner(lambda: BACKFILL, lambda seconds: None)
    runner.start(job)
    assert runner.state is not None
    assert runner.state.phase == "Running"
    status = {RESULT_KEY: base64.b64encode(encode_end(job, end)).decode()}
    objects.report = report | {"status": status}
    objects.report["metadata"] = report["metadata"] | {"resourceVersion": "2"}
    reports.put(objects.report)
    assert runner.state.phase == ("Done" if end.kind == "Done" else "Failed")
    assert objects.grace == [grace]
