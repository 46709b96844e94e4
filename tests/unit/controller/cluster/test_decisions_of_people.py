"""Decisions as the operator reads them from its cache. Any text may be in them."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from backfill.api.status import BackfillStatus, DecisionStatus, Verdict
from backfill.controller.cluster.store import KubernetesStore
from backfill.kube.cache import Cache, named_key, own_key
from backfill.kube.client import Cluster
from situations import backfill, decided

RESULT = "0123456789abcdef"


def found(
    *manifests: dict[str, Any], status: BackfillStatus | None = None, verified: bool = False
) -> tuple[DecisionStatus, ...]:
    decisions = Cache(named_key)
    for number, manifest in enumerate(manifests):
        manifest["metadata"] |= {"uid": f"u{number}", "resourceVersion": str(number + 1)}
        decisions.put(manifest)
    store = KubernetesStore(
        cast("Cluster", None),
        Cache(own_key),
        ("default", "january"),
        "u",
        decisions=decisions,
        names_are_verified=verified,
    )
    return store.decisions(backfill(status or BackfillStatus(result=RESULT)))


def decision(name: str = f"decision-{RESULT}", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "BackfillDecision",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": "2024-03-01T12:00:00Z",
        },
        "spec": {
            "backfill": "january",
            "result": RESULT,
            "decision": "Approve",
            "by": "jane",
            "reason": "as agreed",
            **spec,
        },
    }


@pytest.mark.parametrize("verified", [True, False])
def test_it_says_who_when_and_why_and_whether_the_name_is_verified(verified: bool) -> None:
    (read,) = found(decision(), verified=verified)
    assert read == DecisionStatus(
        decision=Verdict.APPROVE,
        result=RESULT,
        by="jane",
        by_verified=verified,
        at=datetime(2024, 3, 1, 12, tzinfo=UTC),
        reason="as agreed",
    )


@pytest.mark.hostile
@pytest.mark.parametrize(
    "spec",
    [
        {"backfill": "february"},
        {"result": "f" * 16},
        {"decision": "Delete"},
        {"by": ""},
        {"by": "j" * 2000},
        {"unknown": 1},
    ],
)
def test_what_is_about_another_result_or_unreadable_does_not_count(spec: dict[str, Any]) -> None:
    assert found(decision(**spec)) == ()


@pytest.mark.hostile
def test_what_steers_a_terminal_is_shown_as_text() -> None:
    (read,) = found(decision(by="jane\x1b[2J", reason="\x1b]0;x"))
    assert (read.by, read.reason) == ("jane\\x1b[2J", "\\x1b]0;x")


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("a gap\r\n" * 146, "a gap " * 145 + "a gap"),
        ("\x1b" * 1024, "\\x1b" * 256),
        ("yes\n\nSucceeded\tTrue", "yes Succeeded True"),
    ],
)
def test_a_reason_counts_and_is_one_line_whatever_is_in_it(reason: str, shown: str) -> None:
    (read,) = found(decision(reason=reason))
    assert read.reason == shown


def test_the_next_request_to_undo_is_the_one_that_counts() -> None:
    first = decision(f"undo-{RESULT}-1", decision="Undo")
    second = decision(f"undo-{RESULT}-2", decision="Undo", reason="once more")
    assert [each.number for each in found(first, second)] == [1]
    status = BackfillStatus(result=RESULT)
    refused = decided(status, Verdict.UNDO, refused="snapshot 9 is in the way")
    (read,) = found(first, second, status=status.model_copy(update={"undo": refused}))
    assert (read.number, read.reason) == (2, "once more")


def test_nothing_is_decided_before_there_is_a_result() -> None:
    assert found(decision(), status=BackfillStatus(plan_id="p")) == ()
