"""Reports of comparisons, made from figures."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from backfill.api.output import Output
from backfill.api.status import WindowLosses
from backfill.runtime.comparison.compare_outputs import stretch_us
from backfill.runtime.comparison.count_matches import Counts, Found
from backfill.runtime.comparison.report import Clues, Report
from backfill.runtime.settings import RuntimeSettings

START = datetime(2021, 7, 11, tzinfo=UTC)


def settings_of(
    window: Mapping[str, Any], outputs: Sequence[Any], home: str = "/nowhere"
) -> RuntimeSettings:
    """Those of a driver that compares what has been read. ``home`` is where all its files are."""
    return RuntimeSettings.model_validate(
        {
            "backfill": "again",
            "namespace": "default",
            "uid": "u",
            "attempt": 1,
            "plan_id": "p",
            "plan": f"{home}/plan",
            "checkpoints": home,
            "channel": home,
            "window": window,
            "sources": (),
            "outputs": outputs,
            "main_file": "app.py",
        }
    )


def report(
    found: Found,
    clues: Clues = Clues(),  # noqa: B008
    keys: Sequence[str] = (),
    length: timedelta = timedelta(hours=12),
    losses: WindowLosses | None = None,
    mode: str = "None",
    **validate: Any,
) -> Report:
    """A report, by default with the key ``id`` of ``validate``; ``keys`` are those of the output."""
    output = Output.model_validate(
        {
            "name": "summary",
            "table": "lake.default.summary",
            "timestampColumn": "at",
            "keys": keys,
            "publish": {"mode": mode},
            "validate": {"keys": [] if keys else ["id"], **validate},
        }
    )
    window = {"start": START, "end": START + length, "drain": "10m"}
    settings = settings_of(window, (output,))
    width_us = stretch_us(settings.window)
    return Report(settings, output, found, width_us, 7, 8, START, clues, losses=losses)


def compared(**stretches: Counts) -> Found:
    """What was found in stretches of time, which are named by their numbers: ``h0``, ``h1``."""
    return Found(buckets={int(name.removeprefix("h")): each for name, each in stretches.items()})
