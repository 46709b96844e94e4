"""Spark properties a backfill needs, put where the application can not lose them."""

from pyspark import SparkConf
from pyspark.sql import SparkSession

from backfill.runtime.settings import RuntimeSettings

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",  # the log goes to a file
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To keep count of its rows a store reads before each write. Nobody needs the count: what is open is read at the end.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Events of one session come together in a step: sent on as one, they are a fraction of the rows to shuffle and sort.
    "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true",
}
_ALWAYS = {
    # A batch without rows would come or not come depending on when the driver was restarted; the plan has its own flush.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def context_conf(conf: SparkConf, settings: RuntimeSettings) -> SparkConf:
    """The application's properties with the backfill's over them, and defaults under them."""
    for key, value in _DEFAULTS.items():
        conf.setIfMissing(key, value)
    return conf.setAll([*settings.spark_conf.items(), *_ALWAYS.items()])


def apply_settings(spark: SparkSession, settings: RuntimeSettings) -> None:
    """Sets what the application may have set otherwise in its session. A query takes a copy of them when it starts."""
    for key, value in (settings.spark_conf | _ALWAYS).items():
        if key.startswith("spark.sql.") and spark.conf.isModifiable(key):
            spark.conf.set(key, value)
