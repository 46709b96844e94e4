"""A Backfill in a cluster: what the controller reads of it and writes to it."""

from pathlib import Path
from typing import Any

import pytest
from proxy import CUT, Nth, Request, UnreliableProxy
from rest import BACKFILLS, Manifest, Rest
from samples import BACKFILL

from backfill.api.errors import BadInput, ConflictError, Problem
from backfill.api.status import BackfillStatus
from backfill.controller.cluster.store import KubernetesStore
from backfill.controller.decisions.decide import digest, finished
from backfill.kube.cache import Cache, own_key
from backfill.kube.client import Cluster
from backfill.kube.object_names import FINALIZER
from manifests import changed

WORKSPACE = {"spec.workspace": "s3://lake/backfills"}


class Subject:
    """A Backfill, the store under test, and how the world stands without it."""

    def __init__(self, rest: Rest, cluster: Cluster, namespace: str, manifest: Manifest):
        self.rest, self.cluster, self.namespace = rest, cluster, namespace
        self.path = f"{BACKFILLS.format(namespace)}/{manifest['metadata']['name']}"
        created = rest.create(BACKFILLS.format(namespace), manifest).expect()
        self.cache = Cache(own_key)
        self.cache.put(created)
        self.written: list[BackfillStatus] = []
        self.store = self.another_store(created["metadata"]["uid"])

    def another_store(self, uid: str, default_workspace: str | None = None) -> KubernetesStore:
        key = (self.namespace, self.path.rpartition("/")[2])
        return KubernetesStore(
            self.cluster,
            self.cache,
            key,
            uid,
            default_workspace=default_workspace,
            on_status=lambda before, after: self.written.append(after),
        )

    @property
    def now(self) -> Manifest:
        return self.rest.get(self.path).expect()

    def edit(self, change: Manifest) -> None:
        """Somebody else changes the Backfill; no watch has told of it yet."""
        self.rest.patch(self.path, change).expect()


@pytest.fixture
def subject(admin: Rest, crds: None, namespace: str, cluster: Cluster) -> Subject:
    return Subject(admin, cluster, namespace, changed(BACKFILL, WORKSPACE))


def planned(**fields: Any) -> BackfillStatus:
    return BackfillStatus(
        observed_generation=1, plan_id="0123456789abcdef", workspace="s3://lake/x", **fields
    )


def test_what_is_stored_is_what_is_loaded(subject: Subject) -> None:
    backfill = subject.store.load()
    assert backfill is not None
    assert backfill.metadata.name == "july"
    assert backfill.metadata.uid == subject.now["metadata"]["uid"]
    assert backfill.spec.sources[0].table == "lake.raw.impressions"
    assert subject.store.load() is backfill, "it is parsed once for each version"


def test_the_first_status_puts_the_finalizer_on_before(subject: Subject) -> None:
    subject.store.load()
    subject.store.write_status(planned())
    assert subject.now["metadata"]["finalizers"] == [FINALIZER]
    assert subject.now["status"]["planId"] == "0123456789abcdef"


def test_finalizers_of_others_stay(subject: Subject) -> None:
    subject.edit({"metadata": {"finalizers": ["example.com/hold"]}})
    subject.cache.put(subject.now)
    subject.store.load()
    subject.store.write_status(planned())
    assert subject.now["metadata"]["finalizers"] == ["example.com/hold", FINALIZER]
    subject.rest.delete(subject.path).expect()
    subject.cache.put(subject.now)
    subject.store.load()
    subject.store.delete()
    assert subject.now["metadata"]["finalizers"] == ["example.com/hold"]
    assert subject.store.load() is None, "nothing is left to do for it"
    subject.edit({"metadata": {"finalizers": None}})


def test_what_was_written_is_loaded_before_any_watch_tells_of_it(subject: Subject) -> None:
    subject.store.load()
    subject.store.write_status(planned())
    backfill = subject.store.load()
    assert backfill is not None
    assert backfill.status == planned()


def test_a_field_that_is_not_set_any_more_is_gone(subject: Subject) -> None:
    subject.store.load()
    subject.store.write_status(planned(next_attempt_at="2021-08-01T00:00:00Z"))
    subject.store.load()
    subject.store.write_status(planned())
    assert "nextAttemptAt" not in subject.now["status"]


def test_an_equal_status_is_not_written(subject: Subject) -> None:
    subject.store.load()
    subject.store.write_status(planned())
    version = subject.now["metadata"]["resourceVersion"]
    subject.store.load()
    subject.store.write_status(planned())
    assert subject.now["metadata"]["resourceVersion"] == version
    assert len(subject.written) == 1


