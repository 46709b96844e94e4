"""What the shipped permissions allow, and what they do not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kubelet import FakeKubelet
from identities import ServiceAccountMaker, kubeconfig_of
from operators import OperatorProcess, running, wait_until_ready
from played import PlayedRun
from proxy import UnreliableProxy
from rest import BACKFILLS, JOB_REPORTS, SPARK_APPLICATIONS, Answer, Rest
from roles import OPERATOR_NAMESPACE, granted, may, rules_of, shipped, shipped_files
from samples import BACKFILL

from manifests import spark_application
from waiting import eventually

OPERATOR_MAY = """
get list watch patch      backfills.backfill.dev
patch                     backfills/status.backfill.dev
update                    backfills/finalizers.backfill.dev
get list watch create patch delete   splitassignments.backfill.dev
get list watch create delete         jobreports.backfill.dev
get list watch            backfilldecisions.backfill.dev
get list watch create delete         sparkapplications.sparkoperator.k8s.io
get list watch create delete         sparkapplications.spark.apache.org
get                       scheduledsparkapplications.sparkoperator.k8s.io
get list watch create delete         pods
get                       pods/log
get create patch delete   configmaps
list create               events
"""
OPERATOR_MAY_NOT = """
list watch                configmaps
create patch update delete  backfilldecisions.backfill.dev
patch update              jobreports.backfill.dev
patch update              jobreports/status.backfill.dev
create update delete deletecollection   backfills.backfill.dev
patch update              splitassignments/status.backfill.dev
update deletecollection   splitassignments.backfill.dev
patch update deletecollection           sparkapplications.sparkoperator.k8s.io
patch update deletecollection           sparkapplications.spark.apache.org
patch update              sparkapplications/status.sparkoperator.k8s.io
patch update deletecollection           pods
create get                pods/exec
create                    pods/eviction
create                    pods/ephemeralcontainers
get list watch create patch update delete   secrets
watch                     events
get create patch          serviceaccounts
create                    serviceaccounts/token
impersonate               serviceaccounts
create patch bind escalate   roles.rbac.authorization.k8s.io
create patch              rolebindings.rbac.authorization.k8s.io
create patch delete       leases.coordination.k8s.io
create                    deployments.apps
create                    jobs.batch
get list watch            persistentvolumeclaims
"""
NOBODY_MAY_EVERYWHERE = """
get list watch            namespaces
get list watch            customresourcedefinitions.apiextensions.k8s.io
get list                  nodes
create patch bind escalate   clusterroles.rbac.authorization.k8s.io
create patch              clusterrolebindings.rbac.authorization.k8s.io
list                      secrets
"""
DRIVER_MAY = """
get watch                 splitassignments.backfill.dev
patch                     splitassignments/status.backfill.dev
patch                     jobreports/status.backfill.dev
"""
DRIVER_MAY_NOT = """
list create patch update delete deletecollection   splitassignments.backfill.dev
get update                splitassignments/status.backfill.dev
get list watch create patch update delete          backfills.backfill.dev
patch update              backfills/status.backfill.dev
get list create patch delete   sparkapplications.sparkoperator.k8s.io
get list watch create delete   pods
get list create           secrets
get list watch create patch update delete          configmaps
get list watch create patch update delete          jobreports.backfill.dev
get update                jobreports/status.backfill.dev
get list create patch     backfilldecisions.backfill.dev
list create               events
get update                leases.coordination.k8s.io
"""


def lines(table: str) -> Iterator[tuple[str, str]]:
    """Each verb with its resource."""
    for line in filter(str.strip, table.splitlines()):
        *verbs, resource = line.split()
        yield from ((verb, resource) for verb in verbs)


def allowed(user: Rest, table: str, namespace: str | None) -> dict[str, bool]:
    return {
        f"{verb} {resource}": may(user, verb, resource, namespace)
        for verb, resource in lines(table)
    }


@pytest.fixture
def operator_namespace(admin: Rest) -> str:
    admin.apply(f"api/v1/namespaces/{OPERATOR_NAMESPACE}", _namespace(OPERATOR_NAMESPACE)).expect()
    return OPERATOR_NAMESPACE


@pytest.fixture(params=["cluster", "namespaced"])
def variant(
    request: pytest.FixtureRequest, admin: Rest, crds: None, namespace: str, operator_namespace: str
) -> Iterator[str]:
    """Each variant of the operator's permissions; the namespaced one is granted in the test's
    namespace.
    """
    files = ("operator.yaml", f"operator-{request.param}.yaml", "operator-boundary.yaml")
    with granted(admin, namespace, *files):
        yield request.param


@pytest.fixture
def operator_kubeconfig(
    admin: Rest, cluster_admin: Path, variant: str, namespace: str, tmp_path: Path
) -> Path:
    path = kubeconfig_of(
        admin,
        cluster_admin,
        OPERATOR_NAMESPACE,
        "backfill-operator",
        tmp_path / "operator.kubeconfig",
    )
    user = Rest(path)
    eventually(lambda: may(user, "create", "events", namespace), "the permissions are known")
    eventually(lambda: _make(user, namespace, dryRun="All").status == 403, "the boundary is known")
    user.close()
    return path


@pytest.fixture
def driver(
    admin: Rest, cluster_admin: Path, crds: None, namespace: str, tmp_path: Path
) -> Iterator[Rest]:
    with granted(admin, namespace, "driver.yaml"):
        accounts = f"api/v1/namespaces/{namespace}/serviceaccounts"
        admin.create(accounts, {"metadata": {"name": "spark"}}).expect()
        user = Rest(
            kubeconfig_of(admin, cluster_admin, namespace, "spark", tmp_path / "driver.kubeconfig")
        )
        eventually(
            lambda: may(user, "get", "splitassignments.backfill.dev", namespace),
            "the permissions are known",
        )
        yield user
        user.close()


def refusals(proxy: UnreliableProxy) -> list[str]:
    """Requests that the server has refused for want of permission, from now on."""
    refused: list[str] = []
    proxy.after = lambda request, response: (
        refused.append(str(request)) if response.status in (401, 403) else None
    )
    return refused


def started_operator(
    variant: str, kubeconfig: Path, namespace: str, proxy: UnreliableProxy, folder: Path
) -> OperatorProcess:
    """The operator's process with this identity, ready, and seen by the proxy."""
    places = {"cluster": "", "namespaced": namespace}[variant]
    options = ("--namespaces", places, "--leader-election-namespace", OPERATOR_NAMESPACE)
    operator = OperatorProcess(
        proxy.kubeconfig(kubeconfig, folder / "proxied.kubeconfig"),
        namespace,
        folder,
        "one",
        *options,
    )
    wait_until_ready(operator)
    return operator


