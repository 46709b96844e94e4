"""Events on a real API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from identities import ServiceAccountMaker, rule
from proxy import Response, refusal, running_proxy
from rest import BACKFILLS, Manifest, Rest
from samples import BACKFILL
from watches import Watches

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason
from backfill.api.manifests.problems import read_json
from backfill.api.status import BackfillStatus
from backfill.controller.cluster.store import KubernetesStore
from backfill.controller.manager.events import Recorder
from backfill.controller.manager.listing import Watched
from backfill.controller.manager.login import Login
from backfill.kube.cache import Cache, own_key
from backfill.kube.client import Cluster
from backfill.kube.object_names import FINALIZER
from backfill.kube.resources import BACKFILL as BACKFILLS_KIND
from waiting import eventually

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


def events(admin: Rest, backfill: Backfill) -> list[Manifest]:
    path = f"api/v1/namespaces/{backfill.metadata.namespace}/events"
    uid = f"involvedObject.uid={backfill.metadata.uid}"
    return list(admin.get(path, fieldSelector=uid).expect()["items"])


@pytest.fixture
def recorder(backfill: Backfill, cluster_admin: Path, namespace: str) -> Iterator[Recorder]:
    with posting(cluster_admin, namespace) as recorder:
        yield recorder


@contextmanager
def posting(kubeconfig: Path, namespace: str) -> Iterator[Recorder]:
    """A recorder in an operator that watches."""
    watches = Watches([Watched(BACKFILLS_KIND, Cache(own_key))], namespace, Login(kubeconfig))
    try:
        yield watches.recorder
    finally:
        watches.close()


def test_an_event_is_found_with_its_backfill(
    admin: Rest, backfill: Backfill, recorder: Recorder
) -> None:
    recorder.status_written(backfill, running("attempt 1 is reading"))
    (event,) = eventually(lambda: events(admin, backfill), "the Event")
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Running",
        "attempt 1 is reading",
    )
    assert event["involvedObject"]["kind"] == "Backfill"
    assert event["source"]["component"] == event["reportingComponent"] == "backfill-operator"
    assert event["reportingInstance"] == "replica-0"
    assert event["metadata"]["name"].startswith("backfill-operator-")


def test_what_happens_before_anything_is_seen_is_told_afterwards(
    admin: Rest, backfill: Backfill, cluster_admin: Path, namespace: str
) -> None:
    path = f"{BACKFILLS.format(namespace)}/{backfill.metadata.name}"
    with running_proxy(cluster_admin) as proxy:
        proxy.before = lambda request: (
            refusal(503, "ServiceUnavailable") if request.verb in {"list", "watch"} else None
        )
        with posting(
            proxy.kubeconfig(cluster_admin, cluster_admin.parent / "p"), namespace
        ) as early:
            early.status_written(backfill, running("attempt 1 is reading"))
            assert events(admin, backfill) == []
            proxy.before = lambda request: None
            admin.patch(path, {"metadata": {"labels": {"seen": "now"}}}).expect()
            eventually(lambda: events(admin, backfill), "the Event")


def test_a_server_that_has_too_much_to_do_gets_events_later(
    admin: Rest, backfill: Backfill, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    busy = iter([Response(429, b"Too many requests, please try again later.\n", {})])
    with running_proxy(cluster_admin) as proxy:
        proxy.before = lambda request: next(busy, None) if request.resource == "events" else None
        with posting(proxy.kubeconfig(cluster_admin, tmp_path / "p"), namespace) as recorder:
            recorder.status_written(backfill, running("attempt 1 is reading"))
            eventually(lambda: events(admin, backfill), "the Event")


def test_who_may_not_write_events_goes_on_without(
    admin: Rest,
    backfill: Backfill,
    namespace: str,
    service_account: ServiceAccountMaker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent = service_account("silent", [rule("backfill.dev", "backfills", "list watch")])
    with posting(silent, namespace) as recorder:
        recorder.status_written(backfill, running("attempt 1 is reading"))
        eventually(lambda: "Failed to post an event" in caplog.text, "it is in the log")
    assert "attempt 1 is reading" in caplog.text
    assert events(admin, backfill) == []


def test_an_end_in_a_namespace_that_is_being_deleted_is_held_up_by_no_event(
    admin: Rest,
    cluster: Cluster,
    backfill: Backfill,
    namespace: str,
    recorder: Recorder,
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
    store = KubernetesStore(
        cluster,
        cache,
        (namespace, backfill.metadata.name),
        uid,
        on_status=recorder.status_written,
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
    eventually(
        lambda: "Possibly left behind: branch backfill/july of lake.ops.summary" in caplog.text,
        "it is in the log",
    )
    assert events(admin, backfill) == []


def test_what_keeps_a_backfill_from_being_worked_on_is_told(
    admin: Rest, backfill: Backfill, namespace: str, recorder: Recorder
) -> None:
    manifest = admin.get(f"{BACKFILLS.format(namespace)}/{backfill.metadata.name}").expect()
    recorder.reconcile_failed(manifest, "may not create sparkapplications")
    (event,) = eventually(lambda: events(admin, backfill), "the Event")
    assert (event["type"], event["reason"]) == ("Warning", "ReconcileFailed")
    assert event["message"] == "cannot be reconciled; retrying: may not create sparkapplications"
    assert event["involvedObject"]["uid"] == backfill.metadata.uid
