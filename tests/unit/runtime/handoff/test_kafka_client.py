"""How Kafka is asked what it holds."""

from backfill.runtime.handoff.kafka import client_properties


def test_the_client_connects_as_the_program_does_whatever_timeouts_that_has() -> None:
    asked = client_properties(
        {
            "kafka.bootstrap.servers": "kafka:9092",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.request.timeout.ms": "120000",
            "subscribe": "events",
            "startingoffsets": "earliest",
        }
    )
    assert asked == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "request.timeout.ms": "60000",
        "default.api.timeout.ms": "60000",
    }, "a request may not take longer than the whole answer"
