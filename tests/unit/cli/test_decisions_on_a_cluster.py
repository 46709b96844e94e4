"""``approve`` and ``undo`` on a cluster, against answers that an API server gives seldom."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BackfillError, BadInput
from backfill.api.status import BackfillStatus, OutputStatus, Verdict
from backfill.cli.cluster import status_command
from backfill.cli.cluster.connection import Place
from backfill.cli.cluster.decision_commands import approve_one, undo_one
from backfill.kube.request_errors import AlreadyExists, Unreachable
from situations import backfill, decided, with_condition

RESULT = "0123456789abcdef"


@dataclass
class Played:
    """A place, and a cluster that has one decision."""

    backfills: Iterator[Backfill | Exception]
    there: dict[str, Any] | None = None
    namespace: str = "default"
    asked: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> "Played":
        return self

    def find(self, name: str) -> Backfill:
        self.asked.append(name)
        found = next(self.backfills)
        if isinstance(found, Exception):
            raise found
        return found

    def command(self, *words: str) -> str:
        return " ".join(words)

    def create(self, kind: object, manifest: dict[str, Any], **options: str) -> dict[str, Any]:
        if manifest["kind"] == "SelfSubjectReview":
            return {"status": {"userInfo": {"username": "jane"}}}
        if self.there is not None:
            raise AlreadyExists("there is one")
        return manifest

    def get(self, *place: object) -> dict[str, Any] | None:
        return self.there


def waiting() -> Backfill:
    status = BackfillStatus(result=RESULT)
    return backfill(
        with_condition(status, ConditionType.PUBLISHED, "Unknown", Reason.WAITING_FOR_APPROVAL)
    )


def published(**changes: Any) -> Backfill:
    output = OutputStatus(name="counts", table="lake.ops.counts", snapshot_id=7)
    status = BackfillStatus(result=RESULT, outputs=(output.model_copy(update=changes),))
    return backfill(with_condition(status, ConditionType.SUCCEEDED, "True", Reason.FINISHED))


def decision(**spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "BackfillDecision",
        "metadata": {"name": f"decision-{RESULT}", "namespace": "default"},
        "spec": {
            "backfill": "january",
            "result": RESULT,
            "decision": "Approve",
            "by": "joe",
            **spec,
        },
    }


def approve(there: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    place = cast("Place", Played(iter([waiting()]), there))
    approve_one(place, "january", Console(), reason="")
    return capsys.readouterr().out


@pytest.mark.hostile
def test_what_steers_a_terminal_in_a_name_is_shown_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = approve(decision(by="joe\x1b[2J"), capsys)
    assert "january: joe\\x1b[2J has already decided: Approve" in out
    out = approve(decision(by="joe\njanuary: approved by ann\n"), capsys)
    assert "january: joe january: approved by ann has already decided: Approve" in out, "one line"


@pytest.mark.hostile
def test_a_decision_with_the_name_of_this_one_that_is_about_another_backfill_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BadInput, match=f"decision-{RESULT} is about february, and has no effect"):
        approve(decision(backfill="february"), capsys)


def test_waiting_for_an_undo_goes_on_while_the_api_server_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_command, "_ONE_SECONDS", 0.0)
    before = published()
    undone = published(undo_snapshot_id=8)
    status = undone.status.model_copy(update={"undo": decided(undone.status, Verdict.UNDO)})
    after = undone.model_copy(update={"status": status})
    answers = iter([before, Unreachable("no route"), after])
    undo_one(cast("Place", Played(answers)), "january", Console(), reason="", wait=True)
    shown = capsys.readouterr()
    assert "no route; retrying" in shown.err
    assert "january: undone" in shown.out


def test_a_backfill_that_was_created_again_is_not_waited_for() -> None:
    before = published()
    metadata = before.metadata.model_copy(update={"uid": "another"})
    answers = iter([before, before.model_copy(update={"metadata": metadata})])
    with pytest.raises(
        BackfillError, match="january was removed and created again in the meantime"
    ):
        undo_one(cast("Place", Played(answers)), "january", Console(), reason="", wait=True)
