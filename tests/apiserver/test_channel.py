"""The controller's end of a SplitAssignment, while a driver, the garbage collector and other
controllers do theirs.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from proxy import CUT, Request, running_proxy
from rest import BACKFILLS, SPLIT_ASSIGNMENTS, Manifest, Rest
from samples import BACKFILL

from backfill.api.errors import ConflictError
from backfill.controller.cluster.channel import KubernetesChannel
from backfill.kube.cache import Cache, own_key
from backfill.kube.client import Cluster
from backfill.protocol.split_assignment import SplitAssignmentSpec

WATERMARK = datetime(2021, 7, 11, tzinfo=UTC)


def assignment(**fields: Any) -> SplitAssignmentSpec:
    known = {
        "backfill": "july",
        "plan_id": "0123456789abcdef",
        "attempt": 1,
        "steps": 10,
        "watermark": WATERMARK,
    }
    return SplitAssignmentSpec(**known | fields)


class Subject:
    """The channel of a Backfill, and a driver at its other end."""

    def __init__(self, rest: Rest, cluster: Cluster, namespace: str):
        self.rest, self.cluster, self.namespace = rest, cluster, namespace
        self.path = f"{SPLIT_ASSIGNMENTS.format(namespace)}/july"
        self.cache = Cache(own_key)
        self.uid = rest.create(BACKFILLS.format(namespace), BACKFILL).expect()["metadata"]["uid"]
        self.channel = self.another_channel(self.uid)

    def another_channel(self, uid: str) -> KubernetesChannel:
        return KubernetesChannel(self.cluster, self.cache, (self.namespace, "july"), uid)

    @property
    def now(self) -> Manifest:
        return self.rest.get(self.path).expect()

    def report(self, **fields: Any) -> None:
        """What a driver does."""
        status = {"attempt": 1, "phase": "Running", "heartbeat": "2021-08-01T00:00:00Z", **fields}
        self.rest.patch(f"{self.path}/status", {"status": status}).expect()


@pytest.fixture
def subject(admin: Rest, crds: None, namespace: str, cluster: Cluster) -> Subject:
    return Subject(admin, cluster, namespace)


def test_the_first_assignment_is_made_and_goes_with_its_backfill(subject: Subject) -> None:
    assert subject.channel.assignment() is None
    assert subject.channel.report() is None
    subject.channel.write(assignment(released=2))
    (owner,) = subject.now["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == (
        subject.uid,
        "Backfill",
        True,
        True,
    )
    assert subject.now["metadata"]["labels"]["backfill.dev/backfill"] == "july"
    assert subject.now["spec"]["released"] == 2
    assert subject.channel.assignment() == assignment(released=2), (
        "it is seen before any watch tells of it"
    )


def test_a_change_is_one_patch_and_no_change_is_none(subject: Subject) -> None:
    subject.channel.write(assignment(released=2))
    generation = subject.now["metadata"]["generation"]
    subject.channel.write(assignment(released=3, stop=True))
    subject.channel.write(assignment(released=3, stop=True))
    assert subject.now["metadata"]["generation"] == generation + 1
    assert subject.now["spec"] == assignment(released=3, stop=True).to_manifest()


def test_what_is_not_set_any_more_is_gone(subject: Subject) -> None:
    subject.channel.write(assignment(executor_target=4))
    subject.channel.write(assignment())
    assert "executorTarget" not in subject.now["spec"]


def test_a_driver_that_reports_meanwhile_is_no_conflict_and_its_report_is_seen(
    subject: Subject,
) -> None:
    subject.channel.write(assignment(released=1))
    subject.report(executors=3)
    subject.channel.write(assignment(released=2))
    report = subject.channel.report()
    assert report is not None
    assert (report.attempt, report.phase, report.executors) == (1, "Running", 3)


def test_a_controller_that_saw_an_older_assignment_writes_nothing(subject: Subject) -> None:
    subject.channel.write(assignment(released=1))
    deposed = KubernetesChannel(
        subject.cluster, Cache(own_key), (subject.namespace, "july"), subject.uid
    )
    deposed._assignments.put(subject.now)
    subject.channel.write(assignment(released=7))
    with pytest.raises(ConflictError):
        deposed.write(assignment(released=2))
    assert subject.now["spec"]["released"] == 7
    assert deposed.assignment() == assignment(released=7), "the next turn sees what is there"


def test_an_assignment_that_was_deleted_is_made_again(subject: Subject) -> None:
    subject.channel.write(assignment(released=1))
    subject.rest.delete(subject.path).expect()
    with pytest.raises(ConflictError):
        subject.channel.write(assignment(released=2))
    assert subject.channel.assignment() is None
    subject.channel.write(assignment(released=2))
    assert subject.now["spec"]["released"] == 2


def test_one_that_exists_already_is_taken_over_in_the_next_turn(subject: Subject) -> None:
    subject.channel.write(assignment(released=1))
    restarted = KubernetesChannel(
        subject.cluster, Cache(own_key), (subject.namespace, "july"), subject.uid
    )
    with pytest.raises(ConflictError):
        restarted.write(assignment(released=1))
    assert restarted.assignment() == assignment(released=1)


def test_what_an_earlier_backfill_of_the_name_left_is_not_read_and_gives_way(
    subject: Subject,
) -> None:
    subject.channel.write(assignment(released=9, attempt=3))
    subject.report(attempt=1, phase="Finished")
    subject.cache.put(subject.now)
    successor = subject.another_channel("11111111-2222-3333-4444-555555555555")
    assert successor.assignment() is None
    assert successor.report() is None
    with pytest.raises(ConflictError):
        successor.write(assignment())
    successor.write(assignment())
    assert (
        subject.now["metadata"]["ownerReferences"][0]["uid"]
        == "11111111-2222-3333-4444-555555555555"
    )
    assert "status" not in subject.now


def test_an_assignment_that_is_removed_is_gone_at_once_and_only_ones_own(subject: Subject) -> None:
    subject.channel.write(assignment())
    subject.another_channel("11111111-2222-3333-4444-555555555555").remove()
    assert subject.channel.assignment() == assignment()
    for _ in range(2):
        subject.channel.remove()
        assert subject.channel.assignment() is None
    assert subject.rest.get(subject.path).status == 404


def test_a_message_that_can_not_be_understood_is_none_and_is_replaced(subject: Subject) -> None:
    subject.channel.write(assignment(released=1))
    strange = subject.now
    strange["spec"] = {"released": "many"}
    strange["status"] = {"phase": "Dancing"}
    strange["metadata"]["resourceVersion"] = str(int(strange["metadata"]["resourceVersion"]) + 1)
    subject.cache.put(strange)
    assert subject.channel.assignment() is None
    assert subject.channel.report() is None
    subject.channel.write(assignment(released=2))
    assert subject.now["spec"]["released"] == 2


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_a_write_whose_answer_is_lost_is_seen_in_the_next_turn(
    subject: Subject, cluster_admin: Path, tmp_path: Path, verb: str
) -> None:
    lost: list[Request] = []

    def lose_the_first(request: Request, response: object) -> Any:
        if request.verb != verb or lost:
            return None
        lost.append(request)
        return CUT

    if verb == "patch":
        subject.channel.write(assignment(released=0))
    with running_proxy(cluster_admin) as proxy:
        cluster = Cluster.from_kubeconfig(proxy.kubeconfig(cluster_admin, tmp_path / "config"))
        proxy.after = lose_the_first
        channel = KubernetesChannel(
            cluster, subject.cache, (subject.namespace, "july"), subject.uid
        )
        with pytest.raises(ConflictError):
            channel.write(assignment(released=1))
        assert channel.assignment() == assignment(released=1)
        cluster.close()
    assert lost