def test_a_status_decided_on_an_older_version_is_not_written_and_the_next_turn_sees_the_new_one(
    subject: Subject,
) -> None:
    subject.store.load()
    subject.edit({"spec": {"suspend": True}})
    with pytest.raises(ConflictError):
        subject.store.write_status(planned())
    assert "planId" not in subject.now.get("status", {})
    backfill = subject.store.load()
    assert backfill is not None
    assert backfill.spec.suspend


def test_a_backfill_made_again_under_its_name_is_another_one(subject: Subject) -> None:
    subject.store.load()
    subject.rest.delete(subject.path).expect()
    subject.rest.create(BACKFILLS.format(subject.namespace), changed(BACKFILL, WORKSPACE)).expect()
    with pytest.raises(ConflictError):
        subject.store.write_status(planned())
    assert subject.store.load() is None
    assert "status" not in subject.now
    assert "finalizers" not in subject.now["metadata"]


def test_a_status_for_a_backfill_that_is_gone_is_a_conflict_and_then_it_is_gone(
    subject: Subject,
) -> None:
    subject.store.load()
    subject.rest.delete(subject.path).expect()
    with pytest.raises(ConflictError):
        subject.store.write_status(planned())
    assert subject.store.load() is None
    assert not subject.rest.get(subject.path).ok, "it was not made again"


def test_letting_go_ends_a_deletion(subject: Subject) -> None:
    subject.store.load()
    subject.store.write_status(planned())
    subject.rest.delete(subject.path).expect()
    assert subject.now["metadata"]["deletionTimestamp"]
    subject.cache.put(subject.now)
    subject.store.load()
    subject.store.delete()
    assert subject.rest.get(subject.path).status == 404
    assert subject.store.load() is None
    subject.store.delete()  # once more, as after a crash


def test_what_is_being_deleted_gets_no_finalizer_any_more(subject: Subject) -> None:
    subject.edit({"metadata": {"finalizers": ["example.com/hold"]}})
    subject.rest.delete(subject.path).expect()
    subject.cache.put(subject.now)
    assert subject.store.load() is None
    subject.edit({"metadata": {"finalizers": None}})


def test_the_workspace_has_a_part_for_each_backfill_and_may_be_the_operators(
    subject: Subject,
) -> None:
    backfill = subject.store.load()
    assert backfill is not None
    assert (
        subject.store.workspace(backfill.spec).uri
        == f"s3://lake/backfills/{subject.namespace}/july"
    )
    elsewhere = subject.another_store(backfill.metadata.uid, default_workspace="s3://operator")
    unnamed = backfill.spec.model_copy(update={"workspace": None})
    assert elsewhere.workspace(unnamed).uri == f"s3://operator/{subject.namespace}/july"


def test_without_any_workspace_the_resource_says_what_to_do(
    admin: Rest, crds: None, namespace: str, cluster: Cluster
) -> None:
    subject = Subject(admin, cluster, namespace, BACKFILL)
    with pytest.raises(BadInput, match=r"spec\.workspace: is missing") as refusal:
        subject.store.load()
    subject.store.refuse(refusal.value)
    conditions = {each["type"]: each for each in subject.now["status"]["conditions"]}
    condition = conditions["Succeeded"]
    assert (condition["status"], condition["reason"]) == ("False", "InvalidInput")
    assert (conditions["Ready"]["status"], conditions["Stalled"]["status"]) == ("False", "True")
    assert [status.conditions[0].reason for status in subject.written] == ["InvalidInput"]
    assert "set an object store prefix" in condition["message"]
    version = subject.now["metadata"]["resourceVersion"]
    with pytest.raises(BadInput):
        subject.store.load()
    subject.store.refuse(refusal.value)
    assert subject.now["metadata"]["resourceVersion"] == version, "it is said once"


def test_a_refused_backfill_is_worked_on_once_it_is_corrected(
    admin: Rest, crds: None, namespace: str, cluster: Cluster
) -> None:
    subject = Subject(admin, cluster, namespace, BACKFILL)
    with pytest.raises(BadInput) as refusal:
        subject.store.load()
    subject.store.refuse(refusal.value)
    subject.edit({"spec": {"workspace": "s3://lake/backfills"}})
    subject.cache.put(subject.now)
    backfill = subject.store.load()
    assert backfill is not None
    assert not finished(backfill)


