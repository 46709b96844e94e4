"""The settings that this driver was started with."""

import os
from typing import TYPE_CHECKING

from pydantic import ValidationError

from backfill.api.errors import BackfillError
from backfill.planning.workspace import Workspace
from backfill.protocol.driver_settings import SETTINGS_VARIABLE, DriverSettings

if TYPE_CHECKING:
    from backfill.outputs.result_names import Result


class RuntimeSettings(DriverSettings):
    """Settings of one attempt, passed as JSON in the environment variable ``BACKFILL_SETTINGS``."""

    @property
    def plan_workspace(self) -> Workspace:
        """Directory of the plan."""
        return Workspace(self.plan, self.workspace_catalog)

    @property
    def checkpoint_workspace(self) -> Workspace:
        """Directory of the queries' checkpoints."""
        return Workspace(self.checkpoints, self.workspace_catalog)

    def result(self, output: str) -> "Result":
        """The result of an output."""
        # processes that plan a step load the settings, but nothing of Iceberg
        from backfill.outputs.result_names import Result

        owner = (self.namespace, self.backfill, self.uid)
        return Result(*owner, self.plan_id, output, self.kept_in)


def settings_from_environment() -> RuntimeSettings:
    """The settings of this driver.

    Raises:
        BackfillError: they are missing or not well formed. Only the launcher of a backfill sets
            them.
    """
    text = os.environ.get(SETTINGS_VARIABLE)
    if text is None:
        raise BackfillError(
            f"{SETTINGS_VARIABLE} is not set: this program must be started by the backfill"
            " controller"
        )
    try:
        return RuntimeSettings.model_validate_json(text)
    except ValidationError as error:
        raise BackfillError(
            f"{SETTINGS_VARIABLE} is not compatible with this version of the runtime: {error}"
        ) from error