def test_the_operator_may_do_what_it_does_and_nothing_more(
    variant: str, operator_kubeconfig: Path, admin: Rest, namespace: str
) -> None:
    operator = Rest(operator_kubeconfig)
    for place in (namespace, "default"):
        granted_here = variant == "cluster" or place == namespace
        assert set(allowed(operator, OPERATOR_MAY, place).values()) == {granted_here}
        assert _true(allowed(operator, OPERATOR_MAY_NOT, place)) == set()
    assert _true(allowed(operator, NOBODY_MAY_EVERYWHERE, None)) == set()
    assert may(operator, "watch", "backfills.backfill.dev", None) is (variant == "cluster")


def test_in_its_own_namespace_the_operator_may_only_lead(
    variant: str, operator_kubeconfig: Path, admin: Rest, namespace: str
) -> None:
    operator = Rest(operator_kubeconfig)
    own = {
        verb: may(
            operator, verb, "leases.coordination.k8s.io", OPERATOR_NAMESPACE, "backfill-operator"
        )
        for verb in ("get", "update")
    }
    assert own == {"get": True, "update": True}
    assert may(operator, "create", "leases.coordination.k8s.io", OPERATOR_NAMESPACE)
    assert not may(operator, "update", "leases.coordination.k8s.io", OPERATOR_NAMESPACE, "another")
    assert not may(operator, "get", "secrets", OPERATOR_NAMESPACE)


