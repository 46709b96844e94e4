"""``kubectl backfill list`` and ``status``: what people and programs see of Backfills of a
cluster.
"""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from identities import ServiceAccountMaker, rule
from kubeconfigs import write_kubeconfig
from kubectl_backfill import KubectlBackfill, started
from proxy import Request, Response, running_proxy
from rest import BACKFILLS, Rest
from samples import BACKFILL
from told_status import Told, running, tell

from backfill.api.conditions import ConditionType, Reason
from manifests import changed
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("crds")

PUBLISHED: Told = (ConditionType.SUCCEEDED, "True", Reason.FINISHED, "published")
EXHAUSTED: Told = (
    ConditionType.SUCCEEDED,
    "False",
    Reason.ATTEMPTS_EXHAUSTED,
    "3 attempts in a row failed\nlast words",
)
REFUSED: Told = (
    ConditionType.SUCCEEDED,
    "False",
    Reason.INVALID_INPUT,
    "spec.sources[0].table: there is none\nspec.outputs: too",
)
WAITING: Told = (
    ConditionType.PUBLISHED,
    "Unknown",
    Reason.WAITING_FOR_APPROVAL,
    "51,200 rows wait for approval",
)
STUCK: Told = (ConditionType.STALLED, "True", Reason.DRIVER_START_BLOCKED, "there is no such image")
CONFLICT: Told = (ConditionType.SUCCEEDED, "False", Reason.PUBLISH_CONFLICT, "the table changed")
TRYING_AGAIN: Told = (
    ConditionType.PLANNED,
    "Unknown",
    Reason.TRYING_AGAIN,
    "catalog lake cannot be opened\nIt is tried again, next at 2021-08-01T00:00:10Z",
)
SUSPENDED: Told = (ConditionType.RUNNING, "False", Reason.SUSPENDED, "suspended")
READ: Told = (ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED, "all steps are committed")
UNPUBLISHED: Told = (ConditionType.PUBLISHED, "Unknown", Reason.SUSPENDED, "suspended")
REPLAYING: Told = (ConditionType.RUNNING, "True", Reason.REPLAYING, "attempt 2 is reading")


@pytest.fixture
def july(admin: Rest, namespace: str) -> str:
    """A Backfill that nobody has taken up."""
    admin.create(BACKFILLS.format(namespace), BACKFILL).expect()
    return "july"


def test_where_there_is_none_it_is_said_where_to_look(
    kubectl_backfill: KubectlBackfill, namespace: str
) -> None:
    ended = kubectl_backfill("list")
    assert (ended.status, ended.out.strip()) == (
        0,
        f"no backfills in namespace {namespace}; look in all with -A",
    )


