"""Jobs in pods while operators die, pods are evicted or deleted, and a quota refuses them: nothing
is doubled, nothing stuck.

The operators are in the test's process (see ``mortal_operator``), and so are the programs of the
pods. ``test_operator_chaos_process`` has both as processes of their own, with an API server that is
not to be relied on.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fake_kubelet import FakeKubelet
from identities import ServiceAccountMaker
from mortal_run import MortalRun, MortalRuns, essence
from rest import Manifest
from roles import rules_of

from backfill.kube.object_names import child_name

_LEAST_WRITES = 35
_EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: memory.",
}


@pytest.fixture
def runs_in_pods(mortal_runs: MortalRuns) -> MortalRuns:
    return replace(mortal_runs, in_pods=True)


@pytest.fixture
def kubelet(
    mortal_runs: MortalRuns, service_account: ServiceAccountMaker, tmp_path: Path
) -> FakeKubelet:
    pods = service_account("spark", rules_of("driver.yaml", "Role", "backfill-driver"))
    return FakeKubelet(mortal_runs.admin, mortal_runs.namespace, pods, tmp_path / "pod")


@pytest.fixture
def undisturbed(runs_in_pods: MortalRuns) -> MortalRun:
    """A run of which nothing is cut, so far without its Backfill."""
    return runs_in_pods.undisturbed()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once."""
    monkeypatch.setattr(
        "backfill.controller.decisions.job_retries.FIRST_RETRY", timedelta(milliseconds=10)
    )


def run_waiting(kubelet: FakeKubelet) -> None:
    for pod in kubelet.waiting():
        kubelet.run_here(pod)


def to_the_end(mortal: MortalRun) -> Manifest:
    """One attempt reads everything. The status before the deletion."""
    mortal.start(1)
    with mortal.spared():
        for step in range(1, mortal.run.assignment()["steps"] + 1):
            mortal.commit(1, step)
    mortal.finish(1)
    return mortal.succeed()


def retried(mortal: MortalRun) -> str:
    """Why planning is tried again, once it is."""
    mortal.work_until(
        lambda: mortal.run.condition("Planned")[1] == "TryingAgain", "planning is tried again"
    )
    return planned(mortal)


def planned(mortal: MortalRun) -> str:
    """What is said of planning."""
    conditions = mortal.run.status.get("conditions", [])
    return "".join(str(each["message"]) for each in conditions if each["type"] == "Planned")


@pytest.mark.parametrize("moment", ["after", "late"])
def test_an_operator_killed_at_any_write_has_every_job_done_once(
    moment: str, runs_in_pods: MortalRuns, kubelet: FakeKubelet
) -> None:
    """To die before a write is the same as to die after the one before: the operator, which does
    no job itself, does nothing in between.
    """
    life = runs_in_pods.life("in pods")
    for cut, mortal in runs_in_pods.each_cut(life, moment, _LEAST_WRITES):
        mortal.meanwhile = lambda: run_waiting(kubelet)
        mortal.run.create()
        life.assert_ends(essence(to_the_end(mortal)), cut)
        assert mortal.written.children(mortal.run.name) == [child_name(mortal.run.name, 1)]
        mortal.delete()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("strike", "said"),
    [
        (lambda kubelet, pod: kubelet.tell(pod, _EVICTED), "Evicted: The node was low on resource"),
        (lambda kubelet, pod: kubelet.delete(pod), "was deleted before the plan job was done"),
    ],
    ids=["evicted", "deleted"],
)
def test_the_pod_of_a_job_that_is_taken_away_is_made_again_and_it_is_told_why(
    strike: Callable[[FakeKubelet, Manifest], None],
    said: str,
    undisturbed: MortalRun,
    kubelet: FakeKubelet,
) -> None:
    undisturbed.run.create()
    undisturbed.work_until(kubelet.waiting, "the pod of the plan's job")
    (pod,) = kubelet.waiting()
    undisturbed.work_until(
        lambda: undisturbed.run.condition("Planned")[1] == "Planning", "the pod is known"
    )
    strike(kubelet, pod)
    assert said in retried(undisturbed)
    undisturbed.meanwhile = lambda: run_waiting(kubelet)
    to_the_end(undisturbed)
    undisturbed.delete()


@pytest.mark.usefixtures("impatient")
def test_a_quota_that_refuses_the_pod_is_told_and_planning_goes_on_when_there_is_room(
    undisturbed: MortalRun, kubelet: FakeKubelet
) -> None:
    admin, quotas = (
        undisturbed.admin,
        f"api/v1/namespaces/{undisturbed.run.namespace}/resourcequotas",
    )
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
    admin.create(quotas, quota).expect()
    allow(undisturbed, f"{quotas}/small", pods=0)
    undisturbed.run.create()
    undisturbed.work_until(
        lambda: "exceeded quota: small" in planned(undisturbed), "the quota is named"
    )
    assert "raise the ResourceQuota, or lower spec.planning.resources" in planned(undisturbed)
    assert undisturbed.run.condition("Planned") == ("Unknown", "JobPodBlocked"), (
        "a full quota is waited for, and no failure"
    )
    assert kubelet.pods() == []
    allow(undisturbed, f"{quotas}/small", pods=9)
    # else it is asked for again in a minute
    undisturbed.change({"failurePolicy": {"maxAttempts": 4}})
    undisturbed.meanwhile = lambda: run_waiting(kubelet)
    to_the_end(undisturbed)


def allow(mortal: MortalRun, quota: str, pods: int) -> None:
    """What the quota controller would find out; none runs here."""
    mortal.admin.patch(quota, {"spec": {"hard": {"pods": str(pods)}}}).expect()
    mortal.admin.patch(
        f"{quota}/status", {"status": {"hard": {"pods": str(pods)}, "used": {"pods": "0"}}}
    ).expect()
