"""Which world a command is about: a cluster, or this machine."""

import sys

import pytest

from backfill.api.errors import BadInput
from backfill.cli.main import main, on_cluster
from local_runs import Command


@pytest.mark.parametrize(
    "program", ["/home/me/.krew/bin/kubectl-backfill", "kubectl_backfill", r"kubectl-backfill.exe"]
)
def test_kubectl_speaks_to_a_cluster_always(program: str) -> None:
    assert on_cluster(program, ["status", "july"])


@pytest.mark.parametrize("option", ["--context=prod", "--kubeconfig=config"])
def test_a_context_or_a_kubeconfig_names_a_cluster(option: str) -> None:
    assert on_cluster("backfill", ["status", "july", option])


@pytest.mark.parametrize(
    "arguments",
    [["status", "july"], ["status", "july", "-n", "streaming"], ["status", "--", "--context"]],
)
def test_anything_else_is_of_this_machine(arguments: list[str]) -> None:
    assert not on_cluster("/usr/bin/backfill", arguments)


@pytest.mark.parametrize(
    ("program", "option", "speaks"),
    [
        ("kubectl-backfill", "--state-dir=x", "kubectl backfill"),
        ("backfill", "--context=prod", "backfill --context"),
    ],
)
def test_both_at_once_are_refused(program: str, option: str, speaks: str) -> None:
    with pytest.raises(
        BadInput,
        match=f"^--state-dir: is for backfills on this machine, but {speaks} selects a cluster",
    ):
        on_cluster(program, ["status", "july", option, "--state-dir", "x"])


def test_a_command_of_a_cluster_says_where_it_is_to_be_had(backfill: Command) -> None:
    ended = backfill("render", "july")
    assert ended.status == 2
    assert "run kubectl backfill render july" in ended.err


def test_run_on_a_cluster_is_kubectl_apply(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-backfill", "run", "july.yaml"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "kubectl apply -f FILE" in capsys.readouterr().err


def test_a_list_of_this_machine(backfill: Command) -> None:
    ended = backfill("list")
    assert (ended.status, ended.out) == (0, "no backfills in .backfill\n")


@pytest.mark.parametrize("arguments", [["status", "--watch"], ["list", "-A"], ["cancel", "--wait"]])
def test_options_without_an_effect_on_this_machine_are_not_offered(
    backfill: Command, arguments: list[str]
) -> None:
    ended = backfill(*arguments)
    assert ended.status == 2
    assert "No such option" in ended.err
