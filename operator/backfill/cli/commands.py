"""Every command, with its arguments, options and help.

A command is a method with ``@command``. It is implemented in :mod:`backfill.cli.local.commands` for
this machine and in :mod:`backfill.cli.cluster.commands` for a cluster.
"""

from collections.abc import Callable
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import typer

from backfill import __version__
from backfill.api.errors import BackfillError
from backfill.cli.exit_status import SUCCEEDED

if TYPE_CHECKING:
    from backfill.api.backfill import Backfill

DEFAULT_STATE: Final = Path(".backfill")
"""State directory of Backfills on this machine, relative to the working directory."""
_Method = TypeVar("_Method", bound=Callable[..., int])
_LINES = "one line of JSON for each Backfill"
_FIGURES = "the figures as one JSON document"
_NEW_STATE = "the new state as one line of JSON at the end, and messages on standard error"


class Only(Enum):
    """Marks an option that only has an effect in one place."""

    ON_THIS_MACHINE = auto()
    ON_A_CLUSTER = auto()


class Format(StrEnum):
    """Formats of manifests."""

    YAML = "yaml"
    JSON = "json"


class PublishMode(StrEnum):
    """Publish modes that require nothing else of an output."""

    NONE = "None"
    APPEND = "Append"
    REPLACE = "Replace"
    UPSERT = "Upsert"
    DELIVER = "Deliver"


class Group(StrEnum):
    """Groups of commands in the help."""

    PREPARE = "Prepare"
    RUN = "Run"
    LOOK = "Look at it"
    DECIDE = "Decide about results"
    OTHER = "Other"


