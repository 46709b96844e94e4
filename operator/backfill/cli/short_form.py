"""A Backfill of three decisions: which application, which window, what to do with the result."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from backfill.api.backfill import Backfill, ObjectMeta
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.backfill_manifest import Manifests, load_application
from backfill.api.quantities import parse_moment
from backfill.api.spec import BackfillSpec, Window

_MOST_NAME: Final = 63


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
        return Window(start=_moment(start), end=_moment(end))
    except ValidationError:
        message = f'"{given}": the end is not after the start'
        raise BadInput(Problem("--window", message, fix)) from None


def _moment(given: str) -> datetime:
    try:
        return parse_moment(given)
    except ValueError as error:
        message, _, fix = str(error).partition("; ")
        raise BadInput(Problem("--window", f'"{given}" {message}', fix)) from None


def name_of(application: str, window: Window) -> str:
    """The name of a Backfill that nobody has named. Other windows have other names."""
    name = re.sub(r"[^a-z0-9]+", "-", application.lower()).strip("-") or "backfill"
    edges = [f"{each:%Y-%m-%dt%H%M}".removesuffix("t0000") for each in (window.start, window.end)]
    one_day = window.end - window.start == timedelta(days=1) and len(edges[0]) == len("2021-07-11")
    stretch = edges[0] if one_day else "-to-".join(edges)
    return f"{name[: _MOST_NAME - 1 - len(stretch)].rstrip('-')}-{stretch}"
