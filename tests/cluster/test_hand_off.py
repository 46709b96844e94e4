"""State is built from tables and goes on with live Kafka, while records keep coming: of one topic by the
offsets of the rows, of the other by time. Tables, workspace and the application's own checkpoints are in
an object store.
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
from installation import Installation
from live_cluster import Cluster, until
from pyiceberg.catalog import Catalog
from replays import Applied
from rest import Manifest
from stores import Stores
from teams import CATALOG_SECRET, Team, production

from kafka import Broker, Client

pytestmark = pytest.mark.timeout(1800)
START = datetime(2024, 3, 1, tzinfo=UTC)
EVERY = timedelta(seconds=10)
WINDOW = timedelta(minutes=5)
HISTORY_ROWS, HISTORY_PARTITIONS, PARTITIONS = 720, 2, 3
MARGIN = timedelta(minutes=5)
CLOSING = timedelta(days=1)
"""So much later is the event that closes all windows."""
PROGRAM = Path(__file__).with_name("user_activity.py")
NAME = "user-activity"
UTC_TIME = pa.timestamp("us", tz="UTC")
HISTORY = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.int64()),
        ("at", UTC_TIME),
        ("ingested", UTC_TIME),
    ]
)
WITH_OFFSETS = pa.schema([*HISTORY, ("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])
SENT = pa.schema([("at", UTC_TIME), ("value", pa.string())])
SOURCES = {"activity": WITH_OFFSETS, "visits": HISTORY}
TOPICS = ("counts", "firsts")


def event(number: int) -> dict[str, Any]:
    """The event that is sent as this one. Every fifth one repeats an event from nine before."""
    source = number - 9 if number % 5 == 0 and number >= 9 else number
    return {"id": source, "user": source // 5 % 7, "at": START + source * EVERY}


def sent_at(number: int) -> datetime:
    """When it is sent."""
    return START + number * EVERY


def partition(number: int) -> int:
    """Where it is sent. History has none of the last partition."""
    return number % (HISTORY_PARTITIONS if number < HISTORY_ROWS else PARTITIONS)


class Traffic:
    """A producer that never rests: first history, then a record after the other, to all topics."""

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
            held[partition(number)].append(_json(event(number)))
        for topic in SOURCES:
            for each, records in enumerate(held):
                assert self._client.values(topic, each) == records, f"partition {each} of {topic}"

    def close(self) -> None:
        """Sends what closes all windows."""
        at = sent_at(self.sent) + CLOSING
        self._client.send("activity", [(0, at, _json(event(self.sent) | {"at": at}))])

    @property
    def expected(self) -> dict[str, Counter[str]]:
        """What has to be sent for everything but the event that closes, by topic."""
        events = [event(number) for number in range(self.sent)]
        windows = Counter(
            (START + (each["at"] - START) // WINDOW * WINDOW, each["user"]) for each in events
        )
        firsts = {each["id"]: each for each in events}
        return {
            "counts": Counter(
                _json({"at": at, "user": user, "events": count})
                for (at, user), count in windows.items()
            ),
            "firsts": Counter(map(_json, firsts.values())),
        }

    def _run(self) -> None:
        while not self._ending.wait(0.1):
            self._send(1)

    def _send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        records = [(partition(each), sent_at(each), _json(event(each))) for each in numbers]
        for topic in SOURCES:
            self._client.send(topic, records)
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


def test_history_and_live_traffic_give_every_row_once(
    stores: Stores,
    broker: Broker,
    remote: Installation,
    record_property: Callable[[str, object], None],
) -> None:
    (team,) = remote.teams
    catalog = stores.catalog()
    land(catalog)
    with broker.client() as client:
        client.create(dict.fromkeys(SOURCES, PARTITIONS) | dict.fromkeys(TOPICS, 1))
        traffic = Traffic(client)
        backfill = Applied(team, NAME)
        team.apply(*application(team, broker), bootstrap(team))

        ended = backfill.until_ended()["status"]
        handed = ended["handOff"]
        assert backfill.condition("HandedOver")["reason"] == "Live"
        assert {each["name"]: each["offsets"] for each in handed["sources"]} == goes_on()
        assert not handed.get("repeatedIn")

        traffic.end()
        traffic.close()
        expected, history = traffic.expected, {name: published(catalog, name) for name in TOPICS}
        for name in TOPICS:
            live = sent(client, name, expected[name].total() - history[name].total())
            assert history[name] and live, f"{name}: rows on both sides of the cut"
            assert history[name] + live == expected[name], name
    pause = pause_seconds(stores, handed)
    record_property("hand-off pause in seconds", pause)
    print(f"hand-off pause: {pause:.1f} s")


def goes_on() -> dict[str, dict[str, int]]:
    """By source, where live traffic goes on in each partition: after history, or at the first record
    that is not older than its last minutes.
    """
    ends = {str(each): HISTORY_ROWS // HISTORY_PARTITIONS for each in range(HISTORY_PARTITIONS)}
    last = [
        each for each in range(HISTORY_ROWS) if sent_at(each) >= sent_at(HISTORY_ROWS - 1) - MARGIN
    ]
    again = Counter(str(partition(each)) for each in last)
    starts = {each: end - again[each] for each, end in ends.items()}
    return {"activity": ends | {"2": 0}, "visits": starts | {"2": 0}}


def sent(client: Client, topic: str, count: int) -> "Counter[str]":
    """What the live application has sent; waits for so many rows."""

    def rows() -> list[str]:
        return [_normal(value) for value in client.values(topic)]

    until(lambda: len(rows()) >= count, f"{count} rows are sent to {topic}")
    return Counter(rows())


def published(catalog: Catalog, name: str) -> "Counter[str]":
    """What history has."""
    rows = catalog.load_table(f"raw.{name}").scan().to_arrow()
    return Counter(map(_normal, rows["value"].to_pylist()))


def land(catalog: Catalog) -> None:
    """The tables: history, as it was read from Kafka, and what the application makes of it."""
    offsets: Counter[int] = Counter()
    rows = []
    for number in range(HISTORY_ROWS):
        place = partition(number)
        position = {"kafka_partition": place, "kafka_offset": offsets[place]}
        rows.append(event(number) | {"ingested": sent_at(number)} | position)
        offsets[place] += 1
    half = HISTORY_ROWS // 2
    for name, schema in SOURCES.items():
        table = catalog.create_table(f"raw.{name}", schema)
        for part in (rows[:half], rows[half:]):
            table.append(pa.Table.from_pylist(part, schema))
    for name in TOPICS:
        catalog.create_table(f"raw.{name}", SENT)


def application(team: Team, broker: Broker) -> Iterator[Manifest]:
    """The new version of a program with state, which has never run."""
    made = production(team.storage)
    made["metadata"]["name"] = NAME
    store = team.storage.properties
    secret = {
        "AWS_ACCESS_KEY_ID": "s3.access-key-id",
        "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    }
    keys = [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": CATALOG_SECRET, "key": key}},
        }
        for name, key in secret.items()
    ]
    variables = {"KAFKA_BROKERS": broker.address, "CHECKPOINTS": f"s3a://production/{NAME}"}
    spec = made["spec"]
    spec["volumes"][0]["configMap"]["name"] = NAME
    spec["driver"]["env"] = [
        {"name": name, "value": value} for name, value in variables.items()
    ] + keys
    spec["executor"] |= {"env": keys, "instances": 1}
    spec["sparkConf"] |= {
        "spark.dynamicAllocation.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.s3a.endpoint": store["s3.endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": store["s3.region"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    program = {"metadata": {"name": NAME}, "data": {"main.py": PROGRAM.read_text()}}
    yield {"apiVersion": "v1", "kind": "ConfigMap", **program}
    yield made


def bootstrap(team: Team) -> Manifest:
    """The Backfill that builds its state."""
    spec = {
        "applicationRef": {"name": NAME},
        "window": {"start": START.isoformat(), "end": "Live"},
        "sources": [
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "ingested",
                "kafka": {"partitionColumn": "kafka_partition", "offsetColumn": "kafka_offset"}
                if schema is WITH_OFFSETS
                else {},
                "live": {"kafka": {"topic": name}},
            }
            for name, schema in SOURCES.items()
        ],
        "ordering": {"policy": "Exact"},
        "maxMisalignment": "1h",
        "outputs": [
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "at",
                "publish": {"mode": "Append"},
            }
            for name in TOPICS
        ],
        "handOff": {
            "to": "Live",
            "start": "Deploy",
            "maxLag": "30s",
            "startingTimestampMargin": f"{MARGIN // timedelta(seconds=1)}s",
        },
        "scaling": {"minExecutors": 1, "maxExecutors": 1},
        "workspace": team.storage.workspace,
        "catalogs": [{"name": "lake", "secretRef": {"name": CATALOG_SECRET}}],
    }
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "metadata": {"name": NAME},
        "spec": spec,
    }


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
    return _json(row | {"at": datetime.fromisoformat(row["at"]).astimezone(UTC)})


def pause_seconds(stores: Stores, handed: Manifest) -> float:
    """Time from the last micro-batch of history to the first one of the live application, of the
    query that took longest.
    """
    committed = stores.written("*/commits/*")
    pauses = []
    for query in handed["queries"]:
        batch, home = query["batch"], query["checkpointLocation"].removeprefix("s3a://")
        (history,) = [
            at
            for path, at in committed.items()
            if path.startswith("lake/") and path.endswith(f"/{query['name']}/commits/{batch}")
        ]
        pauses.append(committed[f"{home}/commits/{batch + 1}"] - history)
    return max(pauses)
