"""Decides whether a command works on a cluster or on this machine."""

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from typer.core import TyperGroup

from backfill.api.errors import BadInput, Problem

RULE: Final = (
    "**kubectl backfill** always works on a cluster. **backfill** works on this"
    " machine; with --context or --kubeconfig it works on that cluster."
)
DEFAULT_STATE: Final = Path(".backfill")
"""State directory of backfills on this machine, relative to the working directory."""
_PLUGINS = {"kubectl-backfill", "kubectl_backfill"}
_CLUSTER_OPTIONS = ("--context", "--kubeconfig")
_LOCAL_OPTION = "--state-dir"


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


def is_file(target: str) -> bool:
    """Whether an argument is a file: names have neither dots nor slashes."""
    return "." in target or "/" in target


def _given(option: str, arguments: Sequence[str]) -> bool:
    before_end = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument == option or argument.startswith(f"{option}=") for argument in before_end)


class LocalCommands(TyperGroup):
    """The commands on this machine.

    For one that only works on a cluster, an error says how to run it there.
    """

    elsewhere = dict.fromkeys(
        ("logs", "render", "retry"),
        "only works on a cluster: run kubectl backfill {0}, or add --context",
    )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of that name."""
        if args[0] in self.elsewhere:
            ctx.fail(f'"{args[0]}" {self.elsewhere[args[0]].format(shlex.join(args))}')
        return super().resolve_command(ctx, args)


class ClusterCommands(LocalCommands):
    """The commands on a cluster.

    For one that only works on this machine, an error names the equivalent.
    """

    elsewhere = {
        "init": (
            "only works on this machine, where the main program is: save the resource (kubectl get"
            " sparkapplication NAME -o yaml > FILE), then run backfill init --application FILE"
        ),
        "run": "only works on this machine; on a cluster, use: kubectl apply -f FILE",
    }
