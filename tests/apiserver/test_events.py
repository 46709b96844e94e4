"""Events on a real API server: one for each reason, counted."""

from datetime import UTC, datetime

import pytest
from identities import ServiceAccountMaker, rule
from rest import BACKFILLS, Manifest, Rest
from samples import BACKFILL

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason
from backfill.api.manifests.problems import read_json
from backfill.api.status import BackfillStatus
from backfill.controller.cluster.store import KubernetesStore
from backfill.controller.manager.events import Recorder
from backfill.kube.cache import Cache, own_key
from backfill.kube.client import Cluster
from backfill.kube.object_names import FINALIZER

NOW = datetime(2021, 8, 1, tzinfo=UTC)


@pytest.fixture
def backfill(admin: Rest, crds: None, namespace: str) -> Backfill:
    return read_json(Backfill, admin.create(BACKFILLS.format(namespace), BACKFILL).expect())


def running(message: str) -> BackfillStatus:
    condition = Condition(
        type=ConditionType.RUNNING,
        status="True",
        reason=Reason.REPLAYING,
        message=message,
        last_transition_time=NOW,
    )
    return BackfillStatus(conditions=(condition,))


def events(admin: Rest, namespace: str) -> list[Manifest]:
    return list(admin.get(f"api/v1/namespaces/{namespace}/events").expect()["items"])


def test_an_event_is_found_with_its_backfill(
    admin: Rest, cluster: Cluster, backfill: Backfill, namespace: str
) -> None:
    Recorder(cluster, "replica-0").status_written(backfill, running("attempt 1 is reading"))
    path = f"api/v1/namespaces/{namespace}/events"
    (event,) = admin.get(
        path, fieldSelector=f"involvedObject.uid={backfill.metadata.uid}"
    ).expect()["items"]
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Running",
        "attempt 1 is reading",
    )
    assert event["involvedObject"]["kind"] == "Backfill"
    assert event["count"] == 1


def test_what_happens_again_is_counted_with_its_last_message(
    admin: Rest, cluster: Cluster, backfill: Backfill, namespace: str
) -> None:
    for number in (1, 2, 3):
        Recorder(cluster, f"replica-{number}").status_written(
            backfill, running(f"attempt {number} is reading")
        )
    (event,) = events(admin, namespace)
    assert event["count"] == 3
    assert event["message"] == "attempt 3 is reading"
    assert event["firstTimestamp"] <= event["lastTimestamp"]


def test_a_backfill_made_again_has_events_of_its_own(
    admin: Rest, cluster: Cluster, backfill: Backfill, namespace: str
) -> None:
    again = backfill.model_copy(
        update={"metadata": backfill.metadata.model_copy(update={"uid": "another"})}
    )
    for subject in (backfill, again):
        Recorder(cluster, "replica-0").status_written(subject, running("attempt 1 is reading"))
    assert len(events(admin, namespace)) == 2


def test_who_may_not_write_events_goes_on_without(
    admin: Rest,
    backfill: Backfill,
    namespace: str,
    service_account: ServiceAccountMaker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster.from_kubeconfig(service_account("silent", [rule("", "configmaps", "get")]))
    Recorder(cluster, "replica-0").status_written(backfill, running("attempt 1 is reading"))
    assert events(admin, namespace) == []
    assert (
        'grant it in a role: apiGroups: [""], resources: ["events"], verbs: ["create"]'
        in caplog.text
    )
    cluster.close()


def test_what_can_not_be_told_in_a_namespace_that_is_being_deleted_is_in_the_log_and_holds_nothing_up(
    admin: Rest,
    cluster: Cluster,
    backfill: Backfill,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, uid = f"{BACKFILLS.format(namespace)}/{backfill.metadata.name}", backfill.metadata.uid
    admin.patch(
        path, {"metadata": {"finalizers": [FINALIZER]}, "spec": {"workspace": "s3://lake/work"}}
    ).expect()
    admin.delete(f"api/v1/namespaces/{namespace}").expect()
    admin.delete(path).expect()
    cache = Cache(own_key)
    cache.put(admin.get(path).expect())
    on_status = Recorder(cluster, "replica-0").status_written
    store = KubernetesStore(
        cluster, cache, (namespace, backfill.metadata.name), uid, on_status=on_status
    )
    store.load()
    left = Condition(
        type=ConditionType.SUCCEEDED,
        status="False",
        reason=Reason.CLEANUP_INCOMPLETE,
        message="Possibly left behind: branch backfill/july of lake.ops.summary",
        last_transition_time=NOW,
    )
    store.write_status(BackfillStatus(conditions=(left,)))
    store.delete()
    assert not admin.get(path).ok
    assert events(admin, namespace) == []
    assert (
        "event CleanupIncomplete (Possibly left behind: branch backfill/july of"
        " lake.ops.summary) was not recorded" in caplog.text
    )


def test_what_keeps_a_backfill_from_being_worked_on_is_told(
    admin: Rest, cluster: Cluster, backfill: Backfill, namespace: str
) -> None:
    manifest = admin.get(f"{BACKFILLS.format(namespace)}/{backfill.metadata.name}").expect()
    Recorder(cluster, "replica-0").reconcile_failed(manifest, "may not create sparkapplications")
    (event,) = events(admin, namespace)
    assert (event["type"], event["reason"]) == ("Warning", "ReconcileFailed")
    assert event["message"] == "cannot be reconciled; retrying: may not create sparkapplications"
    assert event["involvedObject"]["uid"] == backfill.metadata.uid
