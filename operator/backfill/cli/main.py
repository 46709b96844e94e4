"""The ``backfill`` command, which is also ``kubectl backfill``."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from backfill import __version__
from backfill.api.errors import BackfillError, BadInput
from backfill.cli.cluster_or_local import DEFAULT_STATE, RULE, LocalCommands, is_plugin, on_cluster
from backfill.cli.exit_status import BAD_INPUT, FAILED
from backfill.cli.output_formats import Output, SampledOutput, SampledRows

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Manifest file with the Backfill and the SparkApplication that it refers to.",
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE", help="Name of the backfill, or the manifest file it was run from."
    ),
]
StateDir = Annotated[
    Path, typer.Option("--state-dir", help="State directory of the backfills on this machine.")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Namespace. Default: the file's namespace, or else `default`."
    ),
]
PlanStateDir = Annotated[
    Path,
    typer.Option(
        "--state-dir",
        help=(
            "State directory with earlier backfills, used to estimate the duration and cost of this"
            " one. The plan is not stored."
        ),
    ),
]
PlanFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Manifest file with the Backfill. The SparkApplication is only required with"
        " --explain.",
    ),
]
NamespaceOfAll = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="List only backfills in this namespace. Default: all namespaces."
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        help="Output format. `json` prints the result as one line of JSON at the end.",
    ),
]
LinesOption = Annotated[
    Output,
    typer.Option(
        "--output", "-o", help="Output format. `json` prints one line of JSON for each backfill."
    ),
]
PlanOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        help="Output format. `json` prints the figures of the plan as one JSON document.",
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        help=(
            "Also run the application's main program up to the point where its queries start,"
            " without running the queries, and show for each one whether it would run as Batch or"
            " as Streaming, and why. Requires the SparkApplication in FILE, and Java."
        ),
    ),
]

GivenApplication = Annotated[
    str,
    typer.Option(
        "--application",
        metavar="FILE|NAME",
        help=(
            "Manifest file with the SparkApplication, or the name of one in the cluster. Its main"
            " program must be on this machine."
        ),
    ),
]
MainFile = Annotated[
    Path | None,
    typer.Option(
        "--main-file",
        metavar="FILE",
        help=(
            "Main program on this machine. Required if --application is the name of a"
            " SparkApplication. Default: mainApplicationFile of the manifest."
        ),
    ),
]
WindowOption = Annotated[
    str,
    typer.Option(
        "--window",
        metavar="START/END",
        help=(
            "Window to produce results for: two times in RFC 3339, or two dates (midnight UTC)."
            " END is exclusive."
        ),
    ),
]
ManifestFile = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="File to write. Default: standard output."),
]
ManifestNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace. Default: the namespace of the SparkApplication in FILE or, for NAME, that"
        " of the current context.",
    ),
]

ReasonOption = Annotated[
    str, typer.Option("--reason", help="Reason for the decision, recorded in the status.")
]
RequiredReason = Annotated[
    str, typer.Option("--reason", help="Reason for the decision, recorded in the status.")
]

app = typer.Typer(
    cls=LocalCommands,
    name="backfill",
    help=(
        "Run a streaming application again on its history: in order, aligned, exactly"
        f" once.\n\n{RULE}"
    ),
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    file: File,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
) -> None:
    """Run a backfill on this machine, or continue one.

    Exit status: 0 succeeded, 1 failed, 2 bad input, 3 waiting for a person.
    """
    from backfill.cli.local_commands import Context, run_file

    raise typer.Exit(run_file(Context(state_dir, namespace, output == Output.JSON), file))


@app.command()
def init(
    application: GivenApplication,
    window: WindowOption,
    output: ManifestFile = None,
    namespace: ManifestNamespace = None,
    main_file: MainFile = None,
) -> None:
    """Propose a Backfill for an application, as a manifest with comments.

    Runs the application's main program up to the point where its queries start, without running the
    queries, and looks up its tables in the catalogs. Lines with `TODO` mark what could not be
    determined. A program that writes with Spark before its queries start is refused. All other side
    effects of the main program, such as connections to other systems, really occur.
    """
    from backfill.cli.optional_dependencies import SPARK, TABLES, require

    require(*TABLES, SPARK)
    from backfill.cli.init import propose_backfill

    raise typer.Exit(propose_backfill(application, window, output, namespace, main_file))


@app.command()
def plan(
    file: PlanFile,
    state_dir: PlanStateDir = DEFAULT_STATE,
    output: PlanOption = Output.TEXT,
    namespace: Namespace = None,
    *,
    explain: ExplainOption = False,
) -> None:
    """Show what a backfill would read and in which steps, and report any problems.

    Nothing is stored, and without `--explain` nothing is run.
    """
    from backfill.cli.local_plan_command import show_plan

    raise typer.Exit(
        show_plan(file, namespace, state_dir, as_json=output == Output.JSON, explained=explain)
    )


@app.command()
def status(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="Name of the backfill, or the manifest file it was run from. Default: list all.",
        ),
    ] = None,
    state_dir: StateDir = DEFAULT_STATE,
    output: LinesOption = Output.TEXT,
    namespace: Namespace = None,
) -> None:
    """Show the progress of a backfill, what happened, and what to do next.

    Without a name, list all backfills.
    """
    from backfill.cli.local_commands import Context
    from backfill.cli.local_status import show_all, show_one

    context = Context(state_dir, namespace, output == Output.JSON)
    raise typer.Exit(show_all(context) if target is None else show_one(context, target))


@app.command("list")
def list_(
    state_dir: StateDir = DEFAULT_STATE,
    output: LinesOption = Output.TEXT,
    namespace: NamespaceOfAll = None,
) -> None:
    """List the backfills on this machine."""
    from backfill.cli.local_commands import Context
    from backfill.cli.local_status import show_all

    raise typer.Exit(show_all(Context(state_dir, namespace, output == Output.JSON)))


@app.command()
def suspend(
    target: Target, state_dir: StateDir = DEFAULT_STATE, namespace: Namespace = None
) -> None:
    """Stop a backfill after the steps in progress. Committed steps are kept."""
    from backfill.cli.local_commands import Context, suspend_one

    raise typer.Exit(suspend_one(Context(state_dir, namespace), target))


@app.command()
def resume(
    target: Target,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
) -> None:
    """Continue a backfill that was suspended or interrupted, or that failed."""
    from backfill.cli.local_commands import Context, resume_one

    raise typer.Exit(resume_one(Context(state_dir, namespace, output == Output.JSON), target))


@app.command()
def approve(
    target: Target,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
    reason: ReasonOption = "",
) -> None:
    """Approve a result that is waiting for approval, and publish it."""
    _decide(target, "Approve", reason, state_dir, output, namespace)


@app.command()
def reject(
    target: Target,
    reason: RequiredReason,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
) -> None:
    """Reject a result that is waiting for approval, which ends the backfill.

    The result stays in its branch until the backfill is removed.
    """
    _decide(target, "Reject", reason, state_dir, output, namespace)


@app.command()
def undo(
    target: Target,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
    reason: ReasonOption = "",
) -> None:
    """Undo what a backfill has published, unless others have changed the same rows since.

    Exit status 1 means that it was not undone; the message says why.
    """
    _decide(target, "Undo", reason, state_dir, output, namespace)


def _decide(  # noqa: PLR0917 - the options of three commands
    target: str, verdict: str, reason: str, state_dir: Path, output: Output, namespace: str | None
) -> None:
    from backfill.api.status import Verdict
    from backfill.cli.local_commands import Context, decide_one

    context = Context(state_dir, namespace, output == Output.JSON)
    raise typer.Exit(decide_one(context, target, Verdict(verdict), reason))


@app.command()
def report(
    target: Target,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
    *,
    browse: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Show how the results of a backfill compare with production or the reference, and where the
    report is.
    """
    from backfill.cli.comparison_reports import show_reports
    from backfill.cli.target import find

    _, backfill = find(target, namespace, state_dir)
    show_reports(backfill, as_json=output == Output.JSON, browse=browse)