def command(group: Group, *, json: str = "") -> Callable[[_Method], _Method]:
    """Makes a method a command. ``json`` is what it prints with ``--output json``, if anything."""

    def declared(method: _Method) -> _Method:
        method.__dict__.update(group=group, json=json)
        return method

    return declared


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of Backfills, for shell completion. Empty if the place does not answer: completion
    never fails.
    """
    try:
        names: list[str] = ctx.obj.commands(ctx, ctx.params, as_json=False).names()
    except (BackfillError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def _target(help_text: str, metavar: str = "NAME|FILE") -> Any:
    return typer.Argument(metavar=metavar, help=help_text, autocompletion=_names)


Target = Annotated[str, _target("Name of the Backfill, or its manifest file.")]
TargetOrAll = Annotated[
    str | None, _target("Name of the Backfill, or its manifest file. Default: list all.")
]
ToPlan = Annotated[
    str,
    _target("Manifest file with the Backfill or, on a cluster, the name of one.", "FILE|NAME"),
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Manifest file with the Backfill and the SparkApplication that it refers to.",
    ),
]
RunWindow = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="START/END",
        help=(
            "Run the only SparkApplication of FILE, which has no Backfill, on this window: two"
            " times in RFC 3339, or two dates (midnight UTC). END is exclusive. What the program"
            " reads and writes is found by itself."
        ),
    ),
]
RunPublish = Annotated[
    PublishMode | None,
    typer.Option(
        "--publish",
        case_sensitive=False,
        help="With --window: publish mode of the outputs. Default: keep results in branches.",
    ),
]
Programs = Annotated[
    list[Path],
    typer.Argument(
        metavar="PROGRAM...",
        help=(
            "Main programs (.py), or manifest files, each with a SparkApplication whose main"
            " program is on this machine."
        ),
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help=(
            "Also run the application's main program up to the point where its queries start,"
            " without running the queries, and show for each one whether it would run as Batch or"
            " as Streaming, and why. Requires the SparkApplication in FILE, and Java."
        ),
    ),
    Only.ON_THIS_MACHINE,
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help=(
            "Watch the Backfill until it finishes, is suspended or waits for a person; the exit"
            " status is then the Backfill's. Keep updating a list until Ctrl-C."
        ),
    ),
    Only.ON_A_CLUSTER,
]
WatchList = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Keep updating the list until Ctrl-C."),
    Only.ON_A_CLUSTER,
]
Everywhere = Annotated[
    bool,
    typer.Option("--all-namespaces", "-A", help="List the Backfills of all namespaces."),
    Only.ON_A_CLUSTER,
]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Wait until it is done."),
    Only.ON_A_CLUSTER,
]
DecisionReason = Annotated[
    str, typer.Option("--reason", help="Reason for the decision, recorded in the status.")
]
Browse = Annotated[
    bool, typer.Option("--open", help="Open the report in a browser."), Only.ON_THIS_MACHINE
]
SampledOutput = Annotated[
    str | None,
    typer.Option(
        "--of", metavar="OUTPUT", help="Name of the output. Required if there are several."
    ),
]
SampledRows = Annotated[
    int, typer.Option("--rows", min=1, max=1000, help="Maximum number of rows to show.")
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Stream the log until the driver ends; if it has not started yet, wait for it.",
    ),
]
AttemptNumber = Annotated[
    int | None,
    typer.Option(
        "--attempt", metavar="N", min=1, help="Number of the attempt. Default: the latest."
    ),
]
Tail = Annotated[
    int | None,
    typer.Option(
        "--tail",
        metavar="LINES",
        min=0,
        help="Number of lines to print from the end. Default: all.",
    ),
]
ManifestFormat = Annotated[
    Format,
    typer.Option("--output", "-o", help="Output format. `json` prints the manifests as one List."),
]


class OnThisMachine(Protocol):
    """Commands that need the program and its data on this machine."""

    @command(Group.RUN, json="the result as one line of JSON at the end")
    def run(self, file: File, *, window: RunWindow = None, publish: RunPublish = None) -> int:
        """Run a Backfill on this machine, or continue one.

        With `--window`, FILE contains only the production SparkApplication.

        Exit status: 0 succeeded, 1 failed, 2 bad input, 3 waiting for a person.
        """

    @command(Group.PREPARE, json="one line of JSON for each program")
    def check(self, programs: Programs) -> int:
        """Say what a backfill would make of programs, without their data.

        Runs each main program up to the point where its queries start, and calls each function of
        `foreachBatch` with an empty batch and a row of nulls: its writes are noted instead of made,
        and connections to other systems are refused. All other side effects of the main program
        really occur. Exit status: 0 all run unmodified, 1 one could not be checked, 2 one is
        refused, 3 a person has to look at one.
        """


class Commands(Protocol):
    """Commands that both places have. They return the exit status."""

    as_json: bool

    def find(self, target: str) -> "Backfill":
        """The Backfill of that name or manifest file.

        Raises:
            BadInput: there is none.
        """

    def names(self) -> list[str]:
        """Names of the Backfills, for completion."""

    @command(Group.PREPARE, json=_FIGURES)
    def plan(self, target: ToPlan, *, explain: Explain = False) -> int:
        """Show what a Backfill reads and in which steps, and report any problems.

        Nothing is stored, and no query is run. For a FILE on a cluster, check whether the cluster
        would accept it.
        """

    @command(Group.LOOK, json=_LINES)
    def status(
        self,
        target: TargetOrAll = None,
        *,
        everywhere: Everywhere = False,
        watch: Watch = False,
    ) -> int:
        """Show the progress of a Backfill, what happened, and what to do next.

        Without a name, list all Backfills.
        """

    @command(Group.LOOK, json=_LINES)
    def list_(self, *, everywhere: Everywhere = False, watch: WatchList = False) -> int:
        """List Backfills."""

    @command(Group.LOOK)
    def logs(
        self,
        target: Target,
        *,
        follow: Follow = False,
        attempt: AttemptNumber = None,
        tail: Tail = None,
    ) -> int:
        """Print the log of a Backfill's driver."""

    @command(Group.RUN, json=_NEW_STATE)
    def suspend(self, target: Target) -> int:
        """Stop a Backfill after the steps in progress. Committed steps are kept."""

    @command(Group.RUN, json=_NEW_STATE)
    def resume(self, target: Target) -> int:
        """Continue a Backfill that was suspended or interrupted, or that failed."""

    @command(Group.RUN, json=_NEW_STATE)
    def retry(self, target: Target) -> int:
        """Retry a failed Backfill from where it stopped, or start the next attempt now."""

    @command(Group.DECIDE, json=_NEW_STATE)
    def approve(self, target: Target, *, reason: DecisionReason = "") -> int:
        """Approve a result that is waiting for approval, and publish it.

        On a cluster, this requires permission to create BackfillDecisions.
        """

    @command(Group.DECIDE, json=_NEW_STATE)
    def reject(self, target: Target, *, reason: DecisionReason) -> int:
        """Reject a result that is waiting for approval, which ends the Backfill.

        The result stays in its branch until the Backfill is removed. On a cluster, this requires
        permission to create BackfillDecisions.
        """

    @command(Group.DECIDE, json=_NEW_STATE)
    def undo(self, target: Target, *, reason: DecisionReason = "", wait: Wait = True) -> int:
        """Undo what a Backfill has published, unless others have changed the same rows since.

        Exit status 1 means that it was not undone; the message says why. On a cluster, this
        requires permission to create BackfillDecisions.
        """

    @command(Group.DECIDE, json=_FIGURES)
    def report(self, target: Target, *, browse: Browse = False) -> int:
        """Show how the results of a Backfill compare with production or the reference, and where
        the report is.
        """
        from backfill.cli.comparison_reports import show_reports

        show_reports(self.find(target), as_json=self.as_json, browse=browse)
        return SUCCEEDED

    @command(Group.DECIDE, json=_FIGURES)
    def sample(self, target: Target, *, of: SampledOutput = None, rows: SampledRows = 5) -> int:
        """Show some rows of the staged result next to production's rows with the same keys.

        Tables are opened from this machine, with its PyIceberg configuration.
        """
        from backfill.cli.sample_command import show_sample

        show_sample(self.find(target), of, rows=rows, as_json=self.as_json)
        return SUCCEEDED

    @command(Group.RUN, json=_NEW_STATE)
    def cancel(self, target: Target, *, wait: Wait = True) -> int:
        """Stop a Backfill and remove everything it created, except published data."""


class OnACluster(Protocol):
    """Commands that need an operator."""

    @command(Group.PREPARE)
    def render(self, target: Target, *, output: ManifestFormat = Format.YAML) -> int:
        """Print the manifests of the next attempt.

        These are the SparkApplication and the ConfigMap that it mounts.
        """


def init(
    application: Annotated[
        str,
        typer.Option(
            "--application",
            metavar="FILE|NAME",
            help=(
                "Manifest file with the SparkApplication, or the name of one in the cluster. Its"
                " main program must be on this machine."
            ),
        ),
    ],
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="START/END",
            help=(
                "Window to produce results for: two times in RFC 3339, or two dates (midnight UTC)."
                " END is exclusive."
            ),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="File to write. Default: standard output."),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help=(
                "Namespace. Default: the namespace of the SparkApplication in FILE or, for NAME,"
                " that of the current context."
            ),
        ),
    ] = None,
    main_file: Annotated[
        Path | None,
        typer.Option(
            "--main-file",
            metavar="FILE",
            help=(
                "Main program on this machine. Required if --application is the name of a"
                " SparkApplication. Default: mainApplicationFile of the manifest."
            ),
        ),
    ] = None,
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


def version() -> None:
    """Print the version."""
    typer.echo(__version__)
