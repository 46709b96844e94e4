"""``kubectl backfill suspend``, ``resume``, ``retry`` and ``cancel``: what they change, and nothing
else.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from identities import ServiceAccountMaker
from kubectl_backfill import KubectlBackfill, started
from proxy import Request, Response, running_proxy
from rest import BACKFILLS, Manifest, Rest
from roles import rules_of
from samples import BACKFILL
from told_status import Told, running, tell

from backfill.api.conditions import ConditionType, Reason
from manifests import changed
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("crds")

SUCCEEDED: Told = (ConditionType.SUCCEEDED, "True", Reason.FINISHED, "")
FAILED: Told = (ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED, "5 attempts failed")
BACKING_OFF: Told = (ConditionType.RUNNING, "Unknown", Reason.BACKING_OFF, "next attempt in 300 s")
REMOVAL_FAILED: Told = (
    ConditionType.SUCCEEDED,
    "Unknown",
    Reason.REMOVAL_FAILED,
    "the catalog does not answer",
)
OUTPUTS = [
    {
        "name": "summary",
        "table": "lake.ops.summary",
        "timestampColumn": "at",
        "publish": {"mode": "Append", "approval": "Manual"},
    },
    {"name": "kept", "table": "lake.ops.kept"},
    {
        "name": "late",
        "table": "lake.ops.late",
        "timestampColumn": "at",
        "publish": {"mode": "Replace", "approval": "Manual"},
    },
]


class July:
    """A Backfill, and what is there of it."""

    def __init__(self, admin: Rest, namespace: str) -> None:
        self.admin, self.namespace = admin, namespace
        self.path = f"{BACKFILLS.format(namespace)}/july"
        manifest = changed(
            BACKFILL, {"spec.outputs": OUTPUTS, "metadata.finalizers": ["backfill.dev/cleanup"]}
        )
        self.before = admin.create(BACKFILLS.format(namespace), manifest).expect()

    @property
    def now(self) -> Manifest:
        return self.admin.get(self.path).expect()

    def change(self) -> dict[str, Any]:
        """What of the specification is not as it was."""
        old, new = self.before["spec"], self.now["spec"]
        return {
            key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
        }

    def tell(self, *told: Told) -> None:
        tell(self.admin, self.namespace, "july", running(*told))


@pytest.fixture
def july(admin: Rest, namespace: str) -> July:
    return July(admin, namespace)


@pytest.fixture
def editor(service_account: ServiceAccountMaker) -> Path:
    """Somebody with no more than the roles for people that are shipped."""
    view, edit = (
        rules_of("users.yaml", "ClusterRole", f"backfill-{role}") for role in ("view", "edit")
    )
    return service_account("editor", view + edit)


def test_suspend_and_resume_change_one_field_under_their_own_name(
    kubectl_backfill: KubectlBackfill, july: July, editor: Path
) -> None:
    july.tell()
    ended = kubectl_backfill("suspend", "july", kubeconfig=editor)
    assert ended.status == 0
    assert f"kubectl backfill resume july -n {july.namespace}" in ended.out
    assert july.change() == {"suspend": True}
    assert "backfill-cli" in {entry["manager"] for entry in july.now["metadata"]["managedFields"]}
    assert kubectl_backfill("resume", "july", kubeconfig=editor).status == 0
    assert july.change() == {}


def test_what_is_changed_is_printed_for_programs(
    kubectl_backfill: KubectlBackfill, july: July, editor: Path
) -> None:
    july.tell(FAILED)
    for command in ("suspend", "resume", "retry"):
        ended = kubectl_backfill(command, "july", "-o", "json", kubeconfig=editor)
        assert ended.status == 0
        assert ended.err.startswith("july: ")
        document = json.loads(ended.out)
        assert (document["name"], document["namespace"]) == ("july", july.namespace)
    july.admin.patch(july.path, {"metadata": {"finalizers": None}}).expect()
    ended = kubectl_backfill("cancel", "july", "-o", "json", kubeconfig=editor)
    assert json.loads(ended.out) == {"name": "july", "namespace": july.namespace, "removed": True}


def test_resume_tries_a_failed_one_again(
    kubectl_backfill: KubectlBackfill, july: July, editor: Path
) -> None:
    july.tell(FAILED)
    kubectl_backfill("resume", "july", kubeconfig=editor)
    assert set(july.change()) == {"retryNonce"}


def test_every_retry_is_a_new_one(
    kubectl_backfill: KubectlBackfill, july: July, editor: Path
) -> None:
    july.tell(FAILED)
    nonces = set()
    for _ in range(2):
        assert kubectl_backfill("retry", "july", kubeconfig=editor).status == 0
        nonces.add(july.now["spec"]["retryNonce"])
    assert len(nonces) == 2


def test_the_wait_for_the_next_attempt_can_be_ended(
    kubectl_backfill: KubectlBackfill, july: July, editor: Path
) -> None:
    july.tell(BACKING_OFF)
    assert kubectl_backfill("retry", "july", kubeconfig=editor).status == 0
    assert set(july.change()) == {"retryNonce"}


def test_what_has_not_failed_is_not_tried_again(
    kubectl_backfill: KubectlBackfill, july: July
) -> None:
    july.tell()
    ended = kubectl_backfill("retry", "july")
    assert (ended.status, july.change()) == (2, {})
    assert ended.err.startswith("error: july has not failed; see: kubectl backfill status july")


@pytest.mark.parametrize("command", ["suspend", "resume", "retry"])
def test_what_has_succeeded_is_left_alone(
    kubectl_backfill: KubectlBackfill, july: July, command: str
) -> None:
    july.tell(SUCCEEDED)
    ended = kubectl_backfill(command, "july")
    assert (ended.status, july.change()) == (0, {})
    assert "july has already succeeded" in ended.out


def test_another_backfill_of_the_name_is_not_changed(
    kubectl_backfill: KubectlBackfill, july: July, cluster_admin: Path, tmp_path: Path
) -> None:
    july.tell()

    def as_it_was_long_ago(request: Request, response: Response) -> Response | None:
        body = response.body.replace(
            july.now["metadata"]["uid"].encode(), b"11111111-1111-1111-1111-111111111111"
        )
        return Response(200, body) if request.verb == "get" else None

    with running_proxy(cluster_admin) as proxy:
        proxy.after = as_it_was_long_ago
        kubeconfig = proxy.kubeconfig(cluster_admin, tmp_path / "config")
        assert kubectl_backfill("suspend", "july", kubeconfig=kubeconfig).status == 2
        assert kubectl_backfill("cancel", "july", "--no-wait", kubeconfig=kubeconfig).status == 1
    assert july.change() == {}
    assert "deletionTimestamp" not in july.now["metadata"]


def test_who_may_only_look_may_not_suspend(
    kubectl_backfill: KubectlBackfill, july: July, service_account: ServiceAccountMaker
) -> None:
    viewer = service_account("viewer", rules_of("users.yaml", "ClusterRole", "backfill-view"))
    ended = kubectl_backfill("suspend", "july", kubeconfig=viewer)
    assert (ended.status, july.change()) == (1, {})
    assert 'verbs: ["patch"]' in ended.err


def test_cancel_waits_until_all_is_removed(july: July, cluster_admin: Path) -> None:
    july.tell()
    with started(cluster_admin, "cancel", "july", "-n", july.namespace) as cancelling:
        assert cancelling.stdout is not None
        assert "then removing what it created" in cancelling.stdout.readline()
        july.tell(REMOVAL_FAILED)
        assert "the catalog does not answer" in cancelling.stdout.readline()
        assert cancelling.poll() is None
        july.admin.patch(july.path, {"metadata": {"finalizers": None}}).expect()
        assert cancelling.wait(timeout=PATIENCE_SECONDS) == 0
        assert cancelling.stdout.readline() == "july: removed\n"


def test_cancel_need_not_wait(kubectl_backfill: KubectlBackfill, july: July, editor: Path) -> None:
    ended = kubectl_backfill("cancel", "july", "--no-wait", kubeconfig=editor)
    assert ended.status == 0
    assert "deletionTimestamp" in july.now["metadata"]
    assert kubectl_backfill("suspend", "july").err == "error: july is being removed\n"