@app.command()
def sample(  # noqa: PLR0917 - options of a command
    target: Target,
    state_dir: StateDir = DEFAULT_STATE,
    output: OutputOption = Output.TEXT,
    namespace: Namespace = None,
    of: SampledOutput = None,
    rows: SampledRows = 5,
) -> None:
    """Show some rows of the staged result next to production's rows with the same keys."""
    from backfill.cli.sample_command import show_sample
    from backfill.cli.target import find

    _, backfill = find(target, namespace, state_dir)
    show_sample(backfill, of, rows=rows, as_json=output == Output.JSON)


@app.command()
def cancel(
    target: Target, state_dir: StateDir = DEFAULT_STATE, namespace: Namespace = None
) -> None:
    """Stop a backfill and remove everything it created, except published data."""
    from backfill.cli.local_commands import Context, cancel_one

    raise typer.Exit(cancel_one(Context(state_dir, namespace), target))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Runs the command. Problems of the input are listed on standard error, with exit status 2;
    1 if they are only that a server is unavailable for a moment.
    """
    try:
        _chosen()()
    except BadInput as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        sys.exit(FAILED if error.unavailable else BAD_INPUT)
    except (BackfillError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(FAILED)


def _chosen() -> Callable[[], object]:
    """The commands on a cluster or on this machine."""
    program, arguments = sys.argv[0], sys.argv[1:]
    if not on_cluster(program, arguments):
        return app
    from backfill.cli.cluster.app import app as cluster_app

    return partial(cluster_app, prog_name="kubectl backfill" if is_plugin(program) else "backfill")
