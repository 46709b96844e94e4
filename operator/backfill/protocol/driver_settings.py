"""Settings of a driver: all but credentials,
which come from the environment in PyIceberg's form.
"""

from pydantic import Field

from backfill.api.base import Model
from backfill.api.output import Output
from backfill.api.source import Source
from backfill.api.spec import Effect, Execution, Window
from backfill.protocol.hand_off_messages import HandOffSettings

SETTINGS_VARIABLE = "BACKFILL_SETTINGS"
"""The environment variable that holds the settings as JSON."""

CLUSTER_CHANNEL = "kubernetes:"
"""Prefix of a channel on a cluster. The name of the SplitAssignment follows."""


class DriverSettings(Model):
    """Settings of one attempt. The backend writes them, the runtime reads them."""

    backfill: str
    """Name of the Backfill."""
    namespace: str
    """Namespace of the Backfill."""
    uid: str
    """UID of the Backfill."""
    kept_in: str = ""
    """Which cluster or state directory the Backfill is stored in."""
    attempt: int
    """Number of the attempt. The driver ignores messages for other attempts."""
    plan_id: str
    """ID of the plan."""
    plan: str
    """URI of the plan's directory."""
    checkpoints: str
    """URI below which each query keeps its checkpoint, the same for all attempts."""
    workspace_catalog: str = ""
    """Catalog whose connection properties open ``plan`` and ``checkpoints`` in an object store."""
    channel: str
    """Channel to the controller: a directory, or
    ``kubernetes:<name>`` for a SplitAssignment in the namespace.
    """
    window: Window
    """The window. The sink leaves out rows outside it."""
    sources: tuple[Source, ...]
    """The sources of the spec."""
    outputs: tuple[Output, ...]
    """The outputs of the spec."""
    ignored_queries: tuple[str, ...] = ()
    """Queries of the application that must not run."""
    allowed_effects: tuple[Effect, ...] = ()
    """What functions of ``foreachBatch`` may do besides writing DataFrames."""
    deliver: dict[str, int] = Field(default_factory=dict)
    """By output whose rows are delivered, the snapshot of its branch that was approved."""
    execution: Execution = "Auto"
    """How queries are run, as the resource says it."""
    max_rows_per_second: int | None = None
    """Most rows that a query reads in a second; null if there is no limit."""
    hand_off: HandOffSettings | None = None
    """How the state is handed over to live Kafka; null if it is not."""
    main_file: str
    """Main program of the application: a path, or a URI from which the driver fetches it."""
    arguments: tuple[str, ...] = ()
    """Arguments of the main program."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Spark properties that take precedence over those that the application sets."""
    spark_defaults: dict[str, str] = Field(default_factory=dict)
    """Spark properties that the application may set otherwise,
    where no ``spark-submit`` sets them.
    """
