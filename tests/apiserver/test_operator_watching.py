"""What the operator's watches see, and that they leave no trace."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proxy import Request, Response, refusal, running_proxy
from rest import BACKFILLS, DEFINITIONS, Manifest, Rest
from samples import BACKFILL as SAMPLE
from watches import Watches

from backfill.controller.manager.handlers import run
from backfill.controller.manager.listing import Relisting, Watched
from backfill.controller.manager.login import Login
from backfill.controller.manager.operator import Operator
from backfill.controller.manager.options import parse
from backfill.controller.manager.wiring import Caches
from backfill.kube.cache import Cache, labelled_key, own_key
from backfill.kube.object_names import BACKFILL_LABEL
from backfill.kube.resources import BACKFILL, POD, Resource
from manifests import changed
from waiting import eventually

MOST_STORED_LEVELS = 9_900
"""The API server refuses objects of ten thousand."""
FOREIGN = "kopf.zalando.org/KopfFinalizerMarker"
Watch = Callable[..., tuple[Watches, Relisting]]


@pytest.fixture
def watch(cluster_admin: Path, namespace: str) -> Iterator[Watch]:
    """Starts to watch kinds in the test's namespace."""
    started = []

    def start(*watched: Watched) -> tuple[Watches, Relisting]:
        login = Login(cluster_admin)
        relisting = Relisting(login.cluster(), watched, [namespace])
        relisting.list_once()
        watching = Watches(watched, namespace, login)
        started.append(watching)
        return watching, relisting

    yield start
    for watching in started:
        watching.close()


def minimal_backfill(name: str) -> Manifest:
    return changed(SAMPLE, {"metadata.name": name})


