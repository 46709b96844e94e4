"""How Kafka is asked what it holds."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from backfill.runtime.hand_off.broker_offsets import _retention, client_properties
from backfill.runtime.hand_off.kafka_start_offsets import Retention


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


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (None, Retention(1_000_000, limited_by_size=True)),
        ("delete", Retention(1_000_000, limited_by_size=True)),
        ("compact,delete", Retention(1_000_000, limited_by_size=True)),
        ("compact", Retention(None, limited_by_size=False)),
        ("", Retention(None, limited_by_size=False)),
    ],
)
def test_limits_count_where_the_topic_is_cleaned_up_by_them(
    policy: str | None, kept: Retention
) -> None:
    """An empty list is a topic whose records are never removed."""
    config = {
        name: SimpleNamespace(value=lambda value=value: value)
        for name, value in (
            ("cleanup.policy", policy),
            ("retention.ms", "1000"),
            ("retention.bytes", "5"),
        )
    }
    jvm, admin = MagicMock(), MagicMock()
    admin.describeConfigs().all().get().get.return_value = config
    assert _retention(jvm, admin, "events") == kept
