"""Handing over in the spec of a Backfill: the state that history has built goes on with live
traffic.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from backfill.api.base import Model
from backfill.api.pods import Overrides
from backfill.api.quantities import Duration

LIVE_NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class HandOff(Model):
    """How the state that history has built goes on with live traffic."""

    to: Literal["Live"]
    """Where the state goes on. ``Live``: with the Kafka topics of ``sources[].live``, each
    partition from the first offset that history has not read.
    """
    start: Literal["Prepare", "Deploy"] = "Prepare"
    """``Prepare``: the checkpoints are put where the application keeps them, and the Backfill has
    succeeded; the application is then started as always. ``Deploy``: the operator also creates the
    live SparkApplication, and the Backfill has succeeded once it lags at most ``maxLag`` behind
    Kafka. Not available without a cluster.
    """
    state_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of partitions of the state that the live application continues with. It keeps this
    number for good, whatever ``spark.sql.shuffle.partitions`` says. Default: the number that
    history is read with, which is then that of the application.
    """
    name: Annotated[str, Field(max_length=45, pattern=LIVE_NAME_PATTERN)] | None = None
    """Name of the live SparkApplication that ``Deploy`` creates: at most 45 lower-case letters,
    digits and ``-``. There must be none of this name. Default: the name of the Backfill with
    ``-live``, shortened if need be.
    """
    overrides: Overrides = Overrides()
    """Settings of the live SparkApplication that differ from production's. Used by ``Deploy``."""
    max_lag: Duration = Field(default="5m", validate_default=True)
    """How far behind Kafka the live application may be for the Backfill to have succeeded. Used by
    ``Deploy``.
    """
