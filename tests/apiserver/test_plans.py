"""What stays of a plan in the cluster."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from made_plans import PRODUCTION, header
from proxy import refusal, running_proxy
from rest import BACKFILLS, SPARK_APPLICATIONS, Manifest, Rest
from samples import BACKFILL

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput, PlanCorrupt
from backfill.api.manifests.problems import read_json
from backfill.api.pods import Overrides
from backfill.controller.cluster.plan_config_map import (
    KubernetesPlans,
    application_of,
    kept_application,
)
from backfill.kube.client import Cluster
from backfill.kube.request_errors import Unreachable
from backfill.planning.plan import PlanHeader


@pytest.fixture
def backfill(admin: Rest, crds: None, namespace: str) -> Backfill:
    admin.create(SPARK_APPLICATIONS.format(namespace), PRODUCTION).expect()
    return stored(admin, namespace)


def stored(admin: Rest, namespace: str) -> Backfill:
    return read_json(Backfill, admin.create(BACKFILLS.format(namespace), BACKFILL).expect())


def planned(backfill: Backfill, plan: PlanHeader, application: str = "") -> Backfill:
    """With the digests that are recorded with a plan."""
    digests = {"plan_digest": plan.digest, "application_digest": application}
    fields = {"plan_id": plan.plan_id, "watermark": "2021-07-11T00:00:00Z", **digests}
    status = backfill.status.model_copy(update=fields)
    return backfill.model_copy(update={"status": status})


def config_map(namespace: str) -> str:
    return f"api/v1/namespaces/{namespace}/configmaps/july-plan"


def test_a_header_is_found_by_the_next_operator(cluster: Cluster, backfill: Backfill) -> None:
    plan = header()
    KubernetesPlans(cluster).keep(backfill, plan)
    assert KubernetesPlans(cluster).header(planned(backfill, plan)) == plan


def test_before_a_plan_is_named_there_is_none(cluster: Cluster, backfill: Backfill) -> None:
    assert KubernetesPlans(cluster).header(backfill) is None


def test_a_header_is_read_once(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    plan, plans = header(), KubernetesPlans(cluster)
    KubernetesPlans(cluster).keep(backfill, plan)
    assert plans.header(planned(backfill, plan)) == plan
    admin.delete(config_map(namespace)).expect()
    assert plans.header(planned(backfill, plan)) is plans.header(planned(backfill, plan))


def test_the_config_map_goes_with_its_backfill_and_people_can_read_it(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    KubernetesPlans(cluster).keep(backfill, header())
    kept = admin.get(config_map(namespace)).expect()
    assert kept["metadata"]["ownerReferences"][0]["uid"] == backfill.metadata.uid
    assert b'"stepStartsUs":[' in gzip.decompress(
        base64.b64decode(kept["binaryData"]["plan.json.gz"])
    )


def test_a_new_plan_takes_the_place_of_the_old_one(cluster: Cluster, backfill: Backfill) -> None:
    old, new = header(3), header(4)
    KubernetesPlans(cluster).keep(backfill, old)
    KubernetesPlans(cluster).keep(backfill, new)
    assert KubernetesPlans(cluster).header(planned(backfill, new)) == new
    with pytest.raises(PlanCorrupt, match="differs from the one that was planned"):
        KubernetesPlans(cluster).header(planned(backfill, old))


def test_what_an_earlier_backfill_of_the_name_left_is_taken_over(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    """It is about to be collected with its owner: now it has another one only."""
    KubernetesPlans(cluster).keep(backfill, header(3))
    admin.delete(f"{BACKFILLS.format(namespace)}/july").expect()
    again, plan = stored(admin, namespace), header(4)
    KubernetesPlans(cluster).keep(again, plan)
    owners = admin.get(config_map(namespace)).expect()["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == [again.metadata.uid]
    assert KubernetesPlans(cluster).header(planned(again, plan)) == plan


def test_a_config_map_of_somebody_else_that_has_the_name_stays_as_it_is(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    theirs = {"metadata": {"name": "july-plan"}, "data": {"notes": "ours"}}
    admin.create(f"api/v1/namespaces/{namespace}/configmaps", theirs).expect()
    with pytest.raises(
        BadInput, match=rf"ConfigMap {namespace}/july-plan already exists.*delete it"
    ):
        KubernetesPlans(cluster).keep(backfill, header())
    there = admin.get(config_map(namespace)).expect()
    assert (there["data"], there["metadata"].get("ownerReferences")) == (theirs["data"], None)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            {"binaryData": {"plan.json.gz": base64.b64encode(b"not compressed").decode()}},
            "cannot be read",
        ),
        (
            {"binaryData": {"plan.json.gz": base64.b64encode(gzip.compress(b"{}")).decode()}},
            "cannot be read",
        ),
        ({"binaryData": {"plan.json.gz": None}}, "cannot be read"),
        ({"metadata": {"ownerReferences": None}}, "belongs to another Backfill"),
    ],
)
def test_a_header_that_is_damaged_or_somebody_elses_is_told_so(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str, damage: Manifest, told: str
) -> None:
    plan = header()
    KubernetesPlans(cluster).keep(backfill, plan)
    admin.patch(config_map(namespace), damage).expect()
    with pytest.raises(PlanCorrupt, match=told):
        KubernetesPlans(cluster).header(planned(backfill, plan))


@pytest.mark.hostile
def test_a_config_map_that_a_tenant_has_filled_costs_nothing(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    plan = header()
    seen = planned(backfill, plan, KubernetesPlans(cluster).keep(backfill, plan))
    assert KubernetesPlans(cluster).header(seen) == plan
    forged = plan.model_copy(update={"step_starts_us": tuple(reversed(plan.step_starts_us))})
    fillings = [b"0" * (60 * 2**20), b"[" + b"[]," * 5_000_000 + b"0]", b'{"spec":' * 100_000]
    fillings.append(forged.to_json())
    for filling in fillings:
        content = base64.b64encode(gzip.compress(filling)).decode()
        admin.patch(
            config_map(namespace),
            {"binaryData": {"plan.json.gz": content, "application.json.gz": content}},
        ).expect()
        with pytest.raises(
            PlanCorrupt, match=r"cannot be read|differs from the one that was planned"
        ):
            KubernetesPlans(cluster).header(seen)
        assert kept_application(cluster, seen) is None


@pytest.mark.hostile
def test_who_may_edit_config_maps_does_not_choose_what_the_next_attempt_runs(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    plan = header()
    seen = planned(backfill, plan, KubernetesPlans(cluster).keep(backfill, plan))
    assert kept_application(cluster, seen) is not None
    theirs = PRODUCTION | {"spec": PRODUCTION["spec"] | {"image": "evil/image:1"}}
    content = base64.b64encode(gzip.compress(json.dumps(theirs).encode())).decode()
    admin.patch(config_map(namespace), {"binaryData": {"application.json.gz": content}}).expect()
    assert kept_application(cluster, seen) is None
    made_from: Any = application_of(cluster, seen)
    assert made_from["spec"]["image"] == "registry/rmi:1", "production, as it is"


def test_a_header_that_can_not_be_read_now_is_not_lost(
    backfill: Backfill, cluster_admin: Path, tmp_path: Path
) -> None:
    with running_proxy(cluster_admin) as proxy:
        cluster = Cluster.from_kubeconfig(proxy.kubeconfig(cluster_admin, tmp_path / "config"))
        proxy.before = lambda request: refusal(503, "ServiceUnavailable")
        with pytest.raises(Unreachable):
            KubernetesPlans(cluster).header(planned(backfill, header()))
        cluster.close()


def test_twenty_thousand_steps_of_four_sources_fit(cluster: Cluster, backfill: Backfill) -> None:
    plan = header(20_000, 4)
    KubernetesPlans(cluster).keep(backfill, plan)
    assert KubernetesPlans(cluster).header(planned(backfill, plan)) == plan


def test_a_header_that_is_too_large_says_what_to_do(cluster: Cluster, backfill: Backfill) -> None:
    with pytest.raises(BadInput, match=r"40,000 steps of 4 sources.*raise maxMisalignment"):
        KubernetesPlans(cluster).keep(backfill, header(40_000, 4))


def test_production_is_kept_as_it_was_when_the_plan_was_made(
    cluster: Cluster, backfill: Backfill, admin: Rest, namespace: str
) -> None:
    plan = header()
    seen = planned(backfill, plan, KubernetesPlans(cluster).keep(backfill, plan))
    admin.patch(
        f"{SPARK_APPLICATIONS.format(namespace)}/rmi", {"spec": {"image": "registry/rmi:2"}}
    ).expect()
    kept: Any = kept_application(cluster, seen)
    assert kept["spec"]["image"] == "registry/rmi:1"
    assert kept["metadata"]["labels"] == {"team": "stream"}
    assert "managedFields" not in kept["metadata"]


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ({"retry_nonce": "again"}, False),
        ({"overrides": Overrides(spark_conf={"spark.ui.enabled": "false"})}, False),
        ({"suspend": True}, True),
    ],
)
def test_who_wants_attempts_to_be_made_differently_gets_production_as_it_is_now(
    cluster: Cluster, backfill: Backfill, change: dict[str, Any], is_kept: bool
) -> None:
    seen = planned(backfill, header(), KubernetesPlans(cluster).keep(backfill, header()))
    changed = seen.model_copy(update={"spec": backfill.spec.model_copy(update=change)})
    assert (kept_application(cluster, changed) is not None) is is_kept


def test_nothing_is_kept_before_there_is_a_plan(cluster: Cluster, backfill: Backfill) -> None:
    assert kept_application(cluster, backfill) is None


def test_without_production_there_is_no_plan_to_keep(
    cluster: Cluster, admin: Rest, crds: None, namespace: str
) -> None:
    with pytest.raises(BackfillError, match='there is no SparkApplication "rmi"') as raised:
        KubernetesPlans(cluster).keep(stored(admin, namespace), header())
    assert not isinstance(raised.value, BadInput), "the next turn waits for it"