def test_a_spec_that_was_tried_is_tried_again_after_a_wrong_one(subject: Subject) -> None:
    backfill = subject.store.load()
    assert backfill is not None
    subject.store.write_status(
        BackfillStatus(spec_digest=digest(backfill.spec), workspace="s3://lake/x")
    )
    subject.edit({"spec": {"maxMisalignment": "20m"}})
    subject.cache.put(subject.now)
    subject.store.load()
    subject.store.refuse(BadInput(Problem("spec", "is wrong")))
    subject.edit({"spec": {"maxMisalignment": "15m"}})
    subject.cache.put(subject.now)
    restored = subject.store.load()
    assert restored is not None
    assert restored.status.workspace == "s3://lake/x"
    assert not finished(restored)


def test_what_this_version_can_not_read_is_refused_and_keeps_the_rest_of_its_status(
    subject: Subject,
) -> None:
    subject.store.load()
    subject.store.write_status(planned())
    # as another version of the operator may allow
    unreadable = changed(subject.now, {"spec.window.end": "soon"})
    store = KubernetesStore(
        subject.cluster, cache := Cache(own_key), ("x", "july"), unreadable["metadata"]["uid"]
    )
    cache.put(changed(unreadable, {"metadata.namespace": "x"}))
    with pytest.raises(BadInput, match=r"spec\.window\.end") as refusal:
        store.load()
    cache.put(unreadable)
    subject.store.refuse(refusal.value)
    assert subject.now["status"]["planId"] == "0123456789abcdef"
    assert subject.now["status"]["conditions"][0]["reason"] == "InvalidInput"


def test_a_refused_backfill_can_be_deleted(
    admin: Rest, crds: None, namespace: str, cluster: Cluster
) -> None:
    subject = Subject(
        admin, cluster, namespace, changed(BACKFILL, {"metadata.finalizers": [FINALIZER]})
    )
    subject.rest.delete(subject.path).expect()
    subject.cache.put(subject.now)
    backfill = subject.store.load()
    assert backfill is not None, "what was made of it can still be removed"
    subject.store.refuse(BadInput(()))
    assert subject.rest.get(subject.path).status == 404


def test_other_backfills_that_write_a_table_are_found_wherever_they_are(subject: Subject) -> None:
    """One that this version cannot read is nobody to speak of."""
    for name, table in (
        ("june", "lake.ops.summary"),
        ("may", "lake.ops.other"),
        ("april", "lake.ops.summary"),
    ):
        unlike = {
            "metadata.name": name,
            "metadata.namespace": "x",
            "metadata.uid": name,
            "spec.outputs.0.table": table,
        }
        end = "soon" if name == "april" else "2021-07-12T00:00:00Z"
        subject.cache.put(changed(subject.now, unlike | {"spec.window.end": end}))
    assert [found.metadata.name for found in subject.store.writers_of({"lake.ops.summary"})] == [
        "june"
    ]


def is_status(request: Request) -> bool:
    return request.resource == "backfills/status"


def test_a_write_whose_answer_is_lost_is_seen_in_the_next_turn(
    admin: Rest,
    crds: None,
    namespace: str,
    proxy: UnreliableProxy,
    cluster_admin: Path,
    tmp_path: Path,
) -> None:
    cluster = Cluster.from_kubeconfig(proxy.kubeconfig(cluster_admin, tmp_path / "config"))
    subject = Subject(admin, cluster, namespace, changed(BACKFILL, WORKSPACE))
    subject.store.load()
    lost = []
    proxy.after = lambda request, response: (
        CUT if is_status(request) and not lost and not lost.append(1) else None
    )  # type: ignore[func-returns-value]
    with pytest.raises(ConflictError):
        subject.store.write_status(planned())
    backfill = subject.store.load()
    assert backfill is not None
    assert backfill.status == planned()
    cluster.close()


def test_a_write_that_never_arrived_is_sent_again(
    admin: Rest,
    crds: None,
    namespace: str,
    proxy: UnreliableProxy,
    cluster_admin: Path,
    tmp_path: Path,
) -> None:
    cluster = Cluster.from_kubeconfig(proxy.kubeconfig(cluster_admin, tmp_path / "config"))
    subject = Subject(admin, cluster, namespace, changed(BACKFILL, WORKSPACE))
    subject.store.load()
    proxy.before = Nth(1, is_status, CUT)
    subject.store.write_status(planned())
    assert proxy.count("patch", "backfills/status") == 2
    assert subject.now["status"]["planId"] == "0123456789abcdef"
    cluster.close()
