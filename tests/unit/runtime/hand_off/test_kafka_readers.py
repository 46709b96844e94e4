"""Which programs read a source so that live traffic can go on there."""

from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.runtime.hand_off.hand_over import kafka_options

OPTIONS = {"kafka.bootstrap.servers": "kafka:9092"}


def options(*tables: str, **read: dict[str, str]) -> object:
    run: Any = SimpleNamespace(kafka_options=read, streamed_tables=set(tables))
    return kafka_options(run, "events", "spec.sources[0].live.kafka.topic")


def test_a_source_goes_on_where_the_program_reads_its_topic() -> None:
    assert options(events=OPTIONS) == OPTIONS


def test_a_source_that_is_not_or_not_only_read_from_kafka_is_refused() -> None:
    with pytest.raises(UnsupportedProgram, match="does not read source events from Kafka"):
        options(clicks=OPTIONS)
    for read in ({}, {"events": OPTIONS}):
        with pytest.raises(UnsupportedProgram, match="streams from the table of source events"):
            options("events", **read)
