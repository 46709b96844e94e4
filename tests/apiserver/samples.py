"""Backfills to start from, as plain manifests."""

from rest import Manifest

import manifests
from manifests import changed

BACKFILL: Manifest = {**manifests.BACKFILL, "metadata": {"name": "july"}}
"""A test's namespace is known when it is created."""
CONDITION = {
    "type": "Succeeded",
    "status": "Unknown",
    "reason": "InProgress",
    "message": "",
    "lastTransitionTime": "2021-08-01T00:00:00Z",
    "observedGeneration": 1,
}
STATUS: Manifest = {
    "observedGeneration": 1,
    "planId": "0123456789abcdef",
    "watermark": "2021-07-11T06:00:00Z",
    "attempts": [
        {
            "number": 1,
            "startedAt": "2021-08-01T00:00:00Z",
            "outcome": "Failed",
            "message": "the driver ended with status 1",
        },
        {"number": 2, "startedAt": "2021-08-01T00:10:00Z", "child": "july-a2"},
    ],
    "progress": {
        "steps": 48,
        "committed": 12,
        "summary": "12/48 (25%)",
        "rate": "12.5k/s",
        "executors": 3,
    },
    "conditions": [CONDITION],
}
ASSIGNMENT: Manifest = {
    "apiVersion": "backfill.dev/v1alpha1",
    "kind": "SplitAssignment",
    "metadata": {"name": "july"},
    "spec": {
        "backfill": "july",
        "planId": "0123456789abcdef",
        "attempt": 2,
        "steps": 48,
        "released": 12,
        "watermark": "2021-07-11T06:00:00Z",
    },
}


def rich_backfill() -> Manifest:
    """A Backfill that uses every part of the specification."""
    columns = {
        "partitionColumn": "kafka_partition",
        "offsetColumn": "kafka_offset",
        "keyColumn": "k",
        "headersColumn": "h",
        "timestampColumn": "t",
    }
    return changed(
        BACKFILL,
        {
            "spec.window.warmUp": "2h",
            "spec.window.drain": "30m",
            "spec.sources.0.filter": "region == 'us-east-1'",
            "spec.sources.0.regions": {"column": "region", "in": ["us-east-1"]},
            "spec.sources.0.snapshot": {"asOf": "2021-07-13T00:00:00Z", "protect": True},
            "spec.sources.0.kafka": columns,
            "spec.sources.0.live": {
                "kafka": {"topic": "impressions", "value": {"format": "column", "column": "value"}}
            },
            "spec.sources.1.timestampUnit": "ms",
            "spec.sources.1.snapshot": {"id": 7051729675574597004},
            "spec.sources.1.kafka": columns,
            "spec.sources.1.live": {
                "kafka": {"topic": "playbacks", "value": {"format": "avro", "schema": '"string"'}}
            },
            "spec.ordering": {"policy": "Strict", "allowedLateness": "5m"},
            "spec.maxMisalignment": "1h30m",
            "spec.outputs.0.timestampUnit": "us",
            "spec.outputs.0.publish": {"mode": "Replace", "approval": "Manual"},
            "spec.execution": "Streaming",
            "spec.scaling": {"minExecutors": 2, "maxExecutors": 40, "completeWithin": "5h"},
            "spec.overrides": {
                "driver": {"memory": "4g", "serviceAccount": "spark"},
                "executor": {
                    "cores": 4,
                    "memory": "8g",
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                },
                "sparkConf": {"spark.sql.shuffle.partitions": "200"},
            },
            "spec.workspace": "s3://lake/backfills",
            "spec.catalogs": [{"name": "lake", "secretRef": {"name": "lake-catalog"}}],
            "spec.planning": {"targetStepBytes": "512Mi"},
            "spec.failurePolicy": {"maxAttempts": 3, "backoff": "1m"},
            "spec.suspend": True,
            "spec.retryNonce": "1",
            "spec.ttlAfterFinished": "7d",
        },
    )
