"""Several replicas of the operator, and how they begin and end."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from kubeconfigs import write_kubeconfig
from operators import OperatorProcess, running, wait_until_ready
from proxy import running_proxy
from rest import BACKFILLS, Rest
from samples import BACKFILL

from manifests import changed
from waiting import eventually

_WATCHES = 6
LEASES = "apis/coordination.k8s.io/v1/namespaces/{}/leases"


def holder(admin: Rest, namespace: str) -> str:
    return str(
        admin.get(f"{LEASES.format(namespace)}/backfill-operator").expect()["spec"][
            "holderIdentity"
        ]
    )


@pytest.mark.usefixtures("crds")
def test_one_of_two_leads_and_the_other_takes_over_when_it_is_killed(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    one = OperatorProcess(cluster_admin, namespace, tmp_path, "one")
    with running(one):
        wait_until_ready(one)
        two = OperatorProcess(cluster_admin, namespace, tmp_path, "two")
        with running(two):
            wait_until_ready(two, "standby")
            one.kill()
            admin.create(
                BACKFILLS.format(namespace), changed(BACKFILL, {"metadata.name": "after"})
            ).expect()
            eventually(
                lambda: holder(admin, namespace) == "two",
                "the other leads",
            )
            path = f"{BACKFILLS.format(namespace)}/after"
            eventually(
                lambda: admin.get(path).expect().get("status"),
                "it takes turns",
            )


@pytest.mark.usefixtures("crds")
def test_a_leader_that_is_asked_to_end_hands_over_at_once(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    one = OperatorProcess(cluster_admin, namespace, tmp_path, "one")
    with running(one):
        wait_until_ready(one)
        two = OperatorProcess(cluster_admin, namespace, tmp_path, "two")
        with running(two):
            wait_until_ready(two, "standby")
            assert one.terminate() == 0
            assert holder(admin, namespace) in ("", "two"), "the lease has to expire"
            wait_until_ready(two)
            assert two.terminate() == 0
            assert holder(admin, namespace) == ""


@pytest.mark.usefixtures("crds")
def test_a_leader_whose_lease_is_taken_ends_with_an_error(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    operator = OperatorProcess(cluster_admin, namespace, tmp_path)
    with running(operator):
        wait_until_ready(operator)
        lease = f"{LEASES.format(namespace)}/backfill-operator"
        admin.patch(lease, {"spec": {"holderIdentity": "somebody else"}}).expect()
        eventually(lambda: operator.ended == 1, "it ends")


def test_it_waits_for_an_api_server_that_is_away(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "away", "https://127.0.0.1:1", b"", "token")
    operator = OperatorProcess(kubeconfig, "default", tmp_path)
    with running(operator):
        eventually(
            lambda: "cannot list resources" in operator.log_file.read_text(),
            "it says what is wrong",
        )
        assert operator.ready() is None
        assert operator.terminate() == 0


@pytest.mark.hostile
@pytest.mark.usefixtures("crds")
def test_connections_that_say_nothing_keep_neither_a_probe_nor_a_scrape_from_its_answer(
    cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    operator = OperatorProcess(cluster_admin, namespace, tmp_path)
    with running(operator), ExitStack() as theirs:
        wait_until_ready(operator)
        before = threads(operator.pid)
        for port in (operator.health_port, operator.metrics_port):
            for number in range(300):
                connection = socket.create_connection(("127.0.0.1", port))
                theirs.enter_context(connection)
                if number % 3 == 0:
                    connection.sendall(b"GET /heal")
        # Kopf keeps an answer for ten seconds, so this may be one from before it led
        assert operator.health()["reconciles"] == "ok"
        assert operator.measured("backfill_leader") == 1.0
        assert threads(operator.pid) < before + 100, "not every connection has a thread of its own"
        assert operator.terminate() == 0


@pytest.mark.usefixtures("crds")
def test_ports_that_are_taken_end_it_with_an_error(
    cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    for option in ("--metrics-port", "--health-port"):
        with socket.create_server(("", 0)) as taken:
            port = str(taken.getsockname()[1])
            operator = OperatorProcess(
                cluster_admin, namespace, tmp_path, option.strip("-"), option, port
            )
            with running(operator):
                eventually(lambda: operator.ended == 1, "it ends")  # noqa: B023 - at once
                assert "in use" in operator.log_file.read_text()


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_without_credentials_it_says_so_and_ends(tmp_path: Path) -> None:
    operator = OperatorProcess(tmp_path / "none", "default", tmp_path)
    with running(operator):
        eventually(lambda: operator.ended is not None, "it ends")
        assert operator.ended == 1
        assert "no cluster to connect to" in operator.lines()[-1]["message"]


@pytest.mark.usefixtures("crds")
def test_an_api_server_that_is_away_for_moments_costs_no_leadership(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    with running_proxy(cluster_admin) as proxy:
        operator = OperatorProcess(
            proxy.kubeconfig(cluster_admin, tmp_path / "config"), namespace, tmp_path
        )
        with running(operator):
            wait_until_ready(operator)
            eventually(lambda: proxy.count("watch") >= _WATCHES, "it watches all that there is")
            with proxy.away():
                admin.create(
                    BACKFILLS.format(namespace), changed(BACKFILL, {"metadata.name": "meanwhile"})
                ).expect()
                eventually(
                    lambda: "the lease could not be" in operator.log_file.read_text(), "it notices"
                )
            path = f"{BACKFILLS.format(namespace)}/meanwhile"
            eventually(lambda: admin.get(path).expect().get("status"), "it goes on")
            assert operator.ready() == "leader"


@pytest.mark.usefixtures("crds")
def test_a_leader_that_can_not_reach_the_api_server_for_long_ends_with_an_error(
    cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    with running_proxy(cluster_admin) as proxy:
        operator = OperatorProcess(
            proxy.kubeconfig(cluster_admin, tmp_path / "config"), namespace, tmp_path
        )
        with running(operator):
            wait_until_ready(operator)
            with proxy.away():
                eventually(lambda: operator.ended == 1, "it ends")
