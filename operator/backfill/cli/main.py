"""The ``backfill`` command, which is also ``kubectl backfill``."""

import sys
from collections.abc import Sequence
from pathlib import PurePath

import typer

from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.cli.command_lines import CLUSTER, THIS_MACHINE, application
from backfill.cli.exit_status import FAILED, refused

_PLUGINS = {"kubectl-backfill", "kubectl_backfill"}
_CLUSTER_OPTIONS = ("--context", "--kubeconfig")
_LOCAL_OPTION = "--state-dir"


def main() -> None:
    """Runs the command. Problems of the input are listed on standard error, with exit status 2;
    1 if they are only that a server is unavailable for a moment.
    """
    program, arguments = sys.argv[0], sys.argv[1:]
    try:
        place = CLUSTER if on_cluster(program, arguments) else THIS_MACHINE
        application(place)(prog_name="kubectl backfill" if is_plugin(program) else "backfill")
    except BadInput as error:
        sys.exit(refused(error))
    except (BackfillError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(FAILED)


def on_cluster(program: str, arguments: Sequence[str]) -> bool:
    """Whether a command works on a cluster.

    ``program`` is ``argv[0]``: kubectl starts its plugins under their own names.

    Raises:
        BadInput: options for a cluster and for this machine are combined.
    """
    plugin = is_plugin(program)
    option = next((option for option in _CLUSTER_OPTIONS if _given(option, arguments)), None)
    if _given(_LOCAL_OPTION, arguments) and (plugin or option):
        speaks = "kubectl backfill" if plugin else f"backfill {option}"
        raise BadInput(
            Problem(
                _LOCAL_OPTION,
                f"is for backfills on this machine, but {speaks} selects a cluster",
                "remove one of the two",
            )
        )
    return plugin or option is not None


def is_plugin(program: str) -> bool:
    """Whether kubectl started this process as a plugin."""
    return PurePath(program).stem in _PLUGINS


def _given(option: str, arguments: Sequence[str]) -> bool:
    before_end = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument == option or argument.startswith(f"{option}=") for argument in before_end)
