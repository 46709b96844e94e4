"""Whether a command is about Backfills of a cluster or of this machine."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from typer.core import TyperGroup

from backfill.api.errors import BadInput, Problem

RULE: Final = (
    "[bold]kubectl backfill[/bold] speaks to a cluster, always. [bold]backfill[/bold] works on this machine, "
    "unless --context or --kubeconfig is given: then it speaks to that cluster."
)
DEFAULT_STATE: Final = Path(".backfill")
"""Where backfills of this machine are kept, from the working directory."""
_PLUGINS = {"kubectl-backfill", "kubectl_backfill"}
_CLUSTER_OPTIONS = ("--context", "--kubeconfig")
_LOCAL_OPTION = "--state-dir"


def on_cluster(program: str, arguments: Sequence[str]) -> bool:
    """The rule. ``program`` is how this process was called; kubectl calls its plugins by their own names.

    Raises:
        BadInput: the options are of both worlds.
    """
    plugin = is_plugin(program)
    option = next((option for option in _CLUSTER_OPTIONS if _given(option, arguments)), None)
    if _given(_LOCAL_OPTION, arguments) and (plugin or option):
        speaks = "kubectl backfill" if plugin else f"backfill {option}"
        raise BadInput(
            Problem(_LOCAL_OPTION, f"is for backfills of this machine, and {speaks} speaks to a cluster", "leave one out")
        )
    return plugin or option is not None


def is_plugin(program: str) -> bool:
    """Whether kubectl called this process."""
    return PurePath(program).stem in _PLUGINS


def is_file(target: str) -> bool:
    """Whether a file is meant: names have neither dots nor slashes."""
    return "." in target or "/" in target


def _given(option: str, arguments: Sequence[str]) -> bool:
    before_end = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument == option or argument.startswith(f"{option}=") for argument in before_end)


class LocalCommands(TyperGroup):
    """Says where a command is to be had that works on a cluster only."""

    elsewhere = dict.fromkeys(
        ("logs", "render", "retry"), 'speaks to a cluster: run it as "kubectl backfill {0}", or name a --context'
    )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a name."""
        if args[0] in self.elsewhere:
            ctx.fail(f'"{args[0]}" {self.elsewhere[args[0]].format(args[0])}')
        return super().resolve_command(ctx, args)


class ClusterCommands(LocalCommands):
    """Says what takes the place of a command that works on this machine only."""

    elsewhere = {"run": "works on this machine; on a cluster: kubectl apply -f FILE"}
