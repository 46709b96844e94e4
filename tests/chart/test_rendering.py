"""What the chart makes of its values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import backfill
from backfill.controller.manager.options import parse
from helm_chart import (
    CHART,
    VARIANTS,
    Manifest,
    Values,
    container,
    helm,
    one,
    operator_arguments,
    refusal,
    rendered,
    template,
)

ENVIRONMENT = {"POD_NAMESPACE": "backfill-operator", "POD_NAME": "backfill-operator-0"}


@pytest.fixture(params=list(VARIANTS), ids=[name.replace(" ", "-") for name in VARIANTS])
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return rendered(VARIANTS[request.param])


def pod_spec(values: Values) -> Manifest:
    return dict(one(rendered(values), "Deployment")["spec"]["template"]["spec"])


def test_the_chart_passes_strict_linting(tmp_path: Path) -> None:
    for number, values in enumerate(VARIANTS.values()):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(values))
        answer = helm("lint", "--strict", str(CHART), "--values", str(file))
        assert answer.returncode == 0, answer.stdout


def test_the_charts_versions_are_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (backfill.__version__, backfill.__version__)


def test_no_two_objects_have_the_same_name(manifests: list[Manifest]) -> None:
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in manifests
    ]
    assert len(set(names)) == len(names)


def test_every_object_says_what_it_belongs_to(manifests: list[Manifest]) -> None:
    for each in manifests:
        if each["kind"] != "CustomResourceDefinition":
            labels = each["metadata"]["labels"]
            assert labels["app.kubernetes.io/instance"] == "backfill-operator"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_names_are_no_longer_than_allowed(manifests: list[Manifest]) -> None:
    assert max(len(each["metadata"]["name"]) for each in manifests) <= 63


def test_whatever_selects_pods_selects_those_of_the_deployment(manifests: list[Manifest]) -> None:
    deployment = one(manifests, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [
        deployment["selector"]["matchLabels"],
        one(manifests, "Service")["spec"]["selector"],
    ]
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selectors += [
            each["spec"][field]["matchLabels"] for each in manifests if each["kind"] == kind
        ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_the_pod_of_the_test_is_not_selected_as_an_operator(manifests: list[Manifest]) -> None:
    selector, labels = (
        one(manifests, "Service")["spec"]["selector"],
        one(manifests, "Pod")["metadata"]["labels"],
    )
    assert not selector.items() <= labels.items()


def test_the_operator_takes_the_arguments_it_is_given(manifests: list[Manifest]) -> None:
    settings = parse(operator_arguments(manifests), ENVIRONMENT)
    assert settings.leader_election_namespace == "backfill-operator"
    assert settings.leader_election_id == one(manifests, "Deployment")["metadata"]["name"]


def test_by_default_the_operator_is_that_of_the_plain_manifests() -> None:
    file = CHART.parents[1] / "deploy" / "kustomize" / "operator.yaml"
    plain = one(list(yaml.safe_load_all(file.read_text())), "Deployment")["spec"]
    chart = one(rendered({}), "Deployment")["spec"]
    assert chart["replicas"] == plain["replicas"]
    pods = [each["template"]["spec"] for each in (chart, plain)]
    for field in ("securityContext", "volumes", "serviceAccountName"):
        assert pods[0][field] == pods[1][field], field
    operator, plain_operator = (pod["containers"][0] for pod in pods)
    for each in (operator, plain_operator):
        del each["image"]
    settings = [parse(each.pop("args"), ENVIRONMENT) for each in (operator, plain_operator)]
    assert replace(settings[0], job_image="", job_image_pull_policy=None) == replace(
        settings[1], job_image="", job_image_pull_policy=None
    )
    assert operator.pop("imagePullPolicy") == "IfNotPresent"
    assert operator == plain_operator


def test_the_plain_manifests_have_everything_that_the_chart_makes_by_default() -> None:
    deploy = CHART.parents[1] / "deploy"
    files = (
        *deploy.glob("kustomize/*.yaml"),
        *deploy.glob("rbac/*.yaml"),
        *(CHART.parents[1] / "crds").glob("*.yaml"),
    )
    plain = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    manifests = rendered({"scope": "Cluster"})
    of_tests = {"Pod"}
    assert {each["kind"] for each in manifests} - of_tests <= {each["kind"] for each in plain}
    for kind in ("Service", "PodDisruptionBudget"):
        ours, theirs = (
            one(found, kind)["spec"] | {"selector": None} for found in (manifests, plain)
        )
        assert ours == theirs
    chart, kustomize = (
        one(found, "NetworkPolicy")["spec"]["ingress"] for found in (manifests, plain)
    )
    assert chart[:1] == kustomize, "the other one lets helm's test ask for readiness"


def test_values_reach_the_operator() -> None:
    values = VARIANTS["one namespace"] | {
        "workspace": {"uri": "s3://lake/{namespace}/work"},
        "workers": 3,
        "jobs": {"concurrent": 7, "image": {"pullPolicy": "Always"}},
        "apiRequestsPerSecond": 12.5,
        "log": {"level": "debug", "format": "text"},
    }
    settings = parse(operator_arguments(rendered(values)), ENVIRONMENT)
    assert settings.namespaces == ("streaming",)
    assert settings.default_workspace == "s3://lake/{namespace}/work"
    assert (settings.workers, settings.job_pods) == (3, 7)
    assert settings.job_image_pull_policy == "Always"
    assert (settings.qps, settings.log_level, settings.log_format) == (12.5, "debug", "text")


def test_in_the_whole_cluster_no_namespaces_are_named() -> None:
    assert parse(operator_arguments(rendered(VARIANTS["everything"])), ENVIRONMENT).namespaces == ()


def test_limits_that_are_given_are_taken() -> None:
    limits = {"memory": "8Gi", "cpu": "2500m", "ephemeral-storage": "4Gi"}
    found = container(rendered({"resources": {"limits": limits}}))["resources"]["limits"]
    assert found == limits


def test_variables_that_are_given_are_set() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    assert proxy in container(rendered({"env": [proxy]}))["env"]


def test_the_operators_pod_has_nothing_of_its_own_but_a_token(manifests: list[Manifest]) -> None:
    spec = one(manifests, "Deployment")["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["volumes"]] == ["tmp", "token"]
    assert "envFrom" not in container(manifests)


def test_the_operators_token_lasts_an_hour_and_is_the_only_one(manifests: list[Manifest]) -> None:
    spec = one(manifests, "Deployment")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    sources = next(volume for volume in spec["volumes"] if volume["name"] == "token")["projected"][
        "sources"
    ]
    assert [each["serviceAccountToken"] for each in sources if "serviceAccountToken" in each] == [
        {"path": "token", "expirationSeconds": 3600}
    ]


def test_pods_have_a_user_namespace_of_their_own_where_that_is_wished() -> None:
    assert "hostUsers" not in pod_spec({}) and pod_spec({"hostUsers": False})["hostUsers"] is False


def test_the_addresses_where_clouds_hand_out_credentials_can_be_closed() -> None:
    policy = one(rendered({"networkPolicy": {"denyLinkLocal": True}}), "NetworkPolicy")["spec"]
    dns, rest = policy["egress"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and {
        each["port"] for each in dns["ports"]
    } == {53}
    assert {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]} in [
        each.get("ipBlock") for each in rest["to"]
    ]
    assert one(rendered({}), "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]


def test_the_boundary_is_drawn_around_the_account_that_the_operator_has() -> None:
    for values in (
        {},
        {"serviceAccount": {"create": False, "name": "given"}},
        {"fullnameOverride": "another"},
    ):
        manifests = rendered(values)
        account = one(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        name, *others = policies(manifests)
        (condition,) = one(manifests, "ValidatingAdmissionPolicy", name)["spec"]["matchConditions"]
        assert (
            condition["expression"]
            == f"request.userInfo.username == 'system:serviceaccount:backfill-operator:{account}'"
        )
        for each in (name, *others):
            binding = one(manifests, "ValidatingAdmissionPolicyBinding", each)["spec"]
            assert (binding["policyName"], binding["validationActions"]) == (each, ["Deny"])


@pytest.mark.parametrize(("enabled", "names"), [(True, "verified"), (False, "claimed")])
def test_the_operator_knows_whether_the_names_in_decisions_are_verified(
    *, enabled: bool, names: str
) -> None:
    manifests = rendered({"admissionPolicy": {"enabled": enabled}})
    assert f"--decision-names={names}" in operator_arguments(manifests)
    checked = [each for each in manifests if each["kind"] == "ValidatingAdmissionPolicy"]
    assert any("spec.by" in str(each["spec"]) for each in checked) is enabled


def policies(manifests: list[Manifest]) -> list[str]:
    """The names of the admission policies: that of the operator's account, that of decisions about
    results, and that of the reports of jobs.
    """
    return sorted(
        each["metadata"]["name"]
        for each in manifests
        if each["kind"] == "ValidatingAdmissionPolicy"
    )


def test_the_policies_are_those_of_the_plain_manifests() -> None:
    manifests = rendered({"serviceAccount": {"create": False, "name": "backfill-operator"}})
    for name, file in zip(
        policies(manifests),
        ("operator-boundary.yaml", "job-reports.yaml", "decisions.yaml"),
        strict=True,
    ):
        plain = next(yaml.safe_load_all((CHART.parents[1] / "deploy" / "rbac" / file).read_text()))
        assert one(manifests, "ValidatingAdmissionPolicy", name)["spec"] == plain["spec"]


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, f"localhost/backfill-{{}}:{backfill.__version__}"),
        ({"repository": "r.example.com:5000/b", "tag": "dev"}, "r.example.com:5000/b:dev"),
        (
            {"tag": "dev", "digest": f"sha256:{'a' * 64}"},
            f"localhost/backfill-{{}}@sha256:{'a' * 64}",
        ),
    ],
)
def test_images_are_named_as_they_are_given(image: Values, reference: str) -> None:
    manifests = rendered({"image": image, "jobs": {"image": image}})
    assert container(manifests)["image"] == reference.format("operator")
    settings = parse(operator_arguments(manifests), ENVIRONMENT)
    assert settings.job_image == reference.format("jobs")


def test_an_image_of_jobs_that_is_forgotten_is_said_before_anything_is_installed() -> None:
    assert "jobs.image.repository is not set" in refusal({"image": {"repository": "r.example/b"}})


def test_no_secret_is_made_and_no_value_takes_a_credential() -> None:
    for values in VARIANTS.values():
        assert not [each for each in rendered(values) if each["kind"] == "Secret"]


def test_definitions_are_those_of_the_project_and_stay_when_the_chart_goes() -> None:
    made = {
        each["metadata"]["name"]: each
        for each in rendered({})
        if each["kind"] == "CustomResourceDefinition"
    }
    own = [yaml.safe_load(path.read_text()) for path in (CHART.parents[1] / "crds").glob("*.yaml")]
    assert {name: each["spec"] for name, each in made.items()} == {
        each["metadata"]["name"]: each["spec"] for each in own
    }
    assert all(
        each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        for each in made.values()
    )


def test_definitions_can_be_left_to_others() -> None:
    kinds = {each["kind"] for each in rendered({"crds": {"install": False}})}
    assert "CustomResourceDefinition" not in kinds


def test_the_selector_of_the_deployment_never_changes() -> None:
    selectors = [
        one(rendered(values), "Deployment")["spec"]["selector"] for values in VARIANTS.values()
    ]
    assert all(selector == selectors[0] for selector in selectors)


def test_two_releases_share_no_names() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        made = rendered({}, release=release)
        return {
            (each["kind"], each["metadata"]["name"])
            for each in made
            if each["kind"] != "CustomResourceDefinition"
        }

    assert not names("one") & names("two")


def test_releases_of_one_name_in_two_namespaces_share_no_policy() -> None:
    first, second = (set(policies(rendered({}, namespace=each))) for each in ("one", "two"))
    assert not first & second


def without_what_is_empty(values: Values) -> Values:
    """The same values with null in the place of every empty one, by which helm forgets it."""

    def replaced(value: Any) -> Any:
        return (
            without_what_is_empty(value)
            if isinstance(value, dict) and value
            else value
            if value not in ("", [], {})
            else None
        )

    return {key: replaced(value) for key, value in values.items()}


def test_what_is_empty_may_be_taken_away() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text()) | {"scope": "Cluster"}
    for each in values["metrics"].values():
        each["enabled"] = True
    kinds = {each["kind"] for each in rendered(without_what_is_empty(values))}
    assert kinds > {"Deployment", "ServiceMonitor", "PrometheusRule", "ConfigMap"}


def test_a_name_that_yaml_would_take_for_something_else_stays_a_name() -> None:
    answer = template({"namespaces": [{"name": "123", "drivers": ["null", "true"]}]})
    roles = [
        each for each in yaml.safe_load_all(answer.stdout) if each and each["kind"] == "RoleBinding"
    ]
    driver = one(roles, "RoleBinding", "backfill-operator-driver")
    assert driver["metadata"]["namespace"] == "123"
    assert [subject["name"] for subject in driver["subjects"]] == ["null", "true"]
