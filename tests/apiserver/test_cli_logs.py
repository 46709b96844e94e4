"""``kubectl backfill logs``. No kubelet runs here: what it would answer is played at the way to the
API server.
"""

from pathlib import Path

import pytest
import told_status
from kubectl_backfill import KubectlBackfill
from proxy import Request, Response, running_proxy
from rest import BACKFILLS, Manifest, Rest
from samples import BACKFILL

from backfill.controller.children.pod_template import container_name
from backfill.kube.object_names import attempt_labels

pytestmark = pytest.mark.usefixtures("crds")


@pytest.fixture
def july(admin: Rest, namespace: str) -> str:
    admin.create(BACKFILLS.format(namespace), BACKFILL).expect()
    told_status.tell(admin, namespace, "july", told_status.running())
    return "july"


def start_pod(
    admin: Rest,
    namespace: str,
    name: str,
    attempt: int,
    role: str = "driver",
    *,
    running: bool = True,
) -> Manifest:
    labels = attempt_labels("july", attempt) | {"spark-role": role}
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": container_name("driver"), "image": "spark"}]},
    }
    created = admin.create(f"api/v1/namespaces/{namespace}/pods", pod).expect()
    if not running:
        return created
    container = {
        "name": container_name("driver"),
        "image": "spark",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
    }
    status = {"phase": "Running", "containerStatuses": [container | {"state": {"running": {}}}]}
    started = admin.patch(f"api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})
    return started.expect()


@pytest.mark.usefixtures("july")
@pytest.mark.parametrize(
    ("options", "told"), [((), "words of two\n"), (("--attempt", "1"), "words of one\n")]
)
def test_the_driver_of_an_attempt_is_heard(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    cluster_admin: Path,
    namespace: str,
    tmp_path: Path,
    options: tuple[str, ...],
    told: str,
) -> None:
    for attempt, name in ((1, "one"), (2, "two")):
        start_pod(admin, namespace, name, attempt)
        start_pod(admin, namespace, f"{name}-exec-1", attempt, "executor")

    def kubelet(request: Request) -> Response | None:
        assert request.resource != "pods/log" or request.query["container"] == container_name(
            "driver"
        )
        words = f"words of {request.name}\n".encode()
        return (
            Response(200, words, {"Content-Type": "text/plain"})
            if request.resource == "pods/log"
            else None
        )

    with running_proxy(cluster_admin) as proxy:
        proxy.before = kubelet
        ended = kubectl_backfill(
            "logs",
            "july",
            *options,
            kubeconfig=proxy.kubeconfig(cluster_admin, tmp_path / "config"),
        )
    assert (ended.status, ended.out) == (0, told)


def test_a_driver_that_has_not_started_is_told(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    start_pod(admin, namespace, "two", 2, running=False)
    ended = kubectl_backfill("logs", july)
    assert ended.status == 1
    assert "the driver of attempt 2 has not started: PodPending" in ended.err
    assert "use -f to wait for the driver" in ended.err


def test_of_a_driver_that_is_gone_it_is_told_why_it_ended(
    kubectl_backfill: KubectlBackfill, july: str
) -> None:
    ended = kubectl_backfill("logs", july, "--attempt", "1")
    assert ended.status == 1
    assert (
        "attempt 1 has no driver pod; the attempt failed: its driver exceeded the memory"
        in ended.err
    )


def test_an_attempt_that_was_never_made(kubectl_backfill: KubectlBackfill, july: str) -> None:
    ended = kubectl_backfill("logs", july, "--attempt", "7")
    assert (ended.status, ended.err) == (
        2,
        "error: --attempt: july has no attempt 7; choose one of: 1, 2\n",
    )


def test_before_the_first_attempt(
    kubectl_backfill: KubectlBackfill, admin: Rest, namespace: str, july: str
) -> None:
    admin.patch(
        f"{BACKFILLS.format(namespace)}/{july}/status", {"status": {"attempts": None}}
    ).expect()
    ended = kubectl_backfill("logs", july)
    assert ended.status == 2
    assert "no attempt of july has started yet" in ended.err


@pytest.mark.usefixtures("july")
def test_to_follow_waits_until_the_driver_speaks(
    kubectl_backfill: KubectlBackfill,
    admin: Rest,
    cluster_admin: Path,
    namespace: str,
    tmp_path: Path,
) -> None:
    asked: list[Request] = []

    def kubelet(request: Request) -> Response | None:
        if request.resource == "pods" and request.verb == "list":
            asked.append(request)
            if len(asked) == 2:
                start_pod(admin, namespace, "two", 2)
        words = Response(200, b"first\nlast\n", {"Content-Type": "text/plain"})
        return words if request.resource == "pods/log" else None

    with running_proxy(cluster_admin) as proxy:
        proxy.before = kubelet
        ended = kubectl_backfill(
            "logs", "july", "-f", kubeconfig=proxy.kubeconfig(cluster_admin, tmp_path / "config")
        )
    assert (ended.status, ended.out) == (0, "first\nlast\n")
    assert ended.err == "attempt 2 has no driver pod; waiting for the driver\n"
