"""Two operators that both believe they lead, with reads that are old and answers that are lost, in
any order.

Whatever they do, no two drivers of a Backfill run at a time, what is released stays released, and
no attempt's number is used twice. When one of them is left alone, the Backfill succeeds.
"""

import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mortal_operator import MortalOperator
from played import PlayedRun
from proxy import CUT, Cut, Request, Response, UnreliableProxy
from rest import Rest
from written import Written, is_real_write

from table_jobs import Clicks
from waiting import eventually

_PODS = "api/v1/namespaces/{}/pods"
_MOVES = (
    "look",
    "work",
    "work",
    "work",
    "lose",
    "die",
    "drive",
    "drive",
    "fail",
    "suspend",
    "resume",
)


class World:
    """Two operators, and one Backfill with its drivers."""

    def __init__(self, admin: Rest, proxy: UnreliableProxy, kubeconfig: Path, run: PlayedRun):
        self._admin, self._run, self._kubeconfig = admin, run, kubeconfig
        self.written, self._lose = Written(), 0
        proxy.after = self._after
        self._operators = [self._operator(), self._operator()]
        self._submitted: set[int] = set()
        self._ended: set[int] = set()
        run.create(failurePolicy={"maxAttempts": 100, "backoff": "1ms"})

    def move(self, what: str, who: int) -> None:
        """One move of one of them."""
        match what:
            case "look":
                self._operators[who].look()
            case "work":
                self._operators[who].take_turns_unseeing()
            case "lose":
                self._lose = 1
            case "die":
                self._operators[who] = self._operator()
            case "drive":
                self._drive()
            case "fail":
                self._fail()
            case "suspend" | "resume":
                self._suspend(what == "suspend")

    def calm_down(self) -> None:
        """One of them is left, and sees everything. Nobody keeps the Backfill from ending."""
        self._suspend(False)

        def succeeded() -> bool:
            self._operators[0].take_turns()
            self._drive()
            return self._run.condition("Succeeded")[0] == "True"

        eventually(succeeded, "it succeeds")

    def _operator(self) -> MortalOperator:
        return MortalOperator(self._kubeconfig, self._run.namespace, lambda *answer: None)

    def _after(self, request: Request, response: Response) -> Cut | None:
        self.written.note(request, response)
        if not self._lose or not is_real_write(request):
            return None
        self._lose -= 1
        return CUT

    def _suspend(self, suspend: bool) -> None:
        self._admin.patch(self._run.path, {"spec": {"suspend": suspend}}).expect()

    def _drive(self) -> None:
        """The newest child's driver is started, or commits what is released to it."""
        number = self._newest()
        if number is None or number in self._ended:
            return
        if number not in self._submitted:
            assert not self._alive(), f"attempt {number} begins while {self._alive()} run"
            self._run.submit(number)
            self._submitted.add(number)
            return
        spec = self._run.assignment()
        if spec["attempt"] == number and number in self._alive():
            if spec.get("stop"):
                self._run.report(number, spec["released"], "Stopped")
                self._end(number, 0)
                return
            finished = spec["released"] == spec["steps"]
            self._run.report(
                number,
                spec["steps"] + 1 if finished else spec["released"],
                "Finished" if finished else "Running",
            )
            if finished:
                self._end(number, 0)

    def _fail(self) -> None:
        for number in self._alive():
            self._end(number, 1)

    def _end(self, number: int, exit_code: int) -> None:
        self._run.end(number, exit_code)
        self._ended.add(number)

    def _newest(self) -> int | None:
        """The last child there is; drivers whose child is gone are gone, too."""
        children = {int(name.rpartition("-a")[2]) for name in self._run.children()}
        self._ended |= self._submitted - children
        return max(children, default=None)

    def _alive(self) -> set[int]:
        return self._submitted - self._ended


_OLD_VIEW = [
    ("look", 0),
    ("look", 1),
    ("work", 1),
    ("drive", 0),
    ("drive", 0),
    ("work", 0),
    ("work", 0),
]
"""The first operator knows of no driver when it reads of the attempt."""
_OLD_STATUS = [
    *((what, 0) for what in ("look", "work", "drive", "fail")),
    ("look", 1),
    ("work", 1),
    ("look", 0),
    ("work", 0),
]
"""The second operator has gone on from what the first one recorded."""


@pytest.mark.usefixtures("crds")
@example(moves=_OLD_VIEW)
@example(moves=_OLD_STATUS)
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    moves=st.lists(st.tuples(st.sampled_from(_MOVES), st.integers(0, 1)), min_size=10, max_size=60)
)
def test_operators_that_see_little_and_die_often_do_nothing_twice(
    moves: list[tuple[str, int]],
    admin: Rest,
    proxy: UnreliableProxy,
    cluster_admin: Path,
    namespace: str,
    clicks: Clicks,
    tmp_path: Path,
) -> None:
    kubeconfig = proxy.kubeconfig(cluster_admin, tmp_path / "kubeconfig")
    run = PlayedRun(admin, namespace, tmp_path, f"run-{uuid.uuid4().hex[:8]}", clicks)
    world = World(admin, proxy, kubeconfig, run)
    for what, who in moves:
        world.move(what, who)
    world.calm_down()
    world.written.assert_sound()
    attempts = [each["number"] for each in run.status["attempts"]]
    assert attempts == list(range(1, len(attempts) + 1))
    admin.patch(run.path, {"metadata": {"finalizers": None}}).expect()
    admin.delete(run.path).expect()
