"""Who decides about results: a permission of its own, under one's own name, once."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from identities import ServiceAccountMaker
from kubectl_backfill import KubectlBackfill
from rest import BACKFILLS, DECISIONS, Answer, Manifest, Rest
from roles import granted, may, rules_of
from samples import BACKFILL
from told_status import running, tell

from backfill.api.conditions import ConditionType, Reason
from manifests import changed
from repository import ROOT
from waiting import eventually

pytestmark = pytest.mark.usefixtures("crds")

RESULT = "0123456789abcdef"
WAITS = (ConditionType.PUBLISHED, "Unknown", Reason.WAITING_FOR_APPROVAL, "5 rows wait")
REJECTED = (ConditionType.SUCCEEDED, "False", Reason.REJECTED, "rejected by jane: no; it stays")
FINISHED = (ConditionType.SUCCEEDED, "True", Reason.FINISHED, "")


def decision(**spec: Any) -> Manifest:
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "BackfillDecision",
        "metadata": {"name": spec.pop("name", f"decision-{RESULT}")},
        "spec": {
            "backfill": "july",
            "result": RESULT,
            "decision": "Approve",
            "by": "jane",
            "reason": "as agreed",
            **spec,
        },
    }


@pytest.fixture
def july(admin: Rest, namespace: str) -> str:
    """A Backfill that waits for approval."""
    manifest = changed(BACKFILL, {"metadata.finalizers": []})
    admin.create(BACKFILLS.format(namespace), manifest).expect()
    tell(admin, namespace, "july", running(WAITS))
    path = f"{BACKFILLS.format(namespace)}/july"
    admin.patch(f"{path}/status", {"status": {"result": RESULT}}).expect()
    return path


@pytest.fixture
def editor(service_account: ServiceAccountMaker) -> Path:
    return service_account("editor", _rules("view", "edit"))


@pytest.fixture
def approver(service_account: ServiceAccountMaker) -> Path:
    return service_account("approver", _rules("view", "approve"))


def _rules(*roles: str) -> list[Any]:
    return [
        rule for role in roles for rule in rules_of("users.yaml", "ClusterRole", f"backfill-{role}")
    ]


def create(admin: Rest, namespace: str, manifest: Manifest) -> Answer:
    return admin.create(DECISIONS.format(namespace), manifest)


def test_an_editor_can_not_approve_and_an_approver_can_not_edit(
    kubectl_backfill: KubectlBackfill,
    july: str,
    admin: Rest,
    namespace: str,
    editor: Path,
    approver: Path,
) -> None:
    refused = kubectl_backfill("approve", "july", kubeconfig=editor)
    assert refused.status == 1
    assert "requires permission to create backfilldecisions" in refused.err
    ended = kubectl_backfill("approve", "july", "--reason", "looks right", kubeconfig=approver)
    assert ended.status == 0, ended.err
    stored = admin.get(f"{DECISIONS.format(namespace)}/decision-{RESULT}").expect()
    assert stored["spec"] == {
        "backfill": "july",
        "result": RESULT,
        "decision": "Approve",
        "by": f"system:serviceaccount:{namespace}:approver",
        "reason": "looks right",
    }
    (owner,) = stored["metadata"]["ownerReferences"]
    assert owner["uid"] == admin.get(july).expect()["metadata"]["uid"]
    again = kubectl_backfill("approve", "july", kubeconfig=approver)
    assert (again.status, "has already decided: Approve" in again.out) == (0, True)
    other = kubectl_backfill("reject", "july", "--reason", "no", kubeconfig=approver)
    assert (other.status, "has already decided: Approve" in other.err) == (2, True)
    user = Rest(approver)
    for verb in ("update", "patch", "delete", "deletecollection"):
        assert not may(user, verb, "backfilldecisions.backfill.dev", namespace)
    assert not may(user, "patch", "backfills.backfill.dev", namespace)
    user.close()


def test_a_rejection_needs_a_reason(
    kubectl_backfill: KubectlBackfill, july: str, admin: Rest, namespace: str
) -> None:
    assert kubectl_backfill("reject", "july").status == 2
    refused = create(admin, namespace, decision(decision="Reject", reason=""))
    assert (refused.status, "say why the result is rejected" in refused.message) == (422, True)
    assert kubectl_backfill("reject", "july", "--reason", "a gap").status == 0
    stored = admin.get(f"{DECISIONS.format(namespace)}/decision-{RESULT}").expect()
    assert (stored["spec"]["decision"], stored["spec"]["reason"]) == ("Reject", "a gap")
    tell(admin, namespace, "july", running(REJECTED))
    for command in ("retry", "resume", "suspend"):
        ended = kubectl_backfill(command, "july")
        assert (ended.status, "july was rejected by jane" in ended.err) == (2, True)


def test_there_is_nothing_to_undo_before_it_is_published(
    kubectl_backfill: KubectlBackfill, july: str, admin: Rest, namespace: str
) -> None:
    refused = kubectl_backfill("undo", "july")
    assert (refused.status, "published nothing" in refused.err) == (2, True)
    output = {"name": "summary", "table": "lake.ops.summary", "snapshotId": 7}
    tell(admin, namespace, "july", running(FINISHED))
    admin.patch(f"{july}/status", {"status": {"result": RESULT, "outputs": [output]}}).expect()
    asked = kubectl_backfill("undo", "july", "--no-wait")
    assert asked.status == 0, asked.err
    stored = admin.get(f"{DECISIONS.format(namespace)}/undo-{RESULT}-1").expect()
    assert stored["spec"]["decision"] == "Undo"


def test_what_does_not_wait_is_not_approved(
    kubectl_backfill: KubectlBackfill, july: str, admin: Rest, namespace: str
) -> None:
    tell(admin, namespace, "july", running(FINISHED))
    refused = kubectl_backfill("approve", "july")
    assert (refused.status, "no result waiting for approval" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "what"),
    [("mine", "Approve"), (f"undo-{RESULT}-1", "Approve"), (f"decision-{RESULT}", "Undo")],
)
def test_the_name_says_what_is_decided_so_that_it_is_decided_once(
    admin: Rest, namespace: str, name: str, what: str
) -> None:
    refused = create(admin, namespace, decision(name=name, decision=what))
    assert (refused.status, "must be named decision-RESULT" in refused.message) == (422, True)


def test_a_decision_can_not_change(admin: Rest, namespace: str) -> None:
    create(admin, namespace, decision()).expect()
    path = f"{DECISIONS.format(namespace)}/decision-{RESULT}"
    for change in ({"decision": "Reject"}, {"by": "joe"}, {"reason": "no"}):
        refused = admin.patch(path, {"spec": change})
        assert (refused.status, "a decision cannot change" in refused.message) == (422, True)


@pytest.mark.hostile
def test_nobody_decides_under_the_name_of_another(
    admin: Rest, namespace: str, approver: Path
) -> None:
    user, own = Rest(approver), f"system:serviceaccount:{namespace}:approver"
    with granted(admin, namespace, "decisions.yaml"):
        eventually(
            lambda: (
                create(
                    user,
                    namespace,
                    decision(by="somebody", result="f" * 16, name="decision-" + "f" * 16),
                ).status
                == 403
            ),
            "the policy is known",
        )
        refused = create(user, namespace, decision())
        assert (refused.status, f"spec.by must be {own}" in refused.message) == (403, True)
        assert create(user, namespace, decision(by=own)).ok
    user.close()


def test_the_policy_of_the_guide_requires_approval_of_everybody(
    admin: Rest, namespace: str
) -> None:
    text = (ROOT / "docs" / "publishing.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (block,) = (each for each in blocks if "ValidatingAdmissionPolicyBinding" in each)
    policy, binding = yaml.safe_load_all(block)
    policy["spec"]["matchConstraints"]["namespaceSelector"] = {
        "matchLabels": {"kubernetes.io/metadata.name": namespace}
    }
    before = f"{BACKFILLS.format(namespace)}/before"
    paths: list[str] = []

    def create(name: str, **publish: str) -> Answer:
        output = {**BACKFILL["spec"]["outputs"][0], "timestampColumn": "at", "publish": publish}
        manifest = changed(BACKFILL, {"metadata.name": name, "spec.outputs": [output]})
        return admin.create(BACKFILLS.format(namespace), manifest)

    assert create("before", mode="Append").ok
    for manifest, plural in (
        (policy, "validatingadmissionpolicies"),
        (binding, "validatingadmissionpolicybindings"),
    ):
        path = f"apis/admissionregistration.k8s.io/v1/{plural}/{manifest['metadata']['name']}"
        admin.apply(path, manifest).expect()
        paths.append(path)
    try:
        eventually(
            lambda: (
                create("trial", mode="Replace", approval="Automatic").status == 422
                or admin.delete(f"{BACKFILLS.format(namespace)}/trial") is None
            ),
            "the policy is known",
        )
        refused = create("unsaid", mode="Append")
        assert "set publish.approval to Manual" in refused.message
        assert create("asked", mode="Replace", approval="Manual").ok
        assert create("kept", mode="None").ok
        assert admin.patch(before, {"metadata": {"labels": {"team": "a"}}}).ok, "as finalizers are"
        refused = admin.patch(before, {"spec": {"suspend": True}})
        assert "set publish.approval to Manual" in refused.message
    finally:
        for path in reversed(paths):
            admin.delete(path)
