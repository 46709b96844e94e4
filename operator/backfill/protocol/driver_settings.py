"""What a driver is told when it starts: everything but credentials, which come from the environment as PyIceberg reads it."""

from pydantic import Field

from backfill.api.base import Model
from backfill.api.spec import Output, Source, Window

SETTINGS_VARIABLE = "BACKFILL_SETTINGS"
"""The environment variable that holds the settings as JSON."""

CLUSTER_CHANNEL = "kubernetes:"
"""What a channel in a cluster begins with; the name of the SplitAssignment follows."""


class DriverSettings(Model):
    """One attempt's settings. A backend writes them, the runtime reads them."""

    backfill: str
    """The Backfill's name."""
    namespace: str
    """Its namespace."""
    uid: str
    """Its uid."""
    attempt: int
    """This attempt. Messages of other attempts are not for this driver."""
    plan_id: str
    """The plan."""
    plan: str
    """The URI of the plan's directory."""
    checkpoints: str
    """The URI below which each query keeps its checkpoint, the same for all attempts."""
    workspace_catalog: str = ""
    """The catalog whose connection properties open both where they are in an object store."""
    channel: str
    """Through what controller and driver talk: a directory, or ``kubernetes:<name>``, a SplitAssignment of the namespace."""
    scratch: str
    """A directory on the driver's own disk; sources are told there what is released."""
    window: Window
    """The window; the sink leaves out rows that do not belong to it."""
    sources: tuple[Source, ...]
    """The sources as the resource names them."""
    outputs: tuple[Output, ...]
    """The outputs as the resource names them."""
    ignored_queries: tuple[str, ...] = ()
    """Queries of the application that are not run."""
    main_file: str
    """The application's main program."""
    arguments: tuple[str, ...] = ()
    """Its arguments."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Spark properties that hold even where the application sets others."""
    spark_defaults: dict[str, str] = Field(default_factory=dict)
    """Spark properties that hold unless the application sets others, where no ``spark-submit`` brings them."""
