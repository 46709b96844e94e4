"""``kubectl backfill plan`` and ``render``: what was planned, and what a file would become."""

import json
from pathlib import Path

import pytest
import yaml
from identities import ServiceAccountMaker, rule
from kubectl_backfill import KubectlBackfill, installed_alone
from rest import BACKFILLS, SPARK_APPLICATIONS, Manifest, Rest
from roles import rules_of
from samples import BACKFILL
from test_plans import PRODUCTION, header
from told_status import Told, running, tell

from backfill.api.conditions import ConditionType, Reason
from backfill.api.status import BackfillStatus, Cost, Progress
from backfill.cli.cluster.connection import read
from backfill.controller.cluster.plan_config_map import KubernetesPlans
from backfill.kube.client import Cluster
from manifests import changed

pytestmark = pytest.mark.usefixtures("crds")

IN_A_STORE = changed(BACKFILL, {"spec.workspace": "s3://lake/work"})
BAD_INPUT = (
    "spec.sources[0].table: there is no table lake.raw.impression\nspec.outputs[0].table: there is"
    " no table"
)


@pytest.fixture
def production(admin: Rest, namespace: str) -> Manifest:
    return admin.create(SPARK_APPLICATIONS.format(namespace), PRODUCTION).expect()


@pytest.fixture
def july(admin: Rest, namespace: str, production: Manifest) -> Manifest:
    return admin.create(BACKFILLS.format(namespace), IN_A_STORE).expect()


@pytest.fixture
def planned(admin: Rest, cluster_admin: Path, namespace: str, july: Manifest) -> None:
    """The plan as the operator keeps it."""
    cluster, plan = Cluster.from_kubeconfig(cluster_admin), header(steps=4)
    kept = KubernetesPlans(cluster).keep(read(july), plan)
    cluster.close()
    digests = {"plan_digest": plan.digest, "application_digest": kept}
    tell(admin, namespace, "july", running(plan_id=plan.plan_id, **digests))


def file_of(tmp_path: Path, *documents: Manifest) -> str:
    path = tmp_path / "july.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


@pytest.mark.usefixtures("planned")
def test_a_plan_is_shown_as_on_ones_own_machine(kubectl_backfill: KubectlBackfill) -> None:
    shown = kubectl_backfill("plan", "july")
    assert shown.status == 0
    assert "source-0" in shown.out
    assert "4 steps of up to" in shown.out
    document = kubectl_backfill("plan", "july", "-o", "json").document
    assert (document["steps"]["count"], len(document["sources"])) == (4, 2)


@pytest.mark.usefixtures("planned")
def test_a_plan_is_estimated_by_what_earlier_backfills_of_the_namespace_took(
    admin: Rest,
    namespace: str,
    kubectl_backfill: KubectlBackfill,
    service_account: ServiceAccountMaker,
) -> None:
    admin.create(
        BACKFILLS.format(namespace), changed(IN_A_STORE, {"metadata.name": "june"})
    ).expect()
    cost = Cost(driver_seconds=60, executor_seconds=240, bytes_read=2**30)
    done = BackfillStatus(cost=cost, progress=Progress(steps=4, committed=4))
    tell(admin, namespace, "june", done)
    assert "1 earlier backfill of this application (june; read 1.0 GiB)" in " ".join(
        kubectl_backfill("plan", "july").out.split()
    )
    reader = service_account(
        "reader", [rule("backfill.dev", "backfills", "get"), rule("", "configmaps", "get")]
    )
    shown = kubectl_backfill("plan", "july", kubeconfig=reader)
    assert shown.status == 0, shown.err
    assert "earlier backfill" not in shown.out


