"""Real operator processes that are killed, and an API server that is not to be relied on: nothing
doubled, nothing stuck.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from operators import KeptRunning, OperatorProcess
from played import PlayedRun
from proxy import CUT, Cut, Request, Response, UnreliableProxy
from rest import Rest
from weather import Weather, broken_watches, dropped_watches, lost_answers, refusals, stale_reads
from written import Written, is_real_write

from backfill.kube.object_names import child_name
from waiting import eventually

_WATCHES_IN_GOOD_WEATHER = 7  # one of each kind
_KINDS_OF_WRITES = {
    "patch backfills",
    "patch backfills/status",
    "create events",
    "patch configmaps",
    "create splitassignments",
    "patch splitassignments",
    "create configmaps",
    "create sparkapplications",
    "create pods",
    "delete pods",
    "create jobreports",
    "delete jobreports",
    "delete configmaps",
    "delete splitassignments",
}
Keep = Callable[[], KeptRunning]


@pytest.fixture
def keep(
    crds: None, proxy: UnreliableProxy, cluster_admin: Path, namespace: str, tmp_path: Path
) -> Iterator[Callable[[], KeptRunning]]:
    """Starts an operator behind the proxy that is started again whenever it ends."""
    kubeconfig = proxy.kubeconfig(cluster_admin, tmp_path / "kubeconfig")
    with ExitStack() as kept:

        def start() -> KeptRunning:
            operator = KeptRunning(
                lambda life: OperatorProcess(kubeconfig, namespace, tmp_path, life=life)
            )
            kept.callback(operator.close)
            return operator

        yield start


class KillAtEveryKind:
    """The first write of every kind is cut before it reaches the server, the second one after, and
    the operator is killed.
    """

    def __init__(self, written: Written):
        self.written = written
        self.kill: Callable[[], None] = lambda: None
        self.struck: Counter[str] = Counter()
        self._lock = threading.Lock()

    def before(self, request: Request) -> Cut | None:
        return self._strike(request, number=1)

    def after(self, request: Request, response: Response) -> Cut | None:
        self.written.note(request, response)
        return self._strike(request, number=2)

    def _strike(self, request: Request, number: int) -> Cut | None:
        kind = f"{request.verb} {request.resource}"
        with self._lock:
            if not is_real_write(request) or self.struck[kind] != number - 1:
                return None
            self.struck[kind] = number
            self.kill()
        return CUT


@pytest.mark.usefixtures("kubelet")
def test_processes_killed_at_writes_of_every_kind_lose_and_double_nothing(
    keep: Keep,
    proxy: UnreliableProxy,
    admin: Rest,
    namespace: str,
    tmp_path: Path,
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    deaths = KillAtEveryKind(Written())
    operator = keep()
    deaths.kill = operator.kill
    proxy.before, proxy.after = deaths.before, deaths.after
    run.create()
    assert_ends_well(run, deaths.written)
    assert set(deaths.struck) == _KINDS_OF_WRITES
    assert operator.lives > len(_KINDS_OF_WRITES)


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize("weather", [refusals, lost_answers, broken_watches, stale_reads])
def test_an_api_that_is_not_to_be_relied_on_holds_nothing_up(
    weather: Weather,
    keep: Keep,
    proxy: UnreliableProxy,
    admin: Rest,
    namespace: str,
    tmp_path: Path,
) -> None:
    run, written = PlayedRun(admin, namespace, tmp_path), Written()
    weather(proxy, written)
    operator = keep()
    with dropped_watches(proxy) if weather is broken_watches else ExitStack():
        run.create(failurePolicy={"maxAttempts": 3, "backoff": "10ms"})
        run.submit(1)
        run.report(1, committed=0)
        run.end(1, exit_code=1)
        assert_ends_well(run, written, attempts=2)
    assert operator.lives == 1
    assert weather is not broken_watches or proxy.count("watch") > _WATCHES_IN_GOOD_WEATHER


@pytest.mark.usefixtures("kubelet")
def test_an_api_server_that_is_away_for_long_loses_nothing(
    keep: Keep, proxy: UnreliableProxy, admin: Rest, namespace: str, tmp_path: Path
) -> None:
    """The driver goes on with what is released; the operator gives up its Lease, ends, and is
    started again.
    """
    run, written = PlayedRun(admin, namespace, tmp_path), Written()
    proxy.after = written.note
    operator = keep()
    run.create()
    run.submit(1)
    run.report(1, committed=0)
    with proxy.away():
        run.report(1, committed=1)
        eventually(lambda: operator.lives > 1, "it ends")
        assert run.condition("Succeeded")[0] == "Unknown"
    run.replay(1, committed=1)
    assert_succeeds(run, written, attempts=1)


def assert_ends_well(run: PlayedRun, written: Written, attempts: int = 1) -> None:
    """The last attempt finishes, and then the Backfill is deleted."""
    run.submit(attempts)
    run.replay(attempts)
    assert_succeeds(run, written, attempts)
    run.admin.delete(run.path)
    eventually(lambda: run.admin.get(run.path).status == 404, "it is let go of")
    assert [path for path in run.workspace.rglob("*") if path.is_file()] == []


def assert_succeeds(run: PlayedRun, written: Written, attempts: int) -> None:
    run.wait_for("Succeeded", "True")
    status = run.status
    assert status["progress"]["committed"] == status["progress"]["steps"]
    assert [each["outcome"] for each in status["attempts"]] == ["Failed"] * (attempts - 1) + [
        "Succeeded"
    ]
    assert written.children(run.name) == [
        child_name(run.name, number) for number in range(1, attempts + 1)
    ]
    written.assert_sound()
