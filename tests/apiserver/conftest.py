"""A real API server for the tests: started here, or a given one that is clearly made to be thrown
away.

``KUBEBUILDER_ASSETS`` names the folder of ``etcd`` and ``kube-apiserver``, and every process of the
run starts its own; without it ``KUBECONFIG`` may name a cluster. With neither the tests are
skipped.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kubelet import FakeKubelet
from identities import Rules, ServiceAccountMaker, kubeconfig_of, wait_until_allowed
from identities import service_account as create_service_account
from kubeconfigs import why_refused
from kubectl_backfill import KubectlBackfill, runner
from mortal_run import Life, MortalRuns
from operators import OperatorProcess, running, wait_until_ready
from proxy import UnreliableProxy, running_proxy
from resources import definitions, install
from rest import BACKFILLS, JOB_REPORTS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Rest
from roles import rules_of
from servers import Servers, running_servers

from backfill.kube.client import Cluster
from table_jobs import Clicks

_LONG = "test_operator_"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take minutes come first, so that no process is left alone with one at the end.
    Where there is no API server, one skipped test stands for all that need it, so that the report
    has one line of it.
    """
    items.sort(key=lambda item: not item.path.name.startswith(_LONG))
    reason = _why_no_api_server()
    needing = [item for item in items if "cluster_admin" in getattr(item, "fixturenames", ())]
    if reason and needing:
        needing[0].add_marker(pytest.mark.skip(reason=f"{reason} ({len(needing)} tests)"))
        items[:] = [item for item in items if item not in needing[1:]]
        config.hook.pytest_deselected(items=needing[1:])


@pytest.fixture(scope="session")
def cluster_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a user who may do everything."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        with running_servers(Path(assets), tmp_path_factory.mktemp("api server")) as servers:
            yield servers.admin_kubeconfig
    else:
        yield Path(os.environ["KUBECONFIG"])


@pytest.fixture(scope="session")
def admin(cluster_admin: Path) -> Iterator[Rest]:
    """Plain requests as a user who may do everything."""
    rest = Rest(cluster_admin)
    yield rest
    rest.close()


@pytest.fixture(scope="session")
def crds(admin: Rest) -> None:
    """The definitions of this project's resources and of the Spark operators', applied and
    served.
    """
    install(admin, definitions())


@pytest.fixture
def namespace(admin: Rest, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, emptied of backfills and their children at the end."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    labels = {"backfill.dev/test": request.node.name.split("[")[0][:63].strip("-_.")}
    admin.create("api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}).expect()
    # Pods are refused without it, and no controller that would make it runs here.
    admin.apply(
        f"api/v1/namespaces/{name}/serviceaccounts/default",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
    ).expect()
    yield name
    for collection in (
        BACKFILLS,
        SPLIT_ASSIGNMENTS,
        JOB_REPORTS,
        SPARK_APPLICATIONS,
        "api/v1/namespaces/{}/pods",
    ):
        _empty(admin, collection.format(name))
    admin.delete(f"api/v1/namespaces/{name}")


@pytest.fixture
def proxy(cluster_admin: Path) -> Iterator[UnreliableProxy]:
    """A way to the API server that the test can make unreliable."""
    with running_proxy(cluster_admin) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(cluster_admin: Path) -> Iterator[Cluster]:
    """The operator's client, as a user who may do everything."""
    made = Cluster.from_kubeconfig(cluster_admin)
    yield made
    made.close()


@pytest.fixture
def kubelet(
    admin: Rest, namespace: str, service_account: ServiceAccountMaker, tmp_path: Path
) -> Iterator[FakeKubelet]:
    """Runs the pods of jobs."""
    pods = service_account("spark", rules_of("driver.yaml", "Role", "backfill-driver"))
    kubelet = FakeKubelet(admin, namespace, pods, tmp_path / "pod")
    with kubelet.at_work():
        yield kubelet


@pytest.fixture
def operator(
    crds: None, cluster_admin: Path, namespace: str, tmp_path: Path, kubelet: FakeKubelet
) -> Iterator[OperatorProcess]:
    """An operator that leads and looks after the test's namespace."""
    made = OperatorProcess(cluster_admin, namespace, tmp_path)
    with running(made):
        wait_until_ready(made)
        yield made


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clicks]:
    """One table for all runs; its catalog is known to this process."""
    made = Clicks(tmp_path_factory.mktemp("lake"))
    with pytest.MonkeyPatch.context() as patch:
        from pyiceberg.utils.config import Config

        for name, value in made.variables.items():
            patch.setenv(name, value)
        patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        yield made


@pytest.fixture(scope="module")
def lives() -> dict[str, Life]:
    """What tests of a file know of runs of which nothing was cut."""
    return {}


@pytest.fixture
def mortal_runs(
    admin: Rest,
    cluster_admin: Path,
    crds: None,
    proxy: UnreliableProxy,
    namespace: str,
    clicks: Clicks,
    lives: dict[str, Life],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> MortalRuns:
    """Runs under operators of this process that can be killed at any write; no write waits for
    another one.
    """
    monkeypatch.setattr("backfill.controller.manager.wiring.PROGRESS_SECONDS", 0.0)
    return MortalRuns(admin, cluster_admin, proxy, namespace, clicks, tmp_path, lives)


@pytest.fixture
def service_account(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> ServiceAccountMaker:
    """Makes a ServiceAccount in the test's namespace and gives the kubeconfig of its token.

    Arguments: its name, the rules of its Role, and the rules of its ClusterRole (see
    ``identities.rule``).
    """

    def make(name: str, rules: Rules = [], cluster_rules: Rules = []) -> Path:  # noqa: B006 - never changed
        create_service_account(admin, namespace, name, rules, cluster_rules)
        kubeconfig = kubeconfig_of(
            admin, cluster_admin, namespace, name, tmp_path / f"{name}.kubeconfig"
        )
        wait_until_allowed(kubeconfig, namespace, rules)
        wait_until_allowed(kubeconfig, None, cluster_rules)
        return kubeconfig

    return make


@pytest.fixture
def own_servers(tmp_path: Path) -> Iterator[Servers]:
    """An API server without definitions; those of the other tests' server belong to all of them."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("definitions of a given cluster are not replaced by old ones")
    with running_servers(Path(assets), tmp_path / "own server") as servers:
        yield servers


@pytest.fixture
def own_server(own_servers: Servers) -> Iterator[Rest]:
    """Plain requests to it, as a user who may do everything."""
    rest = Rest(own_servers.admin_kubeconfig)
    yield rest
    rest.close()


@pytest.fixture
def kubectl_backfill(
    cluster_admin: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> KubectlBackfill:
    """Runs ``kubectl backfill`` in the test's namespace, as a user who may do everything unless
    another one is named.
    """
    return runner(monkeypatch, capfd, cluster_admin, namespace)


def _why_no_api_server() -> str | None:
    if os.environ.get("KUBEBUILDER_ASSETS"):
        return None
    if given := os.environ.get("KUBECONFIG"):
        return why_refused(Path(given))
    return "no API server: KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"


def _empty(admin: Rest, collection: str) -> None:
    """Deletes every object, also where the one who would remove its finalizer is gone."""
    for item in admin.get(collection).body.get("items", []):
        path = f"{collection}/{item['metadata']['name']}"
        if item["metadata"].get("finalizers"):
            admin.patch(path, {"metadata": {"finalizers": None}})
        admin.delete(path, gracePeriodSeconds="0")