def pod(name: str, labels: dict[str, str]) -> Manifest:
    spec = {"containers": [{"name": "main", "image": "none"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def test_the_caches_follow_and_nothing_is_written(
    admin: Rest, crds: None, namespace: str, watch: Watch
) -> None:
    path = BACKFILLS.format(namespace)
    before = admin.create(path, minimal_backfill("before")).expect()
    cache = Cache(own_key)
    watch(Watched(BACKFILL, cache))
    assert cache.get(namespace, "before") is not None
    admin.create(path, minimal_backfill("after")).expect()
    eventually(lambda: cache.get(namespace, "after"), "the watch tells of a new one")
    admin.delete(f"{path}/before")
    eventually(lambda: cache.get(namespace, "before") is None, "the watch tells of a deletion")
    left = admin.get(f"{path}/after").expect()
    assert left["metadata"]["generation"] == before["metadata"]["generation"] == 1
    assert [entry["operation"] for entry in left["metadata"]["managedFields"]] == ["Update"]
    assert not left["metadata"].get("annotations")
    assert not left["metadata"].get("finalizers")
    assert admin.get(f"api/v1/namespaces/{namespace}/events").expect()["items"] == []


def test_the_first_list_of_a_watch_is_asked_for_in_pages(
    admin: Rest,
    crds: None,
    namespace: str,
    cluster_admin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of thousands of objects at once takes memory that the operator does not have."""
    monkeypatch.setattr("backfill.controller.manager.handlers._PAGE", 2)
    for number in range(5):
        admin.create(BACKFILLS.format(namespace), minimal_backfill(f"b{number}")).expect()
    cache = Cache(own_key)
    with running_proxy(cluster_admin) as proxy:
        login = Login(proxy.kubeconfig(cluster_admin, tmp_path / "kubeconfig"))
        watching = Watches([Watched(BACKFILL, cache)], namespace, login)
        eventually(lambda: len(cache) == 5, "all are seen")
        assert proxy.count("list", "backfills") == 3
        watching.close()


@pytest.fixture
def low_limit() -> Iterator[None]:
    """An interpreter that takes few levels."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(600)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.hostile
@pytest.mark.usefixtures("crds", "low_limit")
@pytest.mark.parametrize("levels", [500, 5_000, MOST_STORED_LEVELS])
def test_an_object_nested_as_deeply_as_can_be_stored_does_not_hide_the_others(
    admin: Rest, namespace: str, watch: Watch, levels: int
) -> None:
    path = BACKFILLS.format(namespace)
    manifest = minimal_backfill("deep")
    manifest["spec"]["overrides"] = {"driver": {"template": "DEEP"}}
    deep = '{"a":' * levels + "1" + "}" * levels
    admin.create(path, json.dumps(manifest).replace('"DEEP"', deep)).expect()
    admin.create(path, minimal_backfill("before")).expect()
    cache = Cache(own_key)
    watch(Watched(BACKFILL, cache))
    assert set(cache.keys()) == {(namespace, "deep"), (namespace, "before")}
    admin.patch(f"{path}/deep", {"metadata": {"labels": {"seen": "again"}}}).expect()
    eventually(
        lambda: "seen" in cache.get(namespace, "deep")["metadata"].get("labels", {}),
        "the watch tells of it",
    )
    admin.create(path, minimal_backfill("after")).expect()
    eventually(lambda: cache.get(namespace, "after"), "the watch goes on")


@pytest.mark.hostile
@pytest.mark.parametrize(
    "value", ['"\\ud800"', '{"\\ud800":1}', '"\\u0000\\u001b"', "1" * 300, "1e308", "0.1e-400"]
)
def test_whatever_text_and_number_can_be_stored_can_be_read(
    admin: Rest, crds: None, cluster_admin: Path, namespace: str, value: str
) -> None:
    text = json.dumps(changed(minimal_backfill("odd"), {"spec.overrides": {"driver": {"env": 0}}}))
    path = BACKFILLS.format(namespace)
    admin.create(path, text.replace('"env": 0', f'"env": [{value}]')).expect()
    listing = Login(cluster_admin).cluster().list(BACKFILL, namespace)
    assert [each["metadata"]["name"] for each in listing.items] == ["odd"]


def test_the_finalizer_of_another_operator_made_with_kopf_stays(
    admin: Rest, crds: None, namespace: str, watch: Watch
) -> None:
    path = BACKFILLS.format(namespace)
    cache = Cache(own_key)
    watch(Watched(BACKFILL, cache))
    manifest = minimal_backfill("theirs")
    manifest["metadata"]["finalizers"] = [FOREIGN]
    admin.create(path, manifest).expect()
    admin.delete(f"{path}/theirs")
    seen = eventually(
        lambda: _deleted(cache.get(namespace, "theirs")), "the watch tells of the deletion"
    )
    admin.create(path, minimal_backfill("later")).expect()
    eventually(lambda: cache.get(namespace, "later"), "the watch goes on")
    left = admin.get(f"{path}/theirs").expect()
    assert left["metadata"]["finalizers"] == [FOREIGN]
    assert left["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]


def test_only_pods_with_the_label_are_seen(admin: Rest, namespace: str, watch: Watch) -> None:
    cache = Cache(labelled_key)
    watch(Watched(POD, cache, {BACKFILL_LABEL: None, "spark-role": "driver"}))
    pods = f"api/v1/namespaces/{namespace}/pods"
    admin.create(pods, pod("executor", {BACKFILL_LABEL: "a", "spark-role": "executor"})).expect()
    admin.create(pods, pod("driver", {BACKFILL_LABEL: "a", "spark-role": "driver"})).expect()
    eventually(lambda: cache.get(namespace, "driver"), "the driver is seen")
    assert cache.keys() == [(namespace, "driver")]


def test_a_kind_that_is_defined_later_is_watched_after_the_next_list(
    admin: Rest, crds: None, namespace: str, watch: Watch
) -> None:
    plural = f"things{namespace.removeprefix('test-')}"
    backfills, things = Cache(own_key), Cache(own_key)
    kind = Resource("later.example.com", "v1", plural)
    _, relisting = watch(Watched(BACKFILL, backfills), Watched(kind, things))
    assert relisting.served == {BACKFILL}
    names = {"plural": plural, "singular": plural[:-1], "kind": "Thing"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {
        "group": "later.example.com",
        "scope": "Namespaced",
        "names": names,
        "versions": [version],
    }
    definition = f"{plural}.later.example.com"
    admin.create(DEFINITIONS, {"metadata": {"name": definition}, "spec": spec}).expect()
    try:
        path = f"apis/later.example.com/v1/namespaces/{namespace}/{plural}"
        eventually(lambda: admin.get(path).ok, "the kind is served")
        relisting.list_once()
        assert relisting.served == {BACKFILL, kind}
        watch(Watched(kind, things))
        thing = {"apiVersion": "later.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
        admin.create(path, thing).expect()
        eventually(lambda: things.get(namespace, "a"), "it is watched")
    finally:
        admin.delete(f"{DEFINITIONS}/{definition}")
    admin.create(BACKFILLS.format(namespace), minimal_backfill("still")).expect()
    eventually(
        lambda: backfills.get(namespace, "still"), "the other watches go on without the kind"
    )


class OperatorHere:
    """An operator in a thread of the test's own process."""

    def __init__(self, kubeconfig: Path, *namespaces: str):
        command = ["--kubeconfig", str(kubeconfig), "--namespaces", ",".join(namespaces)]
        command += ["--leader-election-namespace", namespaces[0], "--job-image", "jobs:1"]
        command += ["--metrics-port", "0", "--health-port", "0"]
        self.operator = Operator(parse(command, {}))
        self.ended: list[int] = []
        self._thread = threading.Thread(target=lambda: self.ended.append(run(self.operator)))
        self._thread.start()

    def close(self) -> int:
        """Its exit status."""
        while not self.ended:
            self.operator.end_kopf()
            self._thread.join(0.1)
        return self.ended[0]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is listed often."""
    monkeypatch.setattr("backfill.controller.manager.listing.RELIST_SECONDS", 0.1)


@pytest.mark.usefixtures("crds", "often")
def test_kinds_that_are_installed_later_are_watched_while_the_operator_goes_on(
    admin: Rest,
    cluster_admin: Path,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Spark operator is often installed later."""
    lists, later = Relisting.list_once, Resource("later.example.com", "v1", "things")

    def list_once(relisting: Relisting) -> None:
        lists(relisting)
        if here.operator.leads:
            relisting.served |= {later}

    with running_proxy(cluster_admin) as proxy:
        kubeconfig = proxy.kubeconfig(cluster_admin, tmp_path / "config")
        here = OperatorHere(kubeconfig, namespace)
        eventually(lambda: here.operator.leads, "it leads")
        eventually(lambda: proxy.count("watch", "pods") == 1, "it watches")
        monkeypatch.setattr(Relisting, "list_once", list_once)
        eventually(lambda: proxy.count("watch", "pods") == 2, "it watches again")
        assert here.operator.leads
        admin.create(BACKFILLS.format(namespace), minimal_backfill("after")).expect()
        events = f"api/v1/namespaces/{namespace}/events"
        eventually(lambda: admin.get(events).expect()["items"], "it tells of what it does")
        assert here.close() == 0
    assert not here.operator.leads, "it has released its Lease"


@pytest.mark.usefixtures("crds", "often")
def test_a_namespace_that_is_gone_with_its_role_keeps_no_other_from_being_watched(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    gone = f"{namespace}-gone"
    refused = False

    def refuse(request: Request) -> Response | None:
        if refused and request.namespace == gone:
            return refusal(403, "Forbidden")
        return None

    with running_proxy(cluster_admin) as proxy:
        proxy.before = refuse
        here = OperatorHere(proxy.kubeconfig(cluster_admin, tmp_path / "p"), namespace, gone)
        eventually(lambda: here.operator.leads, "it leads")
        assert here.operator.namespaces == (namespace, gone)
        refused = True
        eventually(lambda: here.operator.namespaces == (namespace,), "it is left out")
        admin.create(BACKFILLS.format(namespace), minimal_backfill("still")).expect()
        eventually(
            lambda: here.operator.caches.backfills.get(namespace, "still"), "the others are seen"
        )
        refused = False
        eventually(lambda: here.operator.namespaces == (namespace, gone), "it is back")
        assert here.operator.leads
        assert here.close() == 0


@pytest.mark.usefixtures("crds", "often")
def test_an_operator_goes_on_when_kopf_ends_at_an_answer(
    admin: Rest,
    cluster_admin: Path,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("backfill.controller.manager.handlers._PAGE", 1)
    for number in range(3):
        admin.create(BACKFILLS.format(namespace), minimal_backfill(f"b{number}")).expect()
    expired: list[Request] = []

    def expire(request: Request) -> Response | None:
        if expired or request.query.get("limit") != "1" or "continue" not in request.query:
            return None
        expired.append(request)
        return refusal(410, "Expired")

    with running_proxy(cluster_admin) as proxy:
        proxy.before = expire
        here = OperatorHere(proxy.kubeconfig(cluster_admin, tmp_path / "p"), namespace)
        eventually(lambda: expired, "a page has expired")
        eventually(lambda: "Kopf has failed" in caplog.text, "Kopf ends")
        assert here.operator.leads
        before = proxy.count("watch", "backfills")
        eventually(lambda: proxy.count("watch", "backfills") > before, "it watches again")
        assert here.close() == 0


@pytest.mark.parametrize(
    "refused",
    [
        Response(429, b"Too many requests, please try again later.\n", {"Retry-After": "1"}),
        refusal(401, "Unauthorized"),
    ],
    ids=["overloaded", "unauthorized"],
)
def test_a_watch_that_is_refused_once_is_asked_for_again(
    admin: Rest, crds: None, cluster_admin: Path, namespace: str, tmp_path: Path, refused: Response
) -> None:
    cache, once = Cache(own_key), iter([refused])
    with running_proxy(cluster_admin) as proxy:
        proxy.before = lambda request: next(once, None) if request.verb == "watch" else None
        login = Login(proxy.kubeconfig(cluster_admin, tmp_path / "config"))
        watching = Watches([Watched(BACKFILL, cache)], namespace, login)
        eventually(lambda: proxy.count("watch") > 1, "it watches")
        admin.create(BACKFILLS.format(namespace), minimal_backfill("after")).expect()
        eventually(lambda: cache.get(namespace, "after"), "it sees what is new")
        watching.close()
        assert watching.error is None


@pytest.mark.hostile
def test_no_annotation_hides_an_object(
    admin: Rest, crds: None, namespace: str, watch: Watch
) -> None:
    cache = Cache(own_key)
    watch(Watched(BACKFILL, cache))
    odd = minimal_backfill("odd")
    odd["metadata"]["annotations"] = {"kopf.zalando.org/last-handled-configuration": "x"}
    admin.create(BACKFILLS.format(namespace), odd).expect()
    eventually(lambda: cache.get(namespace, "odd"), "it is seen")


@pytest.mark.hostile
def test_a_pod_with_more_labels_than_are_read_keeps_no_other_from_being_listed(
    admin: Rest, crds: None, cluster_admin: Path, namespace: str
) -> None:
    pods = f"api/v1/namespaces/{namespace}/pods"
    labels = {BACKFILL_LABEL: "a"} | {f"a{number}": "" for number in range(31_000)}
    admin.create(pods, json.dumps(pod("many", labels))).expect()
    admin.create(pods, pod("few", {BACKFILL_LABEL: "a"})).expect()
    caches = Caches()
    Relisting(Login(cluster_admin).cluster(), caches.watched(), [namespace]).list_once()
    assert caches.pods.keys() == [(namespace, "few")]


def test_watches_that_were_refused_begin_anew(
    admin: Rest, crds: None, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    cache = Cache(own_key)
    with running_proxy(cluster_admin) as proxy:
        login = Login(proxy.kubeconfig(cluster_admin, tmp_path / "config"))
        proxy.before = lambda request: (
            refusal(403, "Forbidden") if request.verb == "watch" else None
        )
        watching = Watches([Watched(BACKFILL, cache)], namespace, login)
        try:
            eventually(lambda: proxy.count("watch") > 1, "it tries again")
            proxy.before = lambda request: None
            seen = proxy.count("watch")
            eventually(lambda: proxy.count("watch") > seen, "it watches")
            admin.create(BACKFILLS.format(namespace), minimal_backfill("after")).expect()
            eventually(lambda: cache.get(namespace, "after"), "it sees what is new")
        finally:
            watching.close()
        assert not watching.alive


def test_a_deletion_that_no_watch_told_of_is_found_by_the_list(
    admin: Rest, crds: None, namespace: str, watch: Watch
) -> None:
    path = BACKFILLS.format(namespace)
    admin.create(path, minimal_backfill("gone")).expect()
    cache = Cache(own_key)
    watching, relisting = watch(Watched(BACKFILL, cache))
    watching.close()
    admin.delete(f"{path}/gone")
    assert cache.get(namespace, "gone") is not None
    relisting.list_once()
    assert cache.get(namespace, "gone") is None


def _deleted(manifest: Manifest | None) -> Manifest | None:
    return manifest if manifest and "deletionTimestamp" in manifest["metadata"] else None


def test_a_user_without_a_name_can_watch(
    admin: Rest, crds: None, namespace: str, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr("getpass.getuser", nameless)
    cache = Cache(own_key)
    watch(Watched(BACKFILL, cache))
    admin.create(BACKFILLS.format(namespace), minimal_backfill("seen")).expect()
    eventually(lambda: cache.get(namespace, "seen") is not None, "the watch tells of it")
