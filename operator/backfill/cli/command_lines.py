"""Makes the application of the declared commands for a place: with its options, without what only
has an effect in the other place.
"""

import inspect
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from backfill.api.errors import BadInput
from backfill.cli.commands import (
    DEFAULT_STATE,
    Commands,
    Group,
    OnACluster,
    Only,
    OnThisMachine,
    init,
    version,
)
from backfill.cli.exit_status import refused

_RULE: Final = (
    "**kubectl backfill** always works on a cluster. **backfill** works on this"
    " machine; with --context or --kubeconfig it works on that cluster."
)


class Output(StrEnum):
    """What a command writes to standard output."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line on this machine, or on a cluster."""

    help: str
    examples: tuple[str, ...]
    declared: tuple[type, ...]
    """Where its commands are declared, in the order of the help."""
    only: Only
    """Mark of the options that only have an effect here."""
    implementation: Callable[..., Commands]
    """Its keyword parameters are the options of every command."""
    elsewhere: Mapping[str, str]
    """Errors of the commands of the other place, which say how to do the same."""

    @property
    def options(self) -> list[Parameter]:
        """The options of every command."""
        parameters = inspect.signature(self.implementation).parameters.values()
        return [each for each in parameters if each.kind is Parameter.KEYWORD_ONLY]

    def commands(self, ctx: typer.Context, given: dict[str, Any], as_json: bool) -> Commands:
        """The commands, with the options given after a command or else before it."""
        before = ctx.find_root().params
        names = [option.name for option in self.options]
        options = {name: given.get(name) or before.get(name) for name in names}
        return self.implementation(ctx, as_json, **options)


def _on_this_machine(
    _: typer.Context,
    as_json: bool,
    *,
    state_dir: Annotated[
        Path,
        typer.Option(
            "--state-dir",
            help=(
                "State directory of the Backfills on this machine. The plan of another one uses"
                " them to estimate its duration and cost."
            ),
        ),
    ] = DEFAULT_STATE,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help=(
                "Namespace. Default: the file's namespace, or else `default`; for a list, all"
                " namespaces."
            ),
        ),
    ] = None,
) -> Commands:
    from backfill.cli.local.commands import LocalCommands

    return LocalCommands(as_json, state_dir or DEFAULT_STATE, namespace)


def _on_a_cluster(
    ctx: typer.Context,
    as_json: bool,
    *,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace. Default: the file's namespace, or else the context's.",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="Kubeconfig file. Default: $KUBECONFIG, or else ~/.kube/config.",
        ),
    ] = None,
) -> Commands:
    from backfill.cli.cluster.commands import ClusterCommands

    program = ctx.find_root().info_name or "kubectl backfill"
    return ClusterCommands(as_json, program, namespace, context, kubeconfig)


THIS_MACHINE: Final = CommandLine(
    help=(
        "Run a streaming application again on its history: in order, aligned, exactly"
        f" once.\n\n{_RULE}"
    ),
    examples=(
        "backfill check app.py",
        "backfill run app.yaml --window 2026-11-20/2026-11-21 --publish Replace",
        "backfill status NAME",
        "backfill logs NAME --follow",
        'backfill approve NAME --reason "compared with the report"',
    ),
    declared=(OnThisMachine, Commands),
    only=Only.ON_THIS_MACHINE,
    implementation=_on_this_machine,
    elsewhere={"render": "only works on a cluster: run kubectl backfill {0}, or add --context"},
)
CLUSTER: Final = CommandLine(
    help=(
        f"Inspect and control the Backfills of a cluster.\n\n{_RULE}\n\n"
        "Exit status: 0 succeeded, 1 failed, 2 bad input, 3 waiting for a person. This is the"
        " result of the command itself or, with --watch, of the Backfill."
    ),
    examples=(
        "kubectl backfill plan backfill.yaml && kubectl apply -f backfill.yaml",
        "kubectl backfill status NAME --watch",
        "kubectl backfill logs NAME --follow",
        'kubectl backfill approve NAME --reason "compared with the report"',
    ),
    declared=(Commands, OnACluster),
    only=Only.ON_A_CLUSTER,
    implementation=_on_a_cluster,
    elsewhere={
        "check": "only works on this machine, where the main program is: run backfill check",
        "init": (
            "only works on this machine, where the main program is: save the resource (kubectl get"
            " sparkapplication NAME -o yaml > FILE), then run backfill init --application FILE"
        ),
        "run": "only works on this machine; on a cluster, use: kubectl apply -f FILE",
    },
)


