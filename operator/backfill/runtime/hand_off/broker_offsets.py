"""Asks Kafka what it holds, with the client of Spark's Kafka source and the program's own options.

Nothing is read, and no consumer group is used.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.runtime.hand_off.kafka_start_offsets import Held, Retention
from backfill.runtime.java_classes import java_classes

_PREFIX = "kafka."
_ANSWER_SECONDS = 60
_TIMEOUTS = ("request.timeout.ms", "default.api.timeout.ms")
_CLEANUP, _RETENTION, _RETENTION_BYTES = "cleanup.policy", "retention.ms", "retention.bytes"
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in which a source continues."""

    name: str
    field: str
    """Field of the resource that names it, for messages."""
    since_us: int
    """From when on records are read of partitions without known rows."""
    newest_us: int
    """From when on records are expected that follow history."""


@dataclass(frozen=True, slots=True)
class Records:
    """What Kafka holds of a topic."""

    partitions: Mapping[int, Held]
    retention: Retention


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Properties of a Kafka client that connects as a reader with these options does, and limits
    how long it waits for an answer.
    """
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
    # the client refuses to wait for a request longer than for the whole answer
    return given | dict.fromkeys(_TIMEOUTS, str(_ANSWER_SECONDS * 1_000))


def held_records(spark: SparkSession, options: Mapping[str, str], topic: Topic) -> Records:
    """What Kafka holds of a topic. ``options`` are those of the program's reader.

    Raises:
        InvalidPlanInput: there is no such topic, or Kafka does not answer.
    """
    jvm = java_classes(spark)
    client = jvm.org.apache.kafka.clients.admin.AdminClient
    if isinstance(client, JavaPackage):
        raise InvalidPlanInput(
            Problem(
                topic.field,
                "this image has no Kafka client for Spark",
                "add the JARs with which the application reads Kafka",
            )
        )
    properties = jvm.java.util.Properties()
    for name, value in client_properties(options).items():
        properties.put(name, value)
    try:
        admin = client.create(properties)
        try:
            partitions = _partitions(jvm, admin, topic.name)
            specs = jvm.org.apache.kafka.clients.admin.OffsetSpec

            def first(spec: Any) -> dict[int, tuple[int, int]]:
                return _first(jvm, admin, topic.name, partitions, spec)

            def first_at(us: int) -> dict[int, tuple[int, int]]:
                # negative ones have meanings of their own, such as the end
                return first(specs.forTimestamp(max(us // 1_000, 0)))

            earliest, end = first(specs.earliest()), first(specs.latest())
            since, newest = first_at(topic.since_us), first_at(topic.newest_us)
            left = first_at(0)
            retention = _retention(jvm, admin, topic.name)
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise _problem(error, topic) from None

    def or_end(found: dict[int, tuple[int, int]], partition: int) -> int:
        return end[partition][0] if found[partition][0] < 0 else found[partition][0]

    held = {
        each: Held(
            earliest[each][0],
            end[each][0],
            or_end(since, each),
            None if newest[each][0] < 0 else newest[each][1] * 1_000,
            or_end(left, each),
        )
        for each in partitions
    }
    return Records(held, retention)


def _partitions(jvm: Any, admin: Any, topic: str) -> list[int]:
    names = jvm.java.util.ArrayList()
    names.add(topic)
    described = admin.describeTopics(names).allTopicNames().get().get(topic)
    return sorted(int(each.partition()) for each in described.partitions())


def _first(
    jvm: Any, admin: Any, topic: str, partitions: list[int], spec: Any
) -> dict[int, tuple[int, int]]:
    """By partition, offset of a record and its time in milliseconds; -1 where there is none."""
    places = {each: jvm.org.apache.kafka.common.TopicPartition(topic, each) for each in partitions}
    asked = jvm.java.util.HashMap()
    for place in places.values():
        asked.put(place, spec)
    answer = admin.listOffsets(asked)
    found = {each: answer.partitionResult(place).get() for each, place in places.items()}
    return {each: (int(one.offset()), int(one.timestamp())) for each, one in found.items()}


def _retention(jvm: Any, admin: Any, topic: str) -> Retention:
    """What a topic keeps; unknown if the program may not ask."""
    resources = jvm.java.util.ArrayList()
    kind = getattr(jvm.org.apache.kafka.common.config, "ConfigResource$Type").TOPIC
    resource = jvm.org.apache.kafka.common.config.ConfigResource(kind, topic)
    resources.add(resource)
    try:
        config = admin.describeConfigs(resources).all().get().get(resource)
    except Py4JJavaError as error:
        _log.info("the retention of topic %s cannot be read: %s", topic, _cause(error))
        return Retention(None, limited_by_size=False)
    policy = _value(config, _CLEANUP)
    if policy is not None and "delete" not in policy:
        # limits do not count where records are only compacted, or with an empty list kept for good
        return Retention(None, limited_by_size=False)
    milliseconds, size = (_limit(config, name) for name in (_RETENTION, _RETENTION_BYTES))
    return Retention(None if milliseconds is None else milliseconds * 1_000, size is not None)


def _limit(config: Any, name: str) -> int | None:
    """A limit of a topic; None if there is none, or a service like Kafka does not say it."""
    limit = int(_value(config, name) or -1)
    return None if limit < 0 else limit


def _value(config: Any, name: str) -> str | None:
    entry = config.get(name)
    return None if entry is None else entry.value()


def _problem(error: Py4JJavaError, topic: Topic) -> InvalidPlanInput:
    cause = _cause(error)
    if str(cause.getClass().getSimpleName()) == _UNKNOWN_TOPIC:
        return InvalidPlanInput(
            Problem(
                topic.field,
                f"Kafka has no topic {topic.name}",
                "set the topic that the program reads",
            )
        )
    return InvalidPlanInput(
        Problem(
            topic.field,
            f"it is unknown which records of topic {topic.name} Kafka has:"
            f" {first_line(Exception(str(cause.getMessage())))}",
            "check that the driver can reach the brokers and is allowed to describe the topic",
            may_pass=True,
        )
    )


def _cause(error: Py4JJavaError) -> Any:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause
