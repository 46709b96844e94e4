"""Reports of a live application: they end with its Backfill, and never disturb the application."""

from typing import Any

import pytest

from backfill.api.errors import BackfillError
from backfill.api.quantities import from_us
from backfill.kube.request_errors import Forbidden, NotFound, Unreachable
from backfill.protocol.hand_off_messages import LiveReport, LiveSettings
from backfill.runtime.live.reports import Reports

SETTINGS = LiveSettings(namespace="streaming", backfill="b", uid="mine", main_file="app.py")
FOUND = {"metadata": {"uid": "assignment", "ownerReferences": [{"uid": "mine"}]}}
OTHER = {"metadata": {"uid": "assignment", "ownerReferences": [{"uid": "other"}]}}


class Server:
    """An API server that answers as a test says, then that nothing is there."""

    def __init__(self, *answers: Any):
        self._answers = list(answers)
        self.patches: list[Any] = []

    def get(self, *_: object) -> Any:
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def edit(self, *place: Any, **_: object) -> None:
        self.patches.append(place[-1])


def _reported(server: Any) -> None:
    Reports(SETTINGS, lambda: LiveReport(heartbeat=from_us(0)), lambda: server, 0.0).run()


def test_reports_are_sent_until_the_assignment_is_gone_whatever_fails_in_between() -> None:
    server = Server(FOUND, Unreachable("no answer"), Forbidden("no"), ValueError("odd"), FOUND)
    _reported(server)
    assert len(server.patches) == 2
    assert server.patches[0] == [
        {"op": "test", "path": "/metadata/uid", "value": "assignment"},
        {
            "op": "add",
            "path": "/status/live",
            "value": {"queries": [], "heartbeat": "1970-01-01T00:00:00Z", "message": ""},
        },
    ]


@pytest.mark.parametrize("answer", [None, OTHER, NotFound("gone")])
def test_nothing_is_reported_to_nobody_or_to_another_backfill_of_the_name(answer: Any) -> None:
    server = Server(answer, FOUND)
    _reported(server)
    assert server.patches == []


def test_an_application_outside_of_a_cluster_reports_nothing() -> None:
    def no_cluster() -> Any:
        raise BackfillError("this process is not in a pod")

    Reports(SETTINGS, lambda: LiveReport(heartbeat=from_us(0)), no_cluster).run()
