"""Options of the operator."""

import pytest

from backfill.controller.manager.options import parse

JOB_IMAGE = ["--job-image", "jobs:1"]


def test_without_any_option_everything_has_a_sensible_value() -> None:
    settings = parse(
        JOB_IMAGE, {"POD_NAMESPACE": "backfill-system", "POD_NAME": "operator-7c9-x2x"}
    )
    assert settings.namespaces == ()
    assert (settings.workers, settings.job_pods) == (8, 10)
    assert (settings.job_image, settings.job_image_pull_policy) == ("jobs:1", None)
    assert (settings.metrics_port, settings.health_port) == (8080, 8081)
    assert (settings.leader_election_namespace, settings.identity) == (
        "backfill-system",
        "operator-7c9-x2x",
    )


def test_an_option_may_be_given_as_a_variable_and_the_command_line_is_stronger() -> None:
    environment = {"BACKFILL_OPERATOR_NAMESPACES": "a, b", "BACKFILL_OPERATOR_JOB_PODS": "2"}
    settings = parse([*JOB_IMAGE, "--job-pods", "3"], environment)
    assert (settings.namespaces, settings.job_pods) == (("a", "b"), 3)


def test_two_replicas_outside_of_pods_have_different_names() -> None:
    assert parse(JOB_IMAGE, {}).identity != parse(JOB_IMAGE, {}).identity


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0"],
        ["--job-pods", "0"],
        ["--job-image", ""],
        ["--job-image-pull-policy", "Sometimes"],
        ["--log-format", "xml"],
        ["--qps", "x"],
        ["--unknown"],
        ["--default-workspace", "s3://lake?"],
        ["--default-workspace", "s3://lake/{name}"],
    ],
    ids=" ".join,
)
def test_what_can_not_be_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments, {})
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_workspace_may_have_a_part_for_each_namespace() -> None:
    settings = parse([*JOB_IMAGE, "--default-workspace", "s3://lake/{namespace}/work"], {})
    assert settings.default_workspace == "s3://lake/{namespace}/work"


def test_a_wrong_variable_is_refused_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([], {"BACKFILL_OPERATOR_LOG_LEVEL": "loud"})
    assert "--log-level: loud is not one of" in capsys.readouterr().err
