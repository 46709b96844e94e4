"""The chart hands out what deploy/rbac does, and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helm_chart import CHART, NAMESPACE, VARIANTS, Manifest, Values, one, rendered

PLAIN = CHART.parents[1] / "deploy" / "rbac"
OPERATOR = [{"kind": "ServiceAccount", "name": "backfill-operator", "namespace": NAMESPACE}]
ONE_NAMESPACE: Values = {"namespaces": [{"name": "streaming", "drivers": ["spark"]}]}
SAME_NAMES = {  # of the chart's roles in deploy/rbac
    "backfill-operator": "backfill-operator",
    "backfill-operator-leader": "backfill-operator-leader",
    "backfill-operator-driver": "backfill-driver",
    "backfill-operator-approve": "backfill-approve",
    "backfill-operator-edit": "backfill-edit",
    "backfill-operator-view": "backfill-view",
}


def plain(*leaving_out: str) -> list[Manifest]:
    files = [path for path in sorted(PLAIN.glob("*.yaml")) if path.name not in leaving_out]
    return [manifest for path in files for manifest in yaml.safe_load_all(path.read_text())]


def roles(manifests: list[Manifest]) -> dict[tuple[str, str], Any]:
    """The rules of every role, by its kind and its name in deploy/rbac."""
    found = [each for each in manifests if each["kind"] in ("Role", "ClusterRole")]
    return {
        (each["kind"], SAME_NAMES.get(each["metadata"]["name"], each["metadata"]["name"])): each[
            "rules"
        ]
        for each in found
    }


def granted(manifests: list[Manifest], here: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Where, and to whom, every role is given. ``here`` is the namespace of what names none."""
    for each in manifests:
        if each["kind"].endswith("RoleBinding") or each["kind"] == "ClusterRoleBinding":
            place = (
                ""
                if each["kind"] == "ClusterRoleBinding"
                else each["metadata"].get("namespace", here)
            )
            reference = each["roleRef"]
            name = SAME_NAMES.get(reference["name"], reference["name"])
            for subject in each["subjects"]:
                yield (
                    place,
                    reference["kind"],
                    name,
                    subject.get("namespace", here),
                    subject["name"],
                )


@pytest.mark.parametrize(
    ("scope", "other"),
    [("Cluster", "operator-namespaced.yaml"), ("Namespaces", "operator-cluster.yaml")],
)
def test_chart_and_plain_manifests_give_the_same_permissions_to_the_same(
    scope: str, other: str
) -> None:
    chart, manifests = rendered({**ONE_NAMESPACE, "scope": scope}), plain(other)
    assert roles(chart) == roles(manifests)
    assert set(granted(chart, "streaming")) == set(granted(manifests, "streaming"))


def test_people_have_the_same_permissions_through_the_same_roles() -> None:
    to = "rbac.authorization.k8s.io/aggregate-to-"

    def aggregated(manifests: list[Manifest]) -> dict[str, set[str]]:
        found = [
            each
            for each in manifests
            if each["kind"] == "ClusterRole" and "users" in str(each["metadata"]["labels"])
        ]
        return {
            SAME_NAMES.get(each["metadata"]["name"], each["metadata"]["name"]): {
                key for key in each["metadata"]["labels"] if key.startswith(to)
            }
            for each in found
        }

    assert aggregated(rendered({})) == aggregated(plain()) != {}


def test_in_chosen_namespaces_nothing_of_the_operator_is_cluster_wide() -> None:
    manifests = rendered(VARIANTS["two namespaces"] | {"rbac": {"users": False}})
    assert not [each for each in manifests if each["kind"].startswith("ClusterRole")]
    for namespace in ("streaming", "ads"):
        binding = one(manifests, "RoleBinding", "backfill-operator", namespace)
        assert binding["subjects"] == OPERATOR
        assert one(manifests, "Role", "backfill-operator", namespace)


def test_drivers_are_bound_where_they_are_named_and_nowhere_else() -> None:
    manifests = rendered({"namespaces": [{"name": "a", "drivers": ["x", "y"]}, {"name": "b"}]})
    assert [each for each in granted(manifests, "") if each[2] == "backfill-driver"] == [
        ("a", "Role", "backfill-driver", "a", "x"),
        ("a", "Role", "backfill-driver", "a", "y"),
    ]


def test_drivers_accounts_may_hand_in_results_of_jobs() -> None:
    rules = one(rendered(ONE_NAMESPACE), "Role", "backfill-operator-driver")["rules"]
    patched = {each for rule in rules if rule["verbs"] == ["patch"] for each in rule["resources"]}
    assert patched == {"splitassignments/status", "jobreports/status"}


def test_nobody_may_read_secrets() -> None:
    for values in VARIANTS.values():
        for rules in roles(rendered(values)).values():
            assert "secrets" not in {each for rule in rules for each in rule["resources"]}


def test_permissions_can_be_left_to_others() -> None:
    manifests = rendered(ONE_NAMESPACE | {"rbac": {"create": False}})
    assert roles(manifests) == {} and list(granted(manifests, "")) == []


def test_the_lease_the_operator_may_change_is_the_one_it_is_told_of() -> None:
    manifests = rendered({"fullnameOverride": "another"})
    rules = one(manifests, "Role", "another-leader")["rules"]
    assert [rule["resourceNames"] for rule in rules if "update" in rule["verbs"]] == [["another"]]
    assert (
        "--leader-election-id=another"
        in one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    )
