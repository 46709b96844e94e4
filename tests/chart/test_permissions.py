"""The chart hands out what deploy/rbac does, and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helm_chart import CHART, NAMESPACE, VARIANTS, Manifest, Values, one, rendered

PLAIN = CHART.parents[1] / "deploy" / "rbac"
OPERATOR = [{"kind": "ServiceAccount", "name": "backfill-operator", "namespace": NAMESPACE}]
ONE_NAMESPACE: Values = {
    "namespaces": [
        {"name": "streaming", "drivers": ["spark"], "planInPods": True, "secrets": ["lake-catalog"]}
    ]
}
SAME_NAMES = {  # of the chart's roles in deploy/rbac
    "backfill-operator": "backfill-operator",
    "backfill-operator-leader": "backfill-operator-leader",
    "backfill-operator-driver": "backfill-driver",
    "backfill-operator-planning": "backfill-planning",
    "backfill-operator-secrets": "backfill-operator-secrets",
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


def test_without_a_word_of_secrets_or_planning_in_pods_nobody_has_a_permission_for_them() -> None:
    names = {name for _, name in roles(rendered({"namespaces": [{"name": "a", "drivers": ["x"]}]}))}
    assert not names & {"backfill-operator-secrets", "backfill-planning"}


def test_drivers_accounts_may_hand_in_results_where_jobs_run_in_pods() -> None:
    def planning(**jobs: Any) -> set[str]:
        namespaces = [{"name": name, "drivers": ["x"]} for name in ("a", "b")]
        silent = [{"name": "c"}, {"name": "d", "drivers": ["x"], "planInPods": False}]
        manifests = rendered({"namespaces": namespaces + silent, "jobs": jobs})
        return {
            place for place, _, name, _, _ in granted(manifests, "") if name == "backfill-planning"
        }

    assert planning() == {"a", "b"}
    assert planning(inOperatorFor=["a"]) == {"b"}
    assert planning(inOperatorFor=["*"]) == set()


def test_only_secrets_that_are_named_may_be_read() -> None:
    for values in VARIANTS.values():
        for rules in roles(rendered(values)).values():
            assert all(rule["resourceNames"] for rule in rules if "secrets" in rule["resources"])


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
