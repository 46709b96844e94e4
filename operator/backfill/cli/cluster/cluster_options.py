"""The options that every command on a cluster has: which cluster, and which namespace."""

import inspect
import shlex
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfill.api.errors import BackfillError

if TYPE_CHECKING:
    from backfill.cli.cluster.connection import Place

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Namespace. Default: the file's namespace, or else the context's.",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, or else ~/.kube/config.",
    ),
]


class Where:
    """The options given before and after a command.

    No request is made before :meth:`place` or :meth:`find` is called.
    """

    def __init__(self, ctx: typer.Context, given: dict[str, Any]):
        root = ctx.find_root()
        before = root.params
        self._program = root.info_name or "kubectl backfill"
        self._namespace = given.get("namespace") or before.get("namespace")
        self._context = given.get("context") or before.get("context")
        self._kubeconfig = given.get("kubeconfig") or before.get("kubeconfig")

    def place(self, of_file: str | None = None) -> "Place":
        """The cluster and the namespace.

        ``of_file`` is the namespace in a manifest, if there is one.

        Raises:
            BackfillError: there is no such context or kubeconfig.
        """
        from backfill.cli.cluster.connection import Place
        from backfill.kube.client import Cluster

        cluster = Cluster.from_kubeconfig(self._kubeconfig, self._context)
        namespace = self._namespace or of_file
        given = (
            ("-n", namespace),
            ("--context", self._context),
            ("--kubeconfig", self._kubeconfig),
        )
        options = "".join(
            f" {option} {shlex.quote(str(value))}" for option, value in given if value
        )
        return Place(cluster, namespace or cluster.namespace, self._program, options)

    def find(self, target: str) -> "tuple[Place, str]":
        """The cluster and namespace of a Backfill, and its name.

        Raises:
            BadInput: ``target`` is a file without a Backfill.
            BackfillError: there is no such context or kubeconfig.
        """
        from backfill.cli.cluster.connection import name_of

        name, of_file = name_of(target)
        return self.place(of_file), name


def at_a_place(command: Callable[..., None]) -> Callable[..., None]:
    """Adds these options to a command.

    The command's first parameter becomes the :class:`Where` made of them.
    """
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in (
            ("namespace", Namespace),
            ("context", ContextName),
            ("kubeconfig", Kubeconfig),
        )
    ]

    @wraps(command)
    def run(ctx: typer.Context, **arguments: Any) -> None:
        given = {option.name: arguments.pop(option.name) for option in options}
        command(Where(ctx, given), **arguments)

    parameters = [
        Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *own,
        *options,
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def names_at_the_place(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of Backfills that start with ``incomplete``, for shell completion.

    Empty if the cluster does not answer: completion never fails.
    """
    try:
        found = Where(ctx, ctx.params).place().backfills()
    except (BackfillError, OSError):
        return []
    names: list[str] = [manifest["metadata"]["name"] for manifest in found]
    return [name for name in names if name.startswith(incomplete)]
