"""Three decisions are enough: which application, which window, and what becomes of the result."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from production import Ended, ended
from pyiceberg.catalog import Catalog
from test_proposed_backfill import PROGRAM, demo

from backfill.api.backfill import API_VERSION, KIND, Backfill
from histories import UTC_TIME

WINDOW = "2024-03-01T04:00:00Z/2024-03-01T08:00:00Z"
MORE = """
airports = spark.table("raw.airports").select("origin")
by_hour = flights.join(airports, "origin").groupBy(F.window("scheduled", "1 hour"), "origin").count()
(by_hour.select(F.col("window.start").alias("began"), "origin", "count").writeStream
    .queryName("hourly").toTable("hourly_departures"))


def tell(batch, number):
    import requests

    requests.post("http://example.com", json=batch.count())


flights.writeStream.foreachBatch(tell).start()
"""


def test_the_demo_runs_with_a_window_and_a_publish_mode_alone(
    lake: Catalog, tmp_path: Path
) -> None:
    production = demo(lake, tmp_path)
    arguments = ("application.yaml", "--window", WINDOW, "--publish", "Append")
    end = ended(production.start("run", *arguments, "--output", "json"))
    assert end.status == 0, end.err
    assert "# Results of departures depend on rows up to 1h earlier." in end.err
    rows = lake.load_table("ops.departures").scan().to_arrow()
    inside = [at.hour for at in rows["scheduled"].to_pylist()]
    assert {*inside} == {4, 5, 6, 7}
    assert rows.num_rows == 4 * 180 * 180  # every flight of an hour with the weather of that hour

    stored = Backfill.model_validate_json(
        (
            tmp_path
            / ".backfill/default/departures-2024-03-01t0400-to-2024-03-01t0800/backfill.json"
        ).read_text()
    )
    assert stored.status.resolved is not None
    reasons = {each.field: each.why for each in stored.status.resolved.origins}
    assert "up to 1h earlier" in reasons["spec.window.warmUp"]

    again = ended(production.start("run", *arguments, "--output", "json"))
    assert again.status == 0, again.err
    assert (
        json.loads(again.out.splitlines()[-1])["name"]
        == "departures-2024-03-01t0400-to-2024-03-01t0800"
    )
    assert lake.load_table("ops.departures").scan().to_arrow().num_rows == rows.num_rows
    other = ended(production.start("run", *arguments[:-1], "Replace"))
    assert other.status == 2
    assert 'spec.outputs[0].publish.mode: was "Append", is "Replace"' in other.err


def test_what_a_person_has_to_decide_is_asked_for_unless_the_spec_decides_it(
    lake: Catalog, tmp_path: Path
) -> None:
    production = demo(lake, tmp_path)
    airports = pa.table({"origin": ["EWR"]})
    lake.create_table("raw.airports", airports.schema).append(airports)
    by_hour = [("began", UTC_TIME), ("origin", pa.string()), ("count", pa.int64())]
    lake.create_table("ops.by_hour", pa.schema(by_hour))
    program = PROGRAM.read_text().replace("spark.streams.await", f"{MORE}\nspark.streams.await")
    (tmp_path / "application.py").write_text(program)
    start, end = WINDOW.split("/")
    spec: dict[str, Any] = {
        "applicationRef": {"name": "departures"},
        "window": {"start": start, "end": end},
        "publish": "Append",
    }

    def planned(**fields: Any) -> Ended:
        document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "short"}}
        text = yaml.safe_dump(document | {"spec": spec | fields})
        application = (tmp_path / "application.yaml").read_text()
        (tmp_path / "short.yaml").write_text(f"{application}---\n{text}")
        return ended(production.start("plan", "short.yaml", "--output", "json"))

    asked = planned()
    assert asked.status == 2
    errors = " ".join(asked.err.split())
    assert "spec.staticTables: Tables that the program reads once. Decide whether" in errors
    assert "list these tables in spec.staticTables" in errors
    assert "Set this to the Iceberg table for the result of hourly" in errors
    assert '"Append" does not suit tell: it has effects outside of Spark' in errors
    assert "timestampColumn" not in errors, "what follows from an unknown table is not asked for"

    hourly = {"name": "hourly", "table": "lake.ops.by_hour", "timestampColumn": "began"}
    decided = planned(
        staticTables=[{"table": "lake.raw.airports", "asOf": "now"}],
        outputs=[hourly],
        ignoredQueries=["tell"],
    )
    assert decided.status == 0, decided.err
    found = json.loads(decided.out)["resolved"]
    assert {each["name"] for each in found["sources"]} == {"flights", "weather"}
    assert "departures" in {each["name"] for each in found["outputs"]}