@pytest.mark.usefixtures("planned")
def test_the_command_line_alone_needs_no_library_for_tables(
    cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    for arguments in (
        ("list",),
        ("status", "july"),
        ("plan", "july"),
        ("plan", file_of(tmp_path, IN_A_STORE)),
        ("render", "july"),
        ("suspend", "july"),
        ("resume", "july"),
        ("cancel", "july", "--no-wait"),
    ):
        ended = installed_alone(
            "backfill.__main__", *arguments, "-n", namespace, kubeconfig=cluster_admin
        )
        assert ended.status == 0, f"{arguments}: {ended.err}"


@pytest.mark.usefixtures("july")
def test_kubectl_completes_commands_options_and_names(cluster_admin: Path, namespace: str) -> None:
    def completed(*words: str) -> list[str]:
        return installed_alone(
            "backfill.cli.completion", *words, kubeconfig=cluster_admin
        ).out.split()

    assert completed("sus") == ["suspend", ":4"]
    assert completed("status", "--wa") == ["--watch", ":4"]
    assert completed("-n", namespace, "status", "") == ["july", ":4"]
    assert completed("logs", "-n", namespace, "ju") == ["july", ":4"]
    assert completed("logs", "-n", namespace, "august") == [":4"]
    assert completed("logs", "--context", "nowhere", "") == [":4"]


@pytest.mark.usefixtures("planned")
def test_who_may_not_read_the_plan_sees_what_the_status_keeps(
    kubectl_backfill: KubectlBackfill, service_account: ServiceAccountMaker
) -> None:
    viewer = service_account("viewer", rules_of("users.yaml", "ClusterRole", "backfill-view"))
    shown = kubectl_backfill("plan", "july", kubeconfig=viewer)
    assert shown.status == 0
    assert 'resources: ["configmaps"], verbs: ["get"]' in shown.err
    assert "impressions" in shown.out


@pytest.mark.usefixtures("july")
def test_before_there_is_a_plan_one_waits(kubectl_backfill: KubectlBackfill) -> None:
    ended = kubectl_backfill("plan", "july")
    assert (ended.status, ended.err) == (
        3,
        "july is not planned yet: no operator has started to plan it\n",
    )


@pytest.mark.usefixtures("july")
def test_what_planning_found_is_told_like_any_bad_input(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str
) -> None:
    told: tuple[Told, ...] = tuple(
        (kind, "False", Reason.INVALID_INPUT, BAD_INPUT)
        for kind in (ConditionType.PLANNED, ConditionType.SUCCEEDED)
    )
    tell(admin, namespace, "july", running(*told, plan_id=None))
    ended = kubectl_backfill("plan", "july")
    assert ended.status == 2
    assert ended.err.splitlines() == [
        "error: july cannot be planned:",
        *(f"  {line}" for line in BAD_INPUT.splitlines()),
    ]


@pytest.mark.usefixtures("production")
def test_a_file_is_checked_and_nothing_is_kept(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, tmp_path: Path
) -> None:
    ended = kubectl_backfill("plan", file_of(tmp_path, IN_A_STORE))
    assert ended.status == 0, ended.err
    assert f"july: the API server accepts it in namespace {namespace}" in ended.out
    assert "at most 7 min 30 s: 192 steps" in ended.out
    assert admin.get(BACKFILLS.format(namespace)).expect()["items"] == []
    document = kubectl_backfill("plan", file_of(tmp_path, IN_A_STORE), "-o", "json").document
    assert (document["namespace"], document["longestStepSeconds"]) == (namespace, 450.0)


def test_a_file_with_mistakes_is_bad_input(
    kubectl_backfill: KubectlBackfill, tmp_path: Path
) -> None:
    ended = kubectl_backfill(
        "plan", file_of(tmp_path, changed(IN_A_STORE, {"spec.maxMisalignment": "15 minutes"}))
    )
    assert ended.status == 2
    assert "july.yaml:8:3: spec.maxMisalignment: " in ended.err


def test_an_application_that_is_not_there_is_found_before_it_is_applied(
    kubectl_backfill: KubectlBackfill, namespace: str, tmp_path: Path
) -> None:
    ended = kubectl_backfill("plan", file_of(tmp_path, IN_A_STORE))
    assert ended.status == 2
    assert (
        f'spec.applicationRef.name: there is no SparkApplication "rmi" in namespace {namespace}'
        in ended.err
    )


def test_an_application_in_the_file_is_taken_from_there(
    kubectl_backfill: KubectlBackfill, tmp_path: Path
) -> None:
    assert kubectl_backfill("plan", file_of(tmp_path, IN_A_STORE, PRODUCTION)).status == 0
    scala = changed(PRODUCTION, {"spec.type": "Scala"})
    ended = kubectl_backfill("plan", file_of(tmp_path, IN_A_STORE, scala))
    assert (ended.status, "spec.type" in ended.err) == (2, True)


@pytest.mark.usefixtures("planned")
def test_what_may_not_change_any_more_is_told(
    kubectl_backfill: KubectlBackfill, tmp_path: Path, namespace: str
) -> None:
    ended = kubectl_backfill(
        "plan", file_of(tmp_path, changed(IN_A_STORE, {"spec.maxMisalignment": "1h"}))
    )
    assert ended.status == 2
    assert ended.err.splitlines()[0].endswith(
        'july.yaml:8:3: spec.maxMisalignment: was "15m", is "1h"'
    )
    assert f"kubectl backfill cancel july -n {namespace}" in ended.err
    assert (
        kubectl_backfill(
            "plan", file_of(tmp_path, changed(IN_A_STORE, {"spec.suspend": True}))
        ).status
        == 0
    )


def test_who_may_not_create_is_told(
    kubectl_backfill: KubectlBackfill, service_account: ServiceAccountMaker, tmp_path: Path
) -> None:
    nobody = service_account("nobody", [rule("", "configmaps", "get")])
    ended = kubectl_backfill("plan", file_of(tmp_path, IN_A_STORE, PRODUCTION), kubeconfig=nobody)
    assert (ended.status, 'verbs: ["create"]' in ended.err) == (1, True)


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_what_is_rendered_is_accepted_by_the_api_server(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: Manifest, output: str
) -> None:
    ended = kubectl_backfill("render", "july", "-o", output)
    assert ended.status == 0, ended.err
    documents = (
        json.loads(ended.out)["items"] if output == "json" else list(yaml.safe_load_all(ended.out))
    )
    config_map, child = documents
    assert child["metadata"]["name"] == "july-a1"
    assert child["metadata"]["ownerReferences"][0]["uid"] == july["metadata"]["uid"]
    admin.create(f"api/v1/namespaces/{namespace}/configmaps", config_map, dryRun="All").expect()
    admin.create(
        SPARK_APPLICATIONS.format(namespace), child, dryRun="All", fieldValidation="Strict"
    ).expect()


@pytest.mark.usefixtures("planned")
def test_production_is_rendered_as_it_was_when_the_plan_was_made(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str
) -> None:
    admin.patch(
        f"{SPARK_APPLICATIONS.format(namespace)}/rmi", {"spec": {"image": "registry/rmi:2"}}
    ).expect()
    child = list(yaml.safe_load_all(kubectl_backfill("render", "july").out))[1]
    assert (child["metadata"]["name"], child["spec"]["image"]) == ("july-a3", "registry/rmi:1")


def test_a_file_is_rendered_with_its_own_application(
    kubectl_backfill: KubectlBackfill, namespace: str, tmp_path: Path
) -> None:
    rendered = kubectl_backfill("render", file_of(tmp_path, BACKFILL, PRODUCTION))
    assert rendered.status == 0, rendered.err
    assert {document["metadata"]["namespace"] for document in yaml.safe_load_all(rendered.out)} == {
        namespace
    }


def test_a_file_that_the_api_server_refuses_for_what_exists_is_not_called_accepted(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    namespace: str,
    production: Manifest,
    tmp_path: Path,
) -> None:
    """An approval cannot be waived any more, and ``kubectl apply`` would say so."""
    needs_approval = changed(IN_A_STORE, {"spec.outputs.0.publish": {"mode": "Replace"}})
    admin.create(BACKFILLS.format(namespace), needs_approval).expect()
    tell(admin, namespace, "july", running(plan_id="0123456789abcdef"))
    waived = {"mode": "Replace", "approval": "Automatic"}
    file = file_of(tmp_path, changed(IN_A_STORE, {"spec.outputs.0.publish": waived}))
    ended = kubectl_backfill("plan", file)
    assert ended.status == 2
    assert "needs approval, which cannot be waived once the plan is made" in ended.err
    assert "accepts it" not in ended.out