@pytest.mark.hostile
def test_whoever_takes_over_the_operators_account_reaches_only_what_belongs_to_a_backfill(
    variant: str, operator_kubeconfig: Path, admin: Rest, namespace: str
) -> None:
    """Its roles allow more: they know kinds and namespaces, and no owners."""
    operator, pods = Rest(operator_kubeconfig), f"api/v1/namespaces/{namespace}/pods"
    owner = {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "name": "b",
        "uid": "1",
        "controller": True,
    }
    attempt = {"app.kubernetes.io/managed-by": "backfill-operator", "backfill.dev/attempt": "1"}
    for name, metadata in {
        "of-a-team": {},
        "driver": {"labels": attempt},
        "job": {"ownerReferences": [owner]},
    }.items():
        admin.create(pods, _pod(metadata | {"name": name})).expect()
        admin.create(
            f"api/v1/namespaces/{namespace}/configmaps", {"metadata": metadata | {"name": name}}
        ).expect()

    assert operator.delete(f"{pods}/of-a-team").status == 403
    assert operator.delete(f"{pods}/driver").ok and operator.delete(f"{pods}/job").ok
    assert operator.create(pods, _pod({"name": "x", "labels": attempt})).status == 403
    assert operator.create(pods, _pod({"name": "x", "ownerReferences": [owner]}), dryRun="All").ok
    maps = f"api/v1/namespaces/{namespace}/configmaps"
    assert operator.patch(f"{maps}/of-a-team", {"data": {"x": "y"}}).status == 403
    assert (
        operator.patch(f"{maps}/of-a-team", {"metadata": {"ownerReferences": [owner]}}).status
        == 403
    )
    assert operator.patch(f"{maps}/job", {"data": {"x": "y"}}).ok
    assert operator.delete(f"{maps}/driver").status == 403
    assert operator.delete(f"{maps}/job").ok
    live, applications = _live("january-live"), SPARK_APPLICATIONS.format(namespace)
    assert operator.create(applications, live).ok
    assert operator.create(applications, _live("theirs", labels={})).status == 403
    change = {"spec": {"image": "evil"}}
    assert operator.patch(f"{applications}/january-live", change).status == 403
    assert operator.delete(f"{applications}/january-live").status == 403
    if variant == "cluster":
        refused = _make(operator, "kube-system", owner)
        assert (refused.status, "does not work in namespace kube-system" in refused.message) == (
            403,
            True,
        )
    operator.close()


UNSPECIAL = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}


def _pod(metadata: dict[str, object]) -> dict[str, object]:
    return {"metadata": metadata, "spec": UNSPECIAL}


def _live(name: str, labels: dict[str, str] | None = None) -> dict[str, object]:
    """A live application of the operator's, or another one."""
    ours = {"backfill.dev/backfill": "january", "backfill.dev/live": "true"}
    application = spark_application(
        name, image="none", mainApplicationFile="local:///main.py", driver={}, executor={}
    )
    metadata = {"name": name, "labels": ours if labels is None else labels}
    return application | {"metadata": metadata}


def _make(user: Rest, namespace: str, *owners: dict[str, object], **query: str) -> Answer:
    return user.create(
        f"api/v1/namespaces/{namespace}/configmaps",
        {"metadata": {"name": "made", "ownerReferences": list(owners)}},
        **query,
    )


def test_a_whole_run_needs_no_more_than_this(
    variant: str,
    operator_kubeconfig: Path,
    driver: Rest,
    admin: Rest,
    namespace: str,
    proxy: UnreliableProxy,
    tmp_path: Path,
) -> None:
    """The operator, the pods of its jobs and the driver's end from the start to the end of a
    Backfill, which is then deleted.
    """
    refused = refusals(proxy)
    kubelet = FakeKubelet(admin, namespace, tmp_path / "driver.kubeconfig", tmp_path / "pod")
    with (
        running(
            operator := started_operator(variant, operator_kubeconfig, namespace, proxy, tmp_path)
        ),
        kubelet.at_work(),
    ):
        run = PlayedRun(admin, namespace, tmp_path)
        run.create()
        run.wait_for("Planned", "True")
        run.submit()
        run.replay()
        run.wait_for("Succeeded", "True")
        admin.delete(run.path).expect()
        eventually(lambda: admin.get(run.path).status == 404, "the operator has let go of it")
        assert operator.terminate() == 0
    assert refused == []


def test_a_driver_may_hear_and_answer_and_nothing_more(driver: Rest, namespace: str) -> None:
    assert set(allowed(driver, DRIVER_MAY, namespace).values()) == {True}
    assert _true(allowed(driver, DRIVER_MAY_NOT, namespace)) == set()
    for place in ("default", None):
        assert _true(allowed(driver, DRIVER_MAY + DRIVER_MAY_NOT, place)) == set()
    assert _true(allowed(driver, NOBODY_MAY_EVERYWHERE, None)) == set()


@pytest.mark.hostile
def test_a_driver_can_not_write_what_is_released_to_it(
    driver: Rest, admin: Rest, namespace: str
) -> None:
    path = f"apis/backfill.dev/v1alpha1/namespaces/{namespace}/splitassignments"
    spec = {
        "backfill": "b",
        "planId": "plan-1",
        "attempt": 1,
        "steps": 9,
        "watermark": "2026-01-01T00:00:00Z",
    }
    manifest = {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "SplitAssignment",
        "metadata": {"name": "b"},
        "spec": spec,
    }
    admin.create(path, manifest).expect()
    assert driver.patch(f"{path}/b", {"spec": {"released": 9}}).status == 403
    status = {"attempt": 1, "heartbeat": "2026-01-01T00:00:00Z"}
    answer = driver.patch(f"{path}/b/status", {"spec": {"released": 9}, "status": status}).expect()
    assert (answer["spec"]["released"], answer["status"]["attempt"]) == (0, 1)


