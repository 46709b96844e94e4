"""What a driver is told when it starts: everything but credentials, which come from the environment as PyIceberg reads it."""

import os

from pydantic import ValidationError

from backfill.api.backfill import Output, Source, Window
from backfill.api.base import Model
from backfill.api.errors import BackfillError
from backfill.planning.workspace import Workspace

SETTINGS_VARIABLE = "BACKFILL_SETTINGS"


class RuntimeSettings(Model):
    """One attempt's settings, handed over as JSON in the environment variable ``BACKFILL_SETTINGS``."""

    backfill: str
    """The Backfill's name."""
    namespace: str
    """Its namespace."""
    attempt: int
    """This attempt. Messages of other attempts are not for this driver."""
    plan_id: str
    """The plan."""
    plan: str
    """The URI of the plan's directory."""
    checkpoints: str
    """The URI below which each query keeps its checkpoint, the same for all attempts."""
    channel: str
    """The directory through which controller and driver talk (:mod:`backfill.runtime.channel`)."""
    scratch: str
    """A directory on the driver's own disk; sources are told there what is released."""
    window: Window
    """The window; the sink leaves out rows that do not belong to it."""
    sources: tuple[Source, ...]
    """The sources as the resource names them."""
    outputs: tuple[Output, ...]
    """The outputs as the resource names them."""
    main_file: str
    """The application's main program."""
    arguments: tuple[str, ...] = ()
    """Its arguments."""
    spark_conf: dict[str, str] = {}
    """Spark properties that hold even where the application sets others."""

    @property
    def plan_workspace(self) -> Workspace:
        """Where the plan is."""
        return Workspace(self.plan)


def settings_from_environment() -> RuntimeSettings:
    """The settings of this driver.

    Raises:
        BackfillError: they are missing or not well formed; only the launcher of a backfill sets them.
    """
    text = os.environ.get(SETTINGS_VARIABLE)
    if text is None:
        raise BackfillError(f"{SETTINGS_VARIABLE} is not set: this program is started by the backfill controller")
    try:
        return RuntimeSettings.model_validate_json(text)
    except ValidationError as error:
        raise BackfillError(f"{SETTINGS_VARIABLE} does not fit this version of the runtime: {error}") from error
