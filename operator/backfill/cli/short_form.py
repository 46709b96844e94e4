"""A Backfill of three decisions: which application, which window, what to do with the result."""

import re
from pathlib import Path

from pydantic import ValidationError

from backfill.api.backfill import Backfill, ObjectMeta
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.backfill_manifest import Manifests, load_application
from backfill.api.quantities import parse_moment
from backfill.api.spec import BackfillSpec, Window


def short_manifests(
    file: Path, window: str, publish: str | None, namespace: str | None
) -> Manifests:
    """The Backfill of an application in a file, which must be the only one.

    Raises:
        BadInput: with every problem of the arguments.
    """
    stretch = window_of(window)
    application = load_application(file, namespace or "default")
    decisions = {"applicationRef": {"name": application.name}, "window": stretch}
    spec = BackfillSpec.model_validate(decisions | {"publish": publish})
    name = name_of(application.name, stretch)
    metadata = ObjectMeta(name=name, namespace=namespace or application.namespace)
    return Manifests(Backfill(metadata=metadata, spec=spec), application)


def window_of(given: str) -> Window:
    """The window of ``START/END``."""
    fix = "write it as 2021-07-11T00:00:00Z/2021-07-12T00:00:00Z, or as two dates"
    start, slash, end = given.partition("/")
    if not slash:
        raise BadInput(Problem("--window", f'"{given}" is not START/END', fix))
    try:
        moments = [parse_moment(each) for each in (start, end)]
    except ValueError as error:
        raise BadInput(Problem("--window", f'"{given}": {error}', fix)) from None
    try:
        return Window(start=moments[0], end=moments[1])
    except ValidationError:
        message = f'"{given}": the end is not after the start'
        raise BadInput(Problem("--window", message, fix)) from None


def name_of(application: str, window: Window) -> str:
    """The name of a Backfill that nobody has named."""
    name = re.sub(r"[^a-z0-9]+", "-", application.lower()).strip("-") or "backfill"
    return f"{name[:52].rstrip('-')}-{window.start:%Y-%m-%d}"