@pytest.mark.hostile
def test_a_pod_may_write_the_report_of_its_own_name_only(
    admin: Rest, cluster_admin: Path, driver: Rest, namespace: str, tmp_path: Path
) -> None:
    """The pods of jobs share an account, and drivers have it as well: a token says for which pod it
    was made.
    """
    reports, pods = JOB_REPORTS.format(namespace), f"api/v1/namespaces/{namespace}/pods"
    users = {}
    for name in ("one-job-a", "two-job-b"):
        made = admin.create(
            pods, _pod({"name": name}) | {"spec": UNSPECIAL | {"serviceAccountName": "spark"}}
        ).expect()
        report = {"metadata": {"name": name}, "spec": {"backfill": "one", "job": "plan"}}
        kind = {"apiVersion": "backfill.dev/v1alpha1", "kind": "JobReport"}
        admin.create(reports, kind | report).expect()
        path = tmp_path / name
        users[name] = Rest(kubeconfig_of(admin, cluster_admin, namespace, "spark", path, pod=made))

    def write(user: Rest, name: str) -> Answer:
        return user.patch(f"{reports}/{name}/status", {"status": {"progress": "{}"}})

    one = users["one-job-a"]
    with granted(admin, namespace, "job-reports.yaml"):
        eventually(lambda: write(one, "one-job-a").ok, "the permission is known")
        eventually(lambda: write(driver, "one-job-a").status == 403, "the policy is known")
        refused = write(one, "two-job-b")
        assert (refused.status, "only the pod two-job-b may write" in refused.message) == (
            403,
            True,
        )
        assert write(users["two-job-b"], "two-job-b").ok
        assert write(one, "one-job-a").ok
        assert write(admin, "two-job-b").ok, "people with the permission are not held up"
    for user in users.values():
        user.close()


def test_no_rule_says_everything_and_none_hands_out_permissions() -> None:
    for path in shipped_files():
        for manifest in shipped(path.name):
            for rule in manifest.get("rules", []):
                said = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
                assert not said & {"*", "bind", "escalate", "impersonate"}, path.name
                assert "rbac.authorization.k8s.io" not in said, path.name


def test_both_variants_of_the_operators_permissions_are_the_same_rules() -> None:
    everywhere = rules_of("operator-cluster.yaml", "ClusterRole", "backfill-operator")
    assert everywhere == rules_of("operator-namespaced.yaml", "Role", "backfill-operator")


def test_whoever_may_edit_or_view_a_namespace_may_edit_or_view_its_backfills(
    admin: Rest, namespace: str
) -> None:
    """The roles are added to Kubernetes' own by a controller that does not run here; it goes by
    their labels.
    """
    with granted(admin, namespace, "users.yaml"):
        assert admin.get("apis/rbac.authorization.k8s.io/v1/clusterroles/backfill-edit").ok
    labels = {
        role["metadata"]["name"]: role["metadata"]["labels"] for role in shipped("users.yaml")
    }
    to = "rbac.authorization.k8s.io/aggregate-to-"
    assert {
        name: {key.removeprefix(to) for key in each if key.startswith(to)}
        for name, each in labels.items()
    } == {
        "backfill-approve": {"admin"},
        "backfill-edit": {"edit", "admin"},
        "backfill-view": {"view", "edit", "admin"},
    }


@pytest.mark.parametrize(
    ("roles", "may_scale"), [(("view",), False), (("view", "edit"), True)], ids=["view", "edit"]
)
def test_who_may_edit_a_backfill_may_scale_it_and_who_may_view_it_only_sees_the_scale(
    admin: Rest,
    crds: None,
    namespace: str,
    service_account: ServiceAccountMaker,
    roles: tuple[str, ...],
    may_scale: bool,
) -> None:
    """As ``kubectl scale`` does, with what Kubernetes adds to its role of that name."""
    rules = [
        rule for role in roles for rule in rules_of("users.yaml", "ClusterRole", f"backfill-{role}")
    ]
    admin.create(BACKFILLS.format(namespace), BACKFILL).expect()
    person, scale = (
        Rest(service_account("person", rules)),
        f"{BACKFILLS.format(namespace)}/july/scale",
    )
    assert person.patch(scale, {"spec": {"replicas": 3}}).ok is may_scale
    seen = person.get(scale).expect()
    assert person.replace(scale, seen | {"spec": {"replicas": 4}}).ok is may_scale
    person.close()


def _true(answers: dict[str, bool]) -> set[str]:
    return {what for what, answer in answers.items() if answer}


def _namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
