"""The history of two skewed sources, the production application that reads them live, and what its output should be."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from installation import SPARK_IMAGE, Installation
from pyiceberg.catalog import Catalog
from rest import Manifest

from histories import MINUTE_US, UTC_TIME, events, land, query, sorted_rows

PROGRAM = Path(__file__).with_name("hourly_plays.py")
START, END = "2024-03-01T06:00:00Z", "2024-03-01T12:00:00Z"
_HOURLY = """
    SELECT date_trunc('hour', played) AS window_start, i.title, count(*) AS plays, sum(watched)::BIGINT AS watched
    FROM impressions i JOIN playbacks p ON i.title = p.title AND i.viewer = p.viewer
        AND shown <= played AND shown > played - INTERVAL 30 MINUTE
    GROUP BY ALL
"""
_WINDOW = f"window_start >= TIMESTAMPTZ '{START}' AND window_start < TIMESTAMPTZ '{END}'"


class Plays:
    """Tables with fifty impressions for each playback, and a summary that is wrong everywhere."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        impressions, shown = events(20_000, "shown", {8}, seed=1)
        table = catalog.create_table("raw.impressions", impressions.schema)
        land(table, impressions, shown, files=30, seed=1, straggle_us=4 * MINUTE_US)
        playbacks, played = events(400, "played", {8, 9}, seed=2)
        playbacks = playbacks.append_column("watched", pa.array(np.arange(len(playbacks))))
        land(catalog.create_table("raw.playbacks", playbacks.schema), playbacks, played, files=5, seed=2)
        self._truth = query(_HOURLY, impressions=impressions, playbacks=playbacks)
        self._wrong = query("SELECT window_start, title, plays + 1 AS plays, watched FROM truth", truth=self._truth)
        schema = pa.schema([("window_start", UTC_TIME), ("title", pa.int64()), ("plays", pa.int64()), ("watched", pa.int64())])
        catalog.create_table("raw.summary", schema).append(self._wrong.cast(schema))

    @property
    def output(self) -> list[tuple[Any, ...]]:
        """The rows that readers of the summary see."""
        return sorted_rows(self._catalog.load_table("raw.summary").scan().to_arrow())

    @property
    def mended(self) -> list[tuple[Any, ...]]:
        """What they should see: the window as it should be, the rest as it was."""
        inside = query(f"SELECT * FROM truth WHERE {_WINDOW}", truth=self._truth)
        outside = query(f"SELECT * FROM wrong WHERE NOT ({_WINDOW})", wrong=self._wrong)
        assert min(len(inside), len(outside)) > 10
        return sorted_rows(inside, outside)


def production(installation: Installation) -> Manifest:
    """The SparkApplication as it runs in production; there is no Kafka here, so it is not started."""
    application = {"name": "program", "configMap": {"name": "hourly-plays"}}
    mounts = [{"name": "program", "mountPath": "/opt/application"}, installation.lake_mount]
    variables = {"KAFKA_BROKERS": "kafka.production:9092", "CHECKPOINTS": "/production/checkpoints"}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    size = {"cores": 1, "coreRequest": "100m", "memory": "1g"}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "hourly-plays", "labels": {"team": "streaming"}},
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": "4.3.0",
            "image": SPARK_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "mainApplicationFile": "local:///opt/application/main.py",
            "restartPolicy": {"type": "Always"},
            "suspend": True,
            "sparkConf": {"spark.sql.shuffle.partitions": "16", "spark.dynamicAllocation.enabled": "true"},
            "volumes": [application, installation.lake_volume],
            "driver": size | {"serviceAccount": "spark", "env": env, "volumeMounts": mounts},
            "executor": size | {"instances": 3, "volumeMounts": [installation.lake_mount]},
        },
    }


def backfill(installation: Installation, name: str = "again", **spec: Any) -> Manifest:
    """A Backfill that mends the summary; ``spec`` replaces fields."""
    sources = [
        {"name": topic, "table": f"lake.raw.{topic}", "timestampColumn": "ingested", "live": {"kafka": {"topic": topic}}}
        for topic in ("impressions", "playbacks")
    ]
    table = {"table": "lake.raw.summary", "timestampColumn": "window_start"}
    fields: dict[str, Any] = {
        "applicationRef": {"name": "hourly-plays"},
        "window": {"start": START, "end": END, "warmUp": "1h", "drain": "2h"},
        "sources": sources,
        "ordering": {"policy": "WithinLateness", "allowedLateness": "5m"},
        "maxMisalignment": "2h",
        "outputs": [{"name": "summary", **table, "publish": {"mode": "Replace"}}],
        "scaling": {"minExecutors": 1, "maxExecutors": 2},
        "workspace": str(installation.directory / "work"),
        "catalogs": [{"name": "lake", "secretRef": {"name": "lake-catalog"}}],
    }
    return {"apiVersion": "backfill.dev/v1alpha1", "kind": "Backfill", "metadata": {"name": name}, "spec": fields | spec}