class _Group(TyperGroup):
    """The commands of a place. For one of the other place, an error says how to do the same."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of that name."""
        if (why := ctx.obj.elsewhere.get(args[0])) is not None:
            ctx.fail(f'"{args[0]}" {why.format(shlex.join(args))}')
        return super().resolve_command(ctx, args)


def application(place: CommandLine) -> typer.Typer:
    """The commands of a place."""
    app = typer.Typer(
        cls=_Group,
        name="backfill",
        help=place.help,
        epilog="\n\n".join(["Examples:", *place.examples]),
        context_settings={"obj": place},
        rich_markup_mode="markdown",
        no_args_is_help=True,
        add_completion=place is THIS_MACHINE,  # kubectl has its own: cli/completion.py
        pretty_exceptions_enable=False,
    )
    if place is CLUSTER:  # kubectl's users give options before a command as well
        app.callback()(_with_parameters(lambda **_: None, place.options))
    if place is THIS_MACHINE:
        app.command(rich_help_panel=Group.PREPARE)(init)
    for method in (each for declared in place.declared for each in vars(declared).values()):
        if "json" in getattr(method, "__dict__", {}):
            group = method.__dict__["group"]
            app.command(method.__name__.rstrip("_"), rich_help_panel=group)(_command(place, method))
    app.command(rich_help_panel=Group.OTHER)(version)
    return app


def _command(place: CommandLine, method: Callable[..., int]) -> Callable[..., None]:
    """The method as a function for Typer, which makes its options from the signature."""

    _, *declared = inspect.signature(method).parameters.values()
    own = [each for each in declared if _has_effect(each, place)]

    def run(ctx: typer.Context, **given: Any) -> None:
        as_json = given.get("as_json") == Output.JSON
        commands = place.commands(ctx, given, as_json)
        arguments = {each.name: given[each.name] for each in own}
        try:
            status = getattr(commands, method.__name__)(**arguments)
        except BadInput as error:
            from backfill.cli.positions import positions_in

            status = refused(error, positions_in(_manifest_of(arguments)))
        raise typer.Exit(status)

    ctx = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__doc__ = method.__doc__
    return _with_parameters(run, [ctx, *own, *_output(method), *place.options])


def _manifest_of(arguments: Mapping[str, Any]) -> Path | None:
    """The manifest file that a command was given, if any."""
    given = arguments.get("file") or arguments.get("target")
    return Path(given) if given and Path(given).is_file() else None


def _has_effect(parameter: Parameter, place: CommandLine) -> bool:
    marks = getattr(parameter.annotation, "__metadata__", ())
    return all(mark is place.only for mark in marks if isinstance(mark, Only))


def _output(method: Callable[..., int]) -> list[Parameter]:
    """The option ``--output`` of a command that prints JSON."""
    if not (printed := method.__dict__["json"]):
        return []
    option = typer.Option("--output", "-o", help=f"Output format. `json` prints {printed}.")
    annotation = Annotated[Output, option]
    kind = Parameter.KEYWORD_ONLY
    return [Parameter("as_json", kind, default=Output.TEXT, annotation=annotation)]


def _with_parameters(
    function: Callable[..., None], parameters: list[Parameter]
) -> Callable[..., None]:
    """The function, with a signature for Typer to read."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function
