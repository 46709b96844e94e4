"""A source whose table lacks the Kafka offsets of its rows, so that live traffic goes on by time,
and what the hand-off test expects of queries of it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from backfill.protocol.hand_off_messages import HandOffReport

SOURCE, REMOVED = "visits", "outdated"
"""The source, which is also its topic; and another topic, which no longer holds all of it."""
MARGIN = timedelta(minutes=5)
COLUMNS = pa.schema(
    [("id", pa.int64()), ("user", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]
)
_BEHIND = 1
"""Partition whose last rows ingestion has not written yet."""
_BEHIND_SINCE = 230
PROGRAM = """
keep_state_in("RocksDB")
visits, clicks = topic("visits"), topic("clicks").alias("c")
unique = visits.dropDuplicates(["id", "at"])
near = F.expr("e.user = c.user and c.at between e.at - interval 1 minute and e.at + interval 1 minute and e.id % 4 = c.id % 4")
joined = unique.alias("e").join(clicks, near).select("e.id", "e.user", "e.at", F.col("c.id").alias("click"))
counts = visits.groupBy(F.window("at", "5 minutes"), "user").agg(F.count("*").alias("n"))
queries = [write(unique, "copies"), write(joined, "joined"), write(counts.select("window.start", "user", "n"), "counts")]
for query in queries:
    query.awaitTermination()
"""
UNIQUE, DOUBLED = ("copies", "joined"), "counts"
"""Outputs of the program without and with what is read twice."""
Row = Mapping[str, Any]


def ingested(rows: Iterable[Row]) -> list[Row]:
    """Of the rows of history, those that the table has."""
    return [
        row
        for number, row in enumerate(rows)
        if row["kafka_partition"] != _BEHIND or number < _BEHIND_SINCE
    ]


def write_records(file: Path, rows: Iterable[Row]) -> None:
    """The records of rows, to be sent with times of their own."""
    file.write_text(
        "\n".join(
            json.dumps(
                {
                    "topic": SOURCE,
                    "partition": row["kafka_partition"],
                    "key": None,
                    "time": round(row["at"].timestamp() * 1_000),
                    "value": json.dumps(
                        {"id": row["id"], "user": row["user"], "at": row["at"].isoformat()}
                    ),
                }
            )
            for row in rows
        )
    )


def check_cut(report: HandOffReport, history: Iterable[Row], live: Iterable[Row]) -> list[Row]:
    """Each partition goes on at its first record of the last minutes of history. Returns the rows
    that are read twice.
    """
    table = ingested(history := list(history))
    starting = max(row["at"] for row in table) - MARGIN
    (source,) = (each for each in report.sources if each.source == SOURCE)
    assert source.starting_timestamp == starting
    first: dict[str, int] = {}
    for row in (*history, *live):
        if row["at"] >= starting:
            first.setdefault(str(row["kafka_partition"]), row["kafka_offset"])
    assert source.offsets == first
    assert report.repeated_in == (DOUBLED,)
    repeated = [row for row in table if row["kafka_offset"] >= first[str(row["kafka_partition"])]]
    assert 0 < len(repeated) < len(table)
    return repeated


def check_counted_twice(
    whole: Iterable[Row], before: Iterable[Row], after: Iterable[Row], repeated: Iterable[Row]
) -> None:
    """Windows that were final in history are right, and others count what is read twice."""
    more = Counter((_window(row["at"]), row["user"]) for row in repeated)
    expected, final, open_then = (
        {_key(row): row["n"] for row in rows} for rows in (whole, before, after)
    )
    assert final
    assert open_then
    assert not final.keys() & open_then.keys()
    assert final | open_then == expected | {
        key: count + more[key] for key, count in expected.items() if key in open_then
    }
    assert any(more[key] for key in open_then)


def _key(row: Row) -> tuple[str, int]:
    return _text(row["start"]), row["user"]


def _window(at: datetime) -> str:
    return _text(at - timedelta(minutes=at.minute % 5, seconds=at.second))


def _text(time: datetime | str) -> str:
    return time if isinstance(time, str) else time.replace(tzinfo=None).isoformat(" ")
