"""The commands of ``kubectl backfill``."""

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backfill import __version__
from backfill.cli.cluster.cluster_options import (
    ContextName,
    Kubeconfig,
    Namespace,
    Where,
    at_a_place,
    names_at_the_place,
)
from backfill.cli.cluster_or_local import RULE, ClusterCommands, is_file
from backfill.cli.output_formats import Output, SampledOutput, SampledRows

if TYPE_CHECKING:
    from rich.console import Console

    from backfill.cli.cluster.connection import Place


class Format(StrEnum):
    """Formats of manifests."""

    YAML = "yaml"
    JSON = "json"


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the Backfill, or the manifest file it was applied from.",
        autocompletion=names_at_the_place,
    ),
]
NameOrFile = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="Name of the Backfill, or a manifest file.",
        autocompletion=names_at_the_place,
    ),
]
PlanOption = Annotated[
    Output,
    typer.Option(
        "--output", "-o", help="Output format. `json` prints the figures as one JSON document."
    ),
]
FormatOption = Annotated[
    Format,
    typer.Option("--output", "-o", help="Output format. `json` prints the manifests as one List."),
]
ChangeOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        help=(
            "Output format. `json` prints the new state as one JSON document, and messages on"
            " standard error."
        ),
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output", "-o", help="Output format. `json` prints one line of JSON for each Backfill."
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help=(
            "Watch the Backfill until it finishes, is suspended or waits for a person; the exit"
            " status is then the Backfill's."
        ),
    ),
]
WatchAll = Annotated[
    bool, typer.Option("--watch", "-w", help="Keep updating the list until Ctrl-C.")
]
Everywhere = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="List the Backfills of all namespaces.")
]

app = typer.Typer(
    cls=ClusterCommands,
    name="kubectl backfill",
    help=(
        f"Inspect and control the Backfills of a cluster.\n\n{RULE}\n\n"
        "Exit status: 0 succeeded, 1 failed, 2 bad input, 3 waiting for a person. This is the"
        " result of the command itself or, with --watch, of the Backfill."
    ),
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,  # kubectl has its own: cli/completion.py
    pretty_exceptions_enable=False,
)


@app.callback()
def everywhere_the_same(
    namespace: Namespace = None, context: ContextName = None, kubeconfig: Kubeconfig = None
) -> None:
    """Options may be given before or after a command."""


@app.command("list")
@at_a_place
def list_(
    where: Where,
    *,
    everywhere: Everywhere = False,
    watch: WatchAll = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List Backfills."""
    from backfill.cli.cluster.status_command import show_all
    from backfill.cli.cluster.watch_backfills import follow_all

    place = where.place()
    show = follow_all if watch else show_all
    raise typer.Exit(show(place, everywhere=everywhere, as_json=output == Output.JSON))


@app.command()
@at_a_place
def status(
    where: Where,
    target: Name,
    *,
    watch: Watch = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the progress of a Backfill, what happened, and what to do next."""
    from backfill.cli.cluster.status_command import show_one
    from backfill.cli.cluster.watch_backfills import follow_one

    place, name = where.find(target)
    show = follow_one if watch else show_one
    raise typer.Exit(show(place, name, as_json=output == Output.JSON))


@app.command()
@at_a_place
def plan(
    where: Where,
    target: NameOrFile,
    *,
    output: PlanOption = Output.TEXT,
) -> None:
    """Show what a Backfill reads and in which steps.

    For a FILE, check whether the cluster would accept it; nothing is stored.
    """
    from backfill.cli.cluster.plan_check import check_file
    from backfill.cli.cluster.plan_command import show_plan

    place, name = where.find(target)
    as_json = output == Output.JSON
    raise typer.Exit(
        check_file(place, Path(target), as_json=as_json)
        if is_file(target)
        else show_plan(place, name, as_json=as_json)
    )


@app.command()
@at_a_place
def suspend(
    where: Where,
    target: Name,
    *,
    output: ChangeOption = Output.TEXT,
) -> None:
    """Stop a Backfill after the steps in progress. Committed steps are kept."""
    from backfill.cli.cluster.change_commands import suspend_one

    _change(suspend_one, *where.find(target), output)


@app.command()
@at_a_place
def resume(
    where: Where,
    target: Name,
    *,
    output: ChangeOption = Output.TEXT,
) -> None:
    """Continue a Backfill that was suspended or that failed."""
    from backfill.cli.cluster.change_commands import resume_one

    _change(resume_one, *where.find(target), output)


@app.command()
@at_a_place
def retry(
    where: Where,
    target: Name,
    *,
    output: ChangeOption = Output.TEXT,
) -> None:
    """Retry a failed Backfill from where it stopped, or start the next attempt now."""
    from backfill.cli.cluster.change_commands import retry_one

    _change(retry_one, *where.find(target), output)


@app.command()
@at_a_place
def approve(
    where: Where,
    target: Name,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Reason for the decision, recorded in the status.")
    ] = "",
    output: ChangeOption = Output.TEXT,
) -> None:
    """Approve a result that is waiting for approval, and publish it.

    Requires permission to create BackfillDecisions.
    """
    from backfill.cli.cluster.decision_commands import approve_one

    _change(partial(approve_one, reason=reason), *where.find(target), output)