def test_a_list_has_a_line_for_each(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    admin.create(
        BACKFILLS.format(namespace), changed(BACKFILL, {"metadata.name": "august"})
    ).expect()
    tell(admin, namespace, july, running())
    lines = kubectl_backfill("list").out.splitlines()
    assert [line.split() for line in lines] == [
        ["name", "steps", "watermark", "(UTC)", "stage"],
        ["august", "New"],
        ["july", "334/1,380", "2021-07-12", "15:00", "Replaying"],
    ]


def test_a_list_of_all_namespaces_says_which(
    kubectl_backfill: KubectlBackfill, namespace: str, july: str
) -> None:
    lines = kubectl_backfill("list", "-A").out.splitlines()
    assert [namespace, july, "New"] in [line.split() for line in lines]


def test_names_are_never_cut(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str
) -> None:
    name = "a-very-long-name-that-somebody-gave-their-backfill-of-july-2021"
    admin.create(BACKFILLS.format(namespace), changed(BACKFILL, {"metadata.name": name})).expect()
    assert name in kubectl_backfill("list").out


def test_a_list_for_programs_is_a_document_for_each(
    kubectl_backfill: KubectlBackfill, namespace: str, july: str
) -> None:
    [line] = kubectl_backfill("list", "-o", "json").out.splitlines()
    document = json.loads(line)
    assert (document["namespace"], document["name"], document["stage"], document["steps"]) == (
        namespace,
        july,
        "New",
        0,
    )


def test_a_status_shows_lanes_attempts_and_conditions(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    tell(admin, namespace, july, running())
    shown = kubectl_backfill("status", july).out
    for part in (
        "334 of 1,380",
        "impressions",
        "2021-07-12 17:00",
        "12,480 rows/s",
        "done in about 2 h",
        "12 of 14 requested",
    ):
        assert part in shown
    assert "attempt 1  Failed" in shown
    assert "Planned=True" in shown
    assert "→" not in shown, "there is nothing to be done"


@pytest.mark.parametrize(
    ("told", "command"),
    [
        (EXHAUSTED, "kubectl backfill retry july -n {}"),
        (CONFLICT, "kubectl backfill cancel july -n {}"),
        (
            (ConditionType.SUCCEEDED, "False", Reason.RESULT_LOST, "the branch was dropped"),
            "kubectl backfill cancel july -n {}",
        ),
        (WAITING, "kubectl backfill approve july -n {}"),
        (
            (ConditionType.RUNNING, "Unknown", Reason.BACKING_OFF, "attempt 1 failed"),
            "kubectl backfill logs july -n {}",
        ),
    ],
    ids=[
        "failed for good",
        "the table has changed",
        "the result is gone",
        "waits for approval",
        "backs off",
    ],
)
def test_a_status_says_what_to_do_next(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    namespace: str,
    july: str,
    told: Told,
    command: str,
) -> None:
    tell(admin, namespace, july, running(told))
    assert f"    {command.format(namespace)}" in kubectl_backfill("status", july).out.splitlines()
    document = kubectl_backfill("status", july, "-o", "json").document
    assert command.format(namespace) in document["nextStep"]["commands"]


def test_what_to_do_next_is_not_cut_where_there_is_little_room(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    namespace: str,
    july: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    tell(admin, namespace, july, running(WAITING))
    assert (
        f"    kubectl backfill approve july -n {namespace}"
        in kubectl_backfill("status", july).out.splitlines()
    )


def test_why_it_failed_is_told_in_full(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    tell(admin, namespace, july, running(REFUSED))
    shown = kubectl_backfill("status", july).out
    assert "there is none" in shown
    assert "spec.outputs: too" in shown


def test_what_is_tried_again_is_told_in_full_also_of_one_that_is_suspended(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    admin.patch(f"{BACKFILLS.format(namespace)}/{july}", {"spec": {"suspend": True}}).expect()
    tell(admin, namespace, july, running(TRYING_AGAIN, generation=2, plan_id=None))
    shown = kubectl_backfill("status", july).out
    assert "next at 2021-08-01T00:00:10Z" in shown
    assert "the operator retries automatically" in shown
    assert "resume" not in shown


def test_what_is_in_the_way_of_one_that_is_suspended_is_to_be_mended_before_it_is_let_go(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    admin.patch(f"{BACKFILLS.format(namespace)}/{july}", {"spec": {"suspend": True}}).expect()
    absent: Told = (
        ConditionType.PLANNED,
        "False",
        Reason.INVALID_INPUT,
        'there is no Secret "lake-catalog"',
    )
    tell(admin, namespace, july, running(absent, STUCK, generation=2, plan_id=None))
    shown = kubectl_backfill("status", july).out
    assert "fix the problem above" in shown
    assert "resume" not in shown


def test_what_is_stuck_goes_on_when_it_is_mended(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    tell(admin, namespace, july, running(STUCK))
    assert "the operator then continues automatically" in kubectl_backfill("status", july).out


def test_a_file_may_stand_for_its_name(
    kubectl_backfill: KubectlBackfill, july: str, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "july.yaml").write_text(
        json.dumps(changed(BACKFILL, {"metadata.namespace": namespace}))
    )
    ended = kubectl_backfill("status", str(tmp_path / "july.yaml"), namespace=None)
    assert ended.status == 0
    assert ended.out.startswith(july)


def test_options_may_stand_before_the_command(
    kubectl_backfill: KubectlBackfill, july: str, namespace: str
) -> None:
    assert kubectl_backfill("-n", namespace, "status", july, namespace=None).status == 0


def test_a_name_that_is_not_there_is_told_with_those_that_are(
    kubectl_backfill: KubectlBackfill, july: str, namespace: str
) -> None:
    ended = kubectl_backfill("status", "juli")
    assert ended.status == 2
    assert (
        ended.err
        == f'error: there is no backfill "juli" in namespace {namespace}; did you mean july?\n'
    )


def test_without_the_definitions_it_is_said_how_to_install(
    kubectl_backfill: KubectlBackfill, cluster_admin: Path, tmp_path: Path
) -> None:
    with running_proxy(cluster_admin) as proxy:
        proxy.before = lambda request: Response(
            404, b"404 page not found\n", {"Content-Type": "text/plain"}
        )
        ended = kubectl_backfill(
            "list", kubeconfig=proxy.kubeconfig(cluster_admin, tmp_path / "config")
        )
    assert ended.status == 1
    assert "kubectl apply -k deploy/kustomize" in ended.err


def test_who_may_not_is_told_which_permission_is_missing(
    kubectl_backfill: KubectlBackfill, july: str, service_account: ServiceAccountMaker
) -> None:
    nobody = service_account("nobody", [rule("", "configmaps", "get")])
    ended = kubectl_backfill("status", july, kubeconfig=nobody)
    assert ended.status == 1
    assert 'apiGroups: ["backfill.dev"], resources: ["backfills"], verbs: ["get"]' in ended.err


def test_a_server_that_does_not_answer_is_told(
    kubectl_backfill: KubectlBackfill, tmp_path: Path
) -> None:
    ended = kubectl_backfill(
        "list",
        kubeconfig=write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", b"", "token"),
    )
    assert ended.status == 1
    assert "did not answer" in ended.err


def test_what_another_version_wrote_does_not_hide_the_rest(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    cluster_admin: Path,
    namespace: str,
    july: str,
    tmp_path: Path,
) -> None:
    admin.create(
        BACKFILLS.format(namespace), changed(BACKFILL, {"metadata.name": "august"})
    ).expect()

    def of_the_future(request: Request, response: Response) -> Response | None:
        if request.resource != "backfills":
            return None
        listed = response.manifest
        listed["items"][0]["spec"]["execution"] = "Quantum"
        return Response(200, json.dumps(listed).encode())

    with running_proxy(cluster_admin) as proxy:
        proxy.after = of_the_future
        ended = kubectl_backfill(
            "list", kubeconfig=proxy.kubeconfig(cluster_admin, tmp_path / "config")
        )
        documents = kubectl_backfill(
            "list", "-o", "json", kubeconfig=proxy.kubeconfig(cluster_admin, tmp_path / "config")
        )
    assert (ended.status, ended.err) == (0, "")
    assert [line.split() for line in ended.out.splitlines()[1:]] == [
        ["august", "New"],
        ["july", "New"],
    ]
    assert documents.status == 0
    assert "august cannot be read by version" in documents.err
    assert '"july"' in documents.out


@pytest.mark.parametrize(
    ("told", "status"),
    [(PUBLISHED, 0), (EXHAUSTED, 1), (REFUSED, 2), (WAITING, 3), (STUCK, 3)],
    ids=lambda value: str(value)[:40],
)
def test_to_watch_ends_with_the_status_of_the_backfill(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    namespace: str,
    july: str,
    told: Told,
    status: int,
) -> None:
    tell(admin, namespace, july, running(told))
    assert kubectl_backfill("status", july, "--watch").status == status


@pytest.mark.parametrize(
    "told", [(SUSPENDED,), (READ, UNPUBLISHED)], ids=["while it reads", "before it publishes"]
)
def test_a_suspended_one_waits_for_a_person(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    namespace: str,
    july: str,
    told: tuple[Told, ...],
) -> None:
    admin.patch(f"{BACKFILLS.format(namespace)}/{july}", {"spec": {"suspend": True}}).expect()
    tell(admin, namespace, july, running(*told, generation=2))
    ended = kubectl_backfill("status", july, "--watch")
    assert ended.status == 3
    assert f"kubectl backfill resume {july} -n {namespace}" in ended.out


def test_what_the_operator_has_not_seen_yet_is_not_the_end(
    kubectl_backfill: KubectlBackfill, admin: Rest, cluster_admin: Path, namespace: str, july: str
) -> None:
    tell(admin, namespace, july, running(EXHAUSTED))
    kubectl_backfill("retry", july)
    with started(
        cluster_admin, "status", july, "-n", namespace, "--watch", "-o", "json"
    ) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["stage"] == "PlanReady"
        tell(admin, namespace, july, running(REPLAYING, generation=2))
        assert json.loads(watching.stdout.readline())["stage"] == "Replaying"
        tell(admin, namespace, july, running(PUBLISHED, generation=2))
        assert watching.wait(timeout=PATIENCE_SECONDS) == 0


def test_to_watch_outlives_an_api_server_that_is_away(
    admin: Rest, cluster_admin: Path, namespace: str, july: str, tmp_path: Path
) -> None:
    tell(admin, namespace, july, running())
    with running_proxy(cluster_admin) as proxy:
        kubeconfig = proxy.kubeconfig(cluster_admin, tmp_path / "config")
        with started(kubeconfig, "status", july, "-n", namespace, "--watch") as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert "Replaying" in watching.stdout.readline()
            with proxy.away():
                assert "did not answer" in watching.stderr.readline()
                tell(admin, namespace, july, running(PUBLISHED))
            assert watching.wait(timeout=PATIENCE_SECONDS) == 0


def test_a_backfill_that_is_removed_while_watched_is_gone(
    admin: Rest, cluster_admin: Path, namespace: str, july: str
) -> None:
    tell(admin, namespace, july, running())
    with started(cluster_admin, "status", july, "-n", namespace, "--watch") as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        admin.delete(f"{BACKFILLS.format(namespace)}/{july}").expect()
        assert watching.wait(timeout=PATIENCE_SECONDS) == 0


def test_one_that_no_operator_takes_up_says_so(
    kubectl_backfill: KubectlBackfill, july: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no operator" not in kubectl_backfill("status", july).out
    monkeypatch.setattr("backfill.cli.cluster.advice._TAKEN_UP_WITHIN", timedelta())
    assert (
        "kubectl get pods -A -l app.kubernetes.io/name=backfill-operator"
        in kubectl_backfill("status", july).out
    )
