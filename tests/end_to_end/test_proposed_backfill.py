"""``backfill init``: a Backfill is proposed for the demo's unmodified program, which knows only
Kafka, and can be planned as it is.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml
from production import Production, ended
from pyiceberg.catalog import Catalog

from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.api.quantities import format_duration
from histories import DAY_US, HOUR_US, SECOND_US, UTC_TIME, land, times
from manifests import spark_application
from repository import ROOT

PROGRAM = ROOT / "examples" / "demo" / "application.py"
ALERTS = """
(flights.filter("departure_delay > 60").selectExpr("carrier AS key", "origin AS value").writeStream
    .format("kafka").option("kafka.bootstrap.servers", "kafka:9092").option("topic", "alerts").start())
airports = spark.sql("select raw.airports.* from raw.airports")
hourly = flights.groupBy(F.window("scheduled", "1 hour"), "origin").count().join(airports, "origin")
hourly.writeStream.queryName("by_origin").outputMode("update").format("console").start()
by_hour = flights.groupBy(F.window("scheduled", "1 hour"), "origin").count()
(by_hour.select(F.col("window.start").alias("began"), "origin", "count").writeStream
    .queryName("hourly").toTable("hourly_departures"))


def notify(batch, number):
    batch.write.format("iceberg").mode("append").save("lake.raw.notices")


flights.writeStream.foreachBatch(notify).start()
"""


def landed(lake: Catalog, name: str, columns: dict[str, pa.Array], at: np.ndarray) -> None:
    """Rows that arrive three seconds after they happened, a few a minute and a half."""
    arrived = at + np.where(np.arange(len(at)) % 500 == 7, 90, 3) * SECOND_US
    more = {
        "ingested_at": times(arrived),
        "kafka_partition": pa.array(np.zeros(len(at), "int32")),
        "kafka_offset": pa.array(np.arange(len(at))),
    }
    rows = pa.table(columns | more)
    land(lake.create_table(f"raw.{name}", rows.schema), rows, arrived, files=3, seed=1)


def demo(lake: Catalog, directory: Path) -> Production:
    at = np.arange(DAY_US, DAY_US + 12 * HOUR_US, 20 * SECOND_US)
    codes = pa.array(["EWR"] * len(at))
    number = pa.array(np.ones(len(at)))
    flights = {"carrier": codes, "flight": pa.array(np.ones(len(at), "int32")), "origin": codes}
    flights |= {"dest": codes, "scheduled": times(at), "departure_delay": number}
    landed(lake, "flights", flights, at)
    weather = {"origin": codes, "observed": times(at), "wind_speed": number}
    landed(lake, "weather", weather | {"visibility": number, "precipitation": number}, at)
    lake.create_namespace("ops")
    columns = {"carrier": pa.string(), "flight": pa.int32(), "origin": pa.string()}
    columns |= {"dest": pa.string(), "scheduled": UTC_TIME, "departure_delay": pa.float64()}
    columns |= dict.fromkeys(("wind_speed", "visibility", "precipitation"), pa.float64())
    lake.create_table("ops.departures", pa.schema({**columns, "cancelled": pa.bool_()}))
    shutil.copy(PROGRAM, directory / "application.py")
    application = spark_application("departures", mainApplicationFile="application.py")
    (directory / "application.yaml").write_text(yaml.safe_dump(application))
    return Production(directory, lake)


def test_the_demo_is_proposed_without_open_questions_and_passes_the_plan(
    lake: Catalog, tmp_path: Path
) -> None:
    production = demo(lake, tmp_path)
    window = "2024-03-01T04:00:00Z/2024-03-01T08:00:00Z"
    arguments = ("--application", "application.yaml", "--window", window, "--output", "b.yaml")
    end = ended(production.start("init", *arguments))
    assert end.status == 0, end.err
    assert "Everything was found" in end.err

    text = (tmp_path / "b.yaml").read_text()
    spec = load_manifests(tmp_path / "b.yaml").backfill.spec
    assert [(each.name, each.table, each.timestamp_column) for each in spec.sources] == [
        ("flights", "lake.raw.flights", "ingested_at"),
        ("weather", "lake.raw.weather", "ingested_at"),
    ]
    assert {each.kafka.offset_column for each in spec.sources} == {"kafka_offset"}
    (output,) = spec.outputs
    assert (output.name, output.table, output.timestamp_column) == (
        "departures",
        "lake.ops.departures",
        "scheduled",
    )
    lengths = (spec.window.warm_up, spec.window.drain, spec.ordering.allowed_lateness)
    assert [format_duration(each) for each in lengths] == ["1h", "15m", "5m"]
    words = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
    assert "Results of departures depend on rows up to 1h earlier" in words
    assert "up to 1m30s after they happened (scheduled), half of them within 3s" in words
    assert "inner join on ((origin = station) AND" in words

    planned = ended(production.start("plan", "b.yaml"))
    assert planned.status == 0, planned.err
    assert "warning" not in planned.out + planned.err


def test_what_cannot_be_known_is_asked_for(lake: Catalog, tmp_path: Path) -> None:
    production = demo(lake, tmp_path)
    notices = pa.schema([("scheduled", UTC_TIME), ("origin", pa.string())])
    for name in ("notices", "airports"):
        lake.create_table(f"raw.{name}", notices)
    program = PROGRAM.read_text().replace("spark.streams.await", f"{ALERTS}\nspark.streams.await")
    (tmp_path / "application.py").write_text(program)
    end = ended(
        production.start(
            "init", "--application", "application.yaml", "--window", "2024-03-01/2024-03-02"
        )
    )
    assert end.status == 0, end.err
    (tmp_path / "b.yaml").write_text(end.out)
    backfill = load_manifests(tmp_path / "b.yaml").backfill
    outputs = {each.name: each for each in backfill.spec.outputs}
    assert outputs.keys() == {"departures", "hourly", "notices"}
    assert outputs["hourly"].table == "TODO.namespace.table_written"
    assert outputs["hourly"].timestamp_column == "began"
    assert outputs["notices"].table == "lake.raw.notices"
    assert backfill.spec.ignored_queries == ("alerts",)
    assert [each.table for each in backfill.spec.static_tables] == ["lake.raw.airports"]
    words = " ".join(line.strip().removeprefix("#").strip() for line in end.out.splitlines())
    assert "The query hourly, reads flights; watermark of 15m on scheduled; groups by" in words
    assert (
        "TODO: Set this to the Iceberg table for the result of hourly, which writes"
        " hourly_departures" in words
    )
    assert "TODO lines, then run:" in end.err
