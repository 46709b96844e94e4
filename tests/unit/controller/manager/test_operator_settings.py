"""Options of the operator."""

import pytest

from backfill.controller.manager.options import parse


def test_without_any_option_everything_has_a_sensible_value() -> None:
    settings = parse([], {"POD_NAMESPACE": "backfill-system", "POD_NAME": "operator-7c9-x2x"})
    assert settings.namespaces == ()
    assert (settings.workers, settings.jobs, settings.job_memory, settings.job_pods) == (
        8,
        2,
        1536 * 2**20,
        10,
    )
    assert (settings.metrics_port, settings.health_port) == (8080, 8081)
    assert (settings.leader_election_namespace, settings.identity) == (
        "backfill-system",
        "operator-7c9-x2x",
    )


def test_an_option_may_be_given_as_a_variable_and_the_command_line_is_stronger() -> None:
    environment = {"BACKFILL_OPERATOR_NAMESPACES": "a, b", "BACKFILL_OPERATOR_JOB_MEMORY": "2Gi"}
    settings = parse(["--job-memory", "512Mi"], environment)
    assert (settings.namespaces, settings.job_memory) == (("a", "b"), 512 * 2**20)


def test_two_replicas_outside_of_pods_have_different_names() -> None:
    assert parse([], {}).identity != parse([], {}).identity


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0"],
        ["--job-memory", "much"],
        ["--log-format", "xml"],
        ["--qps", "x"],
        ["--unknown"],
        ["--workspaces-below", "s3://lake?"],
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


def test_a_wrong_variable_is_refused_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([], {"BACKFILL_OPERATOR_LOG_LEVEL": "loud"})
    assert "--log-level: loud is not one of" in capsys.readouterr().err
