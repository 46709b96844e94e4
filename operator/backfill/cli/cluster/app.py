"""The commands of ``kubectl backfill``."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from backfill import __version__
from backfill.cli.choice import RULE, ClusterCommands
from backfill.cli.cluster.place import Place, is_file, name_of
from backfill.controller.kubernetes.client import Cluster


class Output(StrEnum):
    """What standard output is for."""

    TEXT = "text"
    JSON = "json"


class Format(StrEnum):
    """How manifests are written."""

    YAML = "yaml"
    JSON = "json"


Name = Annotated[str, typer.Argument(metavar="NAME", help="A Backfill's name, or the file it was applied from.")]
NameOrFile = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A Backfill's name, or a manifest file.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace; default: the file's, or the context's.")
]
ContextName = Annotated[str | None, typer.Option("--context", metavar="NAME", help="The kubeconfig's context to use.")]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: KUBECONFIG, or ~/.kube/config.")]
PlanOption = Annotated[Output, typer.Option("--output", "-o", help="json: the same in numbers, as one document.")]
FormatOption = Annotated[Format, typer.Option("--output", "-o", help="json: all of it in one List.")]
ChangeOption = Annotated[
    Output, typer.Option("--output", "-o", help="json: what is left as one document; words go to standard error.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="json: one document on a line for each Backfill.")]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Follow it until nothing more happens. The exit status is the Backfill's.")
]
WatchAll = Annotated[bool, typer.Option("--watch", "-w", help="Keep it up to date, until Ctrl-C.")]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]

app = typer.Typer(
    cls=ClusterCommands,
    name="kubectl backfill",
    help="Backfills of a cluster: how far they are, and what is to become of them.\n\n"
    f"{RULE}\n\n"
    "Exit status: 0 succeeded, 1 failed, 2 bad input, 3 waits for a person. They tell of the command, and with --watch "
    "of the Backfill.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def everywhere_the_same(namespace: Namespace = None, context: ContextName = None, kubeconfig: Kubeconfig = None) -> None:
    """Options may stand before a command or after it."""


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    watch: WatchAll = False,
    output: OutputOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show all Backfills in a line each."""
    from backfill.cli.cluster.follow import follow_all
    from backfill.cli.cluster.status import show_all

    place = _place(ctx, namespace, context, kubeconfig)
    show = follow_all if watch else show_all
    raise typer.Exit(show(place, everywhere=everywhere, as_json=output == Output.JSON))


@app.command()
def status(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    watch: Watch = False,
    output: OutputOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show how far a Backfill is, what happened, and what to do next."""
    from backfill.cli.cluster.follow import follow_one
    from backfill.cli.cluster.status import show_one

    place, name = _find(ctx, target, namespace, context, kubeconfig)
    show = follow_one if watch else show_one
    raise typer.Exit(show(place, name, as_json=output == Output.JSON))


@app.command()
def plan(
    ctx: typer.Context,
    target: NameOrFile,
    *,
    namespace: Namespace = None,
    output: PlanOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what a Backfill reads, in which steps; of a FILE, whether it would be accepted, and keep nothing of it."""
    from backfill.cli.cluster.plan import show_plan
    from backfill.cli.cluster.plan_check import check_file

    place, name = _find(ctx, target, namespace, context, kubeconfig)
    as_json = output == Output.JSON
    raise typer.Exit(
        check_file(place, Path(target), as_json=as_json) if is_file(target) else show_plan(place, name, as_json=as_json)
    )


@app.command()
def suspend(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    output: ChangeOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Stop a Backfill after the steps under way (at most four). What is committed is kept."""
    from backfill.cli.cluster.changes import suspend_one

    _change(suspend_one, *_find(ctx, target, namespace, context, kubeconfig), output)


@app.command()
def resume(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    output: ChangeOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Go on with a Backfill that was suspended or has failed."""
    from backfill.cli.cluster.changes import resume_one

    _change(resume_one, *_find(ctx, target, namespace, context, kubeconfig), output)


@app.command()
def retry(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    output: ChangeOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Try a Backfill once more that has failed for good, from where it stopped."""
    from backfill.cli.cluster.changes import retry_one

    _change(retry_one, *_find(ctx, target, namespace, context, kubeconfig), output)


@app.command()
def approve(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    output: ChangeOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a result be published that waits for approval."""
    from backfill.cli.cluster.changes import approve_one

    _change(approve_one, *_find(ctx, target, namespace, context, kubeconfig), output)


@app.command()
def cancel(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all is removed.")] = True,
    output: ChangeOption = Output.TEXT,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete a Backfill and all it made, except what it has published."""
    from backfill.cli.cluster.changes import cancel_one

    place, name = _find(ctx, target, namespace, context, kubeconfig)
    as_json = output == Output.JSON
    cancel_one(place, name, Console(stderr=as_json), wait=wait)
    if as_json:
        typer.echo(json.dumps({"name": name, "namespace": place.namespace, "removed": wait}))


@app.command()
def logs(
    ctx: typer.Context,
    target: Name,
    *,
    namespace: Namespace = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends; wait for it to start.")] = False,
    attempt: Annotated[int | None, typer.Option(metavar="N", min=1, help="Which attempt; default: the last.")] = None,
    tail: Annotated[int | None, typer.Option(metavar="LINES", min=0, help="Only so many lines from the end.")] = None,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the log of a Backfill's driver."""
    from backfill.cli.cluster.logs import show_log

    place, name = _find(ctx, target, namespace, context, kubeconfig)
    raise typer.Exit(show_log(place, name, attempt=attempt, follow=follow, tail=tail))


@app.command()
def render(
    ctx: typer.Context,
    target: NameOrFile,
    *,
    namespace: Namespace = None,
    output: FormatOption = Format.YAML,
    context: ContextName = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print what the next attempt would be made of: a SparkApplication, and the ConfigMap that it mounts."""
    from backfill.cli.cluster.rendering import show_manifests

    place, name = _find(ctx, target, namespace, context, kubeconfig)
    raise typer.Exit(show_manifests(place, target if is_file(target) else name, as_json=output == Format.JSON))


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(__version__)


def _change(change: Callable[[Place, str, Console], None], place: Place, name: str, output: Output) -> None:
    from backfill.cli.cluster.status import show_one

    as_json = output == Output.JSON
    change(place, name, Console(stderr=as_json))
    if as_json:
        show_one(place, name, as_json=True)


def _find(
    ctx: typer.Context, target: str, namespace: str | None, context: str | None, kubeconfig: Path | None
) -> tuple[Place, str]:
    """Where to look, and for what name."""
    name, of_file = name_of(target)
    return _place(ctx, namespace, context, kubeconfig, of_file), name


def _place(
    ctx: typer.Context, namespace: str | None, context: str | None, kubeconfig: Path | None, of_file: str | None = None
) -> Place:
    before = ctx.find_root().params
    namespace, context = namespace or before["namespace"], context or before["context"]
    kubeconfig = kubeconfig or before["kubeconfig"]
    cluster = Cluster.from_kubeconfig(kubeconfig, context)
    namespace = namespace or of_file
    given = (("-n", namespace), ("--context", context), ("--kubeconfig", kubeconfig))
    options = "".join(f" {option} {value}" for option, value in given if value)
    return Place(cluster, namespace or cluster.namespace, ctx.find_root().info_name or "kubectl backfill", options)
