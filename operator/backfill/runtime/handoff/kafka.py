"""Asks Kafka what it holds, with the client of Spark's Kafka source and the program's own options.

Nothing is read, and no consumer group is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.runtime.handoff.cut import Held

_PREFIX = "kafka."
_ANSWER_SECONDS = 60
_TIMEOUTS = ("request.timeout.ms", "default.api.timeout.ms")
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in which a source goes on."""

    name: str
    field: str
    """Field of the resource that names it, for messages."""
    history_start_us: int
    """Where history begins."""


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Properties of a Kafka client that connects as a reader with these options does, and waits for
    an answer only so long.
    """
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
    # the client refuses to wait for a request longer than for the whole answer
    return given | dict.fromkeys(_TIMEOUTS, str(_ANSWER_SECONDS * 1_000))


def held_records(spark: SparkSession, options: Mapping[str, str], topic: Topic) -> dict[int, Held]:
    """What Kafka holds of each partition of a topic. ``options`` are those of the program's reader.

    Raises:
        InvalidPlanInput: there is no such topic, or Kafka does not answer.
    """
    jvm: Any = spark._jvm
    client = jvm.org.apache.kafka.clients.admin.AdminClient
    if isinstance(client, JavaPackage):
        raise InvalidPlanInput(
            Problem(
                topic.field,
                "this image has no Kafka client for Spark",
                "add the jars with which the application reads Kafka",
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

            def offsets(spec: Any) -> dict[int, int]:
                return _offsets(jvm, admin, topic.name, partitions, spec)

            earliest, end = offsets(specs.earliest()), offsets(specs.latest())
            since = offsets(specs.forTimestamp(topic.history_start_us // 1_000))
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise _problem(error, topic) from None
    return {
        each: Held(earliest[each], end[each], end[each] if since[each] < 0 else since[each])
        for each in partitions
    }


def _partitions(jvm: Any, admin: Any, topic: str) -> list[int]:
    names = jvm.java.util.ArrayList()
    names.add(topic)
    described = admin.describeTopics(names).allTopicNames().get().get(topic)
    return sorted(int(each.partition()) for each in described.partitions())


def _offsets(jvm: Any, admin: Any, topic: str, partitions: list[int], spec: Any) -> dict[int, int]:
    places = {each: jvm.org.apache.kafka.common.TopicPartition(topic, each) for each in partitions}
    asked = jvm.java.util.HashMap()
    for place in places.values():
        asked.put(place, spec)
    answer = admin.listOffsets(asked)
    return {
        each: int(answer.partitionResult(place).get().offset()) for each, place in places.items()
    }


def _problem(error: Py4JJavaError, topic: Topic) -> InvalidPlanInput:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    if str(cause.getClass().getSimpleName()) == _UNKNOWN_TOPIC:
        return InvalidPlanInput(
            Problem(
                topic.field,
                f"Kafka has no topic {topic.name}",
                "name the topic that the program reads",
            )
        )
    return InvalidPlanInput(
        Problem(
            topic.field,
            f"Kafka does not say which records of topic {topic.name} it holds:"
            f" {first_line(Exception(str(cause.getMessage())))}",
            "check that the driver reaches the brokers, and may describe the topic",
            may_pass=True,
        )
    )
