"""State is built from tables and continues with live Kafka, while records keep coming: what
``examples/bootstrap.yaml`` says, applied as it is but for what another cluster needs. Tables,
workspace, program and the application's own checkpoints are in an object store.
"""

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from installation import Installation
from live_cluster import Cluster, until
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from replays import Applied
from rest import Manifest
from stores import Stores
from teams import CATALOG_SECRET, Team, production

from backfill.controller.children.manifest_merge import merged
from backfill.runtime.spark_versions import NO_STATE_READER
from kafka import Broker, Client
from repository import ROOT

pytestmark = pytest.mark.timeout(1800)
EXAMPLE = ROOT / "examples" / "bootstrap.yaml"
PROGRAM = Path(__file__).with_name("user_profiles.py")
SOURCE, OUTPUT = "activity", "profiles"
"""Names in the example, and here also topics."""
TABLE, RESULT = "events.activity", "features.user_profiles_v3"
WINDOW_START = datetime(2024, 6, 30, 23, tzinfo=UTC)
KEPT = timedelta(days=30)
"""What the program keeps of a user, and how long before the window history is read."""
OLD = (WINDOW_START - timedelta(days=40), WINDOW_START - timedelta(days=20))
"""What was sent before the window: too early for anything, and early enough only for the state."""
START = WINDOW_START - timedelta(hours=1)
EVERY = timedelta(seconds=10)
HISTORY_USERS, USERS = 4, 6
"""Users of history, and with those that only live traffic has: they are in a partition of their
own.
"""
HISTORY_PARTITIONS, PARTITIONS = 2, 3
OLD_ROWS = len(OLD) * HISTORY_USERS
HISTORY_ROWS = OLD_ROWS + 720
UTC_TIME = pa.timestamp("us", tz="UTC")
ACTIVITY = pa.schema(
    [
        ("user_id", pa.string()),
        ("at", UTC_TIME),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("__metadata__", pa.struct([("kafka_ingestion_ts", UTC_TIME)])),
    ]
)
PROFILES = pa.schema([("updated_at", UTC_TIME), ("value", pa.string())])


def sent_at(number: int) -> datetime:
    """When an event is sent."""
    if number < OLD_ROWS:
        return OLD[number // HISTORY_USERS] + number * EVERY
    return START + (number - OLD_ROWS) * EVERY


def user(number: int) -> int:
    """Whose event it is."""
    return number % (HISTORY_USERS if number < HISTORY_ROWS else USERS)


def partition(number: int) -> int:
    """Where it is sent: all events of a user are in one partition."""
    who = user(number)
    return who % HISTORY_PARTITIONS if who < HISTORY_USERS else HISTORY_PARTITIONS


def record(number: int) -> tuple[int, datetime, str, str]:
    """The record of an event."""
    at = sent_at(number)
    return partition(number), at, f"user-{user(number)}", json.dumps({"at": at.isoformat()})


def expected(sent: int) -> list[str]:
    """The profile after each of the first events, of which those before the window are no
    result.
    """
    times: dict[int, list[datetime]] = {who: [] for who in range(USERS)}
    found = []
    for number in range(sent):
        who, at = user(number), sent_at(number)
        times[who] = [*(each for each in times[who] if each > at - KEPT), at]
        found.append(_json({"user": f"user-{who}", "updated_at": at, "events": len(times[who])}))
    return found


class Traffic:
    """A producer that never rests: first history, then a record after the other."""

    def __init__(self, client: Client):
        self._client = client
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self._send(HISTORY_ROWS)
        self._thread.start()

    def end(self) -> None:
        """Sends no more, and looks whether Kafka holds what was sent."""
        self._ending.set()
        self._thread.join()
        held: list[list[str]] = [[] for _ in range(PARTITIONS)]
        for number in range(self.sent):
            place, _, _, value = record(number)
            held[place].append(value)
        for place, values in enumerate(held):
            assert self._client.values(SOURCE, place) == values, f"partition {place}"

    def _run(self) -> None:
        while not self._ending.wait(0.1):
            self._send(1)

    def _send(self, count: int) -> None:
        self._client.send(SOURCE, map(record, range(self.sent, self.sent + count)))
        self.sent += count


@pytest.fixture
def broker(cluster: Cluster, directory: Path) -> Iterator[Broker]:
    """It starts beside the stores, while the operator is installed."""
    made = Broker(cluster, f"e2e-live-kafka-{uuid.uuid4().hex[:6]}", directory)
    try:
        made.make()
        yield made
    finally:
        made.remove()


@pytest.mark.skipif(bool(NO_STATE_READER), reason="transformWithState came with Spark 4.0")
def test_the_example_gives_every_row_of_history_and_of_live_traffic_once(
    stores: Stores,
    broker: Broker,
    remote: Installation,
    record_property: Callable[[str, object], None],
) -> None:
    (team,) = remote.teams
    catalog = stores.catalog()
    land(catalog)
    example, application = yaml.safe_load_all(EXAMPLE.read_text())
    store(catalog, application["spec"]["mainApplicationFile"])
    with broker.client() as client:
        client.create({SOURCE: PARTITIONS, OUTPUT: 1})
        traffic = Traffic(client)
        backfill = Applied(team, example["metadata"]["name"])
        team.apply(
            merged(example, {"spec": SMALL}),
            merged(application, {"spec": here(team, broker)}),
        )

        ended = backfill.until_ended()["status"]
        handed = ended["handOff"]
        assert backfill.condition("HandedOver")["reason"] == "Live"
        each = (HISTORY_ROWS // HISTORY_PARTITIONS,) * HISTORY_PARTITIONS
        offsets = {str(place): end for place, end in enumerate((*each, 0))}
        assert [source["offsets"] for source in handed["sources"]] == [offsets]

        traffic.end()
        profiles = expected(traffic.sent)
        first = next(n for n in range(HISTORY_ROWS) if sent_at(n) >= WINDOW_START)
        assert published(catalog) == Counter(profiles[first:HISTORY_ROWS])
        live = profiles[HISTORY_ROWS:]
        assert live, "rows on both sides of the cut"
        assert sent(client, len(live)) == Counter(live)
    pause = pause_seconds(stores, handed)
    record_property("hand-off pause in seconds", pause)
    print(f"hand-off pause: {pause:.1f} s")


SMALL: Manifest = {
    "scaling": {"minExecutors": 1, "maxExecutors": 1},
    "planning": {"resources": {"memory": "512Mi"}},
    "overrides": {"driver": {"memory": "1g"}, "executor": {"cores": 1, "memory": "1g"}},
    "handOff": {"overrides": {"executor": {"memory": "1g"}}},
}
"""What is other than in the Backfill of the example: sizes."""


def here(team: Team, broker: Broker) -> Manifest:
    """What is other than in the SparkApplication of the example: image, addresses, credentials,
    sizes, and what the namespace demands of pods.
    """
    made = production(team.storage)["spec"]
    address = team.storage.properties
    keys = {
        "AWS_ACCESS_KEY_ID": "s3.access-key-id",
        "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    }
    credentials = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": CATALOG_SECRET, "key": key}}}
        for name, key in keys.items()
    ]
    servers = [{"name": "KAFKA_BROKERS", "value": broker.address}]
    fields = ("cores", "coreRequest", "memory", "podSecurityContext", "securityContext")
    pod = {field: made["driver"][field] for field in fields}
    conf = {
        key: value
        for key, value in made["sparkConf"].items()
        if not key.startswith("spark.dynamicAllocation")
    }
    return {
        "image": made["image"],
        "imagePullPolicy": made["imagePullPolicy"],
        "sparkConf": conf
        | {
            "spark.sql.shuffle.partitions": "2",
            "spark.hadoop.fs.s3a.endpoint": address["s3.endpoint"],
            "spark.hadoop.fs.s3a.endpoint.region": address["s3.region"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
        },
        "driver": pod | {"env": servers + credentials},
        "executor": pod | {"env": credentials, "instances": 1},
    }


def land(catalog: Catalog) -> None:
    """The tables: history, as it was read from Kafka, and what the application makes of it."""
    offsets: Counter[int] = Counter()
    rows = []
    for number in range(HISTORY_ROWS):
        place, at, who, _ = record(number)
        row = {"user_id": who, "at": at, "__metadata__": {"kafka_ingestion_ts": at}}
        rows.append(row | {"kafka_partition": place, "kafka_offset": offsets[place]})
        offsets[place] += 1
    for table in (TABLE, RESULT):
        catalog.create_namespace(table.partition(".")[0])
    made, half = catalog.create_table(TABLE, ACTIVITY), HISTORY_ROWS // 2
    for some in (rows[:half], rows[half:]):
        made.append(pa.Table.from_pylist(some, ACTIVITY))
    catalog.create_table(RESULT, PROFILES)


def store(catalog: Catalog, program: str) -> None:
    """Puts the program where the example has it."""
    place = program.replace("s3a://", "s3://")
    with load_file_io(catalog.properties, place).new_output(place).create() as file:
        file.write(PROGRAM.read_bytes())


def sent(client: Client, count: int) -> "Counter[str]":
    """What the live application has sent; waits for so many rows."""

    def rows() -> list[str]:
        return [_normal(value) for value in client.values(OUTPUT)]

    until(lambda: len(rows()) >= count, f"{count} rows are sent to {OUTPUT}")
    return Counter(rows())


def published(catalog: Catalog) -> "Counter[str]":
    """What history has."""
    rows = catalog.load_table(RESULT).scan().to_arrow()
    return Counter(map(_normal, rows["value"].to_pylist()))


def pause_seconds(stores: Stores, handed: Manifest) -> float:
    """Time from the last micro-batch of history to the first one of the live application."""
    committed = stores.written("*/commits/*")
    (query,) = handed["queries"]
    batch, home = query["batch"], query["checkpointLocation"].removeprefix("s3a://")
    (history,) = [
        at
        for path, at in committed.items()
        if path.startswith("lake-backfills/") and path.endswith(f"/{OUTPUT}/commits/{batch}")
    ]
    return committed[f"{home}/commits/{batch + 1}"] - history


def _json(row: dict[str, Any]) -> str:
    return json.dumps(
        {
            key: value.isoformat() if isinstance(value, datetime) else value
            for key, value in row.items()
        },
        sort_keys=True,
    )


def _normal(value: str) -> str:
    """A row as it was sent, written as what is expected is."""
    row = json.loads(value)
    return _json(row | {"updated_at": datetime.fromisoformat(row["updated_at"]).astimezone(UTC)})