@app.command()
@at_a_place
def reject(
    where: Where,
    target: Name,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Reason for the decision, recorded in the status.")
    ],
    output: ChangeOption = Output.TEXT,
) -> None:
    """Reject a result that is waiting for approval, which ends the Backfill.

    The result stays in its branch until the Backfill is removed. Requires permission to create
    BackfillDecisions.
    """
    from backfill.cli.cluster.decision_commands import reject_one

    _change(partial(reject_one, reason=reason), *where.find(target), output)


@app.command()
@at_a_place
def undo(
    where: Where,
    target: Name,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Reason for the decision, recorded in the status.")
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is undone, or refused.")
    ] = True,
    output: ChangeOption = Output.TEXT,
) -> None:
    """Undo what a Backfill has published, unless others have changed the same rows since.

    Requires permission to create BackfillDecisions. Exit status 1 means that it was not undone; the
    message says why.
    """
    from backfill.cli.cluster.decision_commands import undo_one

    _change(partial(undo_one, reason=reason, wait=wait), *where.find(target), output)


@app.command()
@at_a_place
def report(
    where: Where,
    target: Name,
    *,
    output: PlanOption = Output.TEXT,
) -> None:
    """Show how the results of a Backfill compare with production or the reference, and where the
    report is.
    """
    from backfill.cli.comparison_reports import show_reports

    place, name = where.find(target)
    show_reports(place.find(name), as_json=output == Output.JSON)


@app.command()
@at_a_place
def sample(
    where: Where,
    target: Name,
    *,
    output: PlanOption = Output.TEXT,
    of: SampledOutput = None,
    rows: SampledRows = 5,
) -> None:
    """Show some rows of the staged result next to production's rows with the same keys.

    Tables are opened from this machine, with its PyIceberg configuration.
    """
    from backfill.cli.sample_command import show_sample

    place, name = where.find(target)
    show_sample(place.find(name), of, rows=rows, as_json=output == Output.JSON)


@app.command()
@at_a_place
def cancel(
    where: Where,
    target: Name,
    *,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until everything is removed.")
    ] = True,
    output: ChangeOption = Output.TEXT,
) -> None:
    """Delete a Backfill and everything it created, except published data."""
    from rich.console import Console

    from backfill.cli.cluster.change_commands import cancel_one

    place, name = where.find(target)
    as_json = output == Output.JSON
    cancel_one(place, name, Console(stderr=as_json), wait=wait)
    if as_json:
        typer.echo(json.dumps({"name": name, "namespace": place.namespace, "removed": wait}))


@app.command()
@at_a_place
def logs(
    where: Where,
    target: Name,
    *,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Stream the log until the driver ends; if it has not started yet, wait for it.",
        ),
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of the attempt. Default: the latest."),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            metavar="LINES", min=0, help="Number of lines to print from the end. Default: all."
        ),
    ] = None,
) -> None:
    """Print the log of a Backfill's driver."""
    from backfill.cli.cluster.logs import show_log

    place, name = where.find(target)
    raise typer.Exit(show_log(place, name, attempt=attempt, follow=follow, tail=tail))


@app.command()
@at_a_place
def render(
    where: Where,
    target: NameOrFile,
    *,
    output: FormatOption = Format.YAML,
) -> None:
    """Print the manifests of the next attempt.

    These are the SparkApplication and the ConfigMap that it mounts.
    """
    from backfill.cli.cluster.preview_objects import show_manifests

    place, name = where.find(target)
    raise typer.Exit(
        show_manifests(place, target if is_file(target) else name, as_json=output == Format.JSON)
    )


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _change(
    change: "Callable[[Place, str, Console], None]", place: "Place", name: str, output: Output
) -> None:
    from rich.console import Console

    from backfill.cli.cluster.status_command import show_one

    as_json = output == Output.JSON
    change(place, name, Console(stderr=as_json))
    if as_json:
        show_one(place, name, as_json=True)
