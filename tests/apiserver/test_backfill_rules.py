"""What is wrong is not stored, and the answer says what and where."""

from typing import Any

import pytest
from rest import BACKFILLS, SPLIT_ASSIGNMENTS, Rest
from samples import ASSIGNMENT, BACKFILL

from backfill.api.errors import InvalidManifest
from backfill.api.manifests.backfill_manifest import load_manifests
from manifests import changed

OFFSETS = {"partitionColumn": "p", "offsetColumn": "o"}
LIVE = {"kafka": {"topic": "t"}}
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a window that ends before it starts": (
        {"window.end": "2021-07-10T00:00:00Z"},
        "spec.window.end: ",
    ),
    "a window without a start": ({"window.start": None}, "spec.window.start: Required value"),
    "a time without its offset": ({"window.start": "2021-07-11T00:00:00"}, "spec.window.start"),
    "a time that is no date": (
        {"window.start": "2021-02-30T00:00:00Z"},
        "must be of type date-time",
    ),
    "a window without an end, and nothing that goes on": (
        {"window.end": "Live"},
        'spec.window.end: Invalid value: "object": must be Live with handOff',
    ),
    "a hand-off after a window with an end": (
        {"handOff": {"to": "Live"}},
        'spec.window.end: Invalid value: "object": must be Live with handOff',
    ),
    "a hand-off of sources without offsets or a margin": (
        {"window.end": "Live", "handOff": {"to": "Live"}},
        "handOff requires kafka.partitionColumn and kafka.offsetColumn for every source",
    ),
    "a hand-off by time without a margin": (
        {"window.end": "Live", "handOff": {"to": "Live", "startingTimestampMargin": "0s"}},
        "must be greater than zero; set it to the maximum lag of ingestion",
    ),
    "a live application that may not be behind": (
        {"window.end": "Live", "handOff": {"to": "Live", "maxLag": "0s"}},
        "must be greater than zero; set it to the maximum lag of the live application",
    ),
    "history that goes on with rows without offsets": (
        {"window.end": "Live", "handOff": {"to": "Live", "maxDistance": "10m"}},
        "requires kafka.partitionColumn and kafka.offsetColumn for every source",
    ),
    "a hand-off of a part of the rows": (
        {"window.end": "Live", "handOff": {"to": "Live"}, "sources.0.filter": "a = 1"},
        "filter and regions exclude rows from history",
    ),
    "a hand-off with a drain": (
        {"window.end": "Live", "window.drain": "1h", "handOff": {"to": "Live"}},
        "cannot be combined with handOff: live traffic closes the results that are still open",
    ),
    "a hand-off in any order": (
        {
            "window.end": "Live",
            "handOff": {"to": "Live"},
            "ordering": {"policy": "Unordered"},
        },
        "Unordered is only for stateless applications",
    ),
    "a hand-off of batch jobs": (
        {"window.end": "Live", "handOff": {"to": "Live"}, "execution": "Batch"},
        "Batch keeps no state, but handOff hands over state",
    ),
    "a hand-off that replaces a window without an end": (
        {
            "window.end": "Live",
            "handOff": {"to": "Live"},
            "outputs.0.publish": {"mode": "Replace"},
        },
        "publish mode Replace and validate require a window that ends",
    ),
    "a delivery beside a live application": (
        {
            "window.end": "Live",
            "handOff": {"to": "Live"},
            "outputs.0.publish": {"mode": "Deliver"},
        },
        "publish mode Deliver is not possible with handOff",
    ),
    "a publish mode beside a live application that it cannot have": (
        {
            "window.end": "Live",
            "handOff": {"to": "Live"},
            "sources": None,
            "outputs": None,
            "publish": "Replace",
        },
        "is not possible with handOff: Replace requires a window that ends",
    ),
    "how to deliver what is not delivered": (
        {"outputs.0.publish": {"mode": "Append", "deliver": {"maxRowsPerSecond": 9}}},
        "deliver is not allowed with any mode other than Deliver",
    ),
    "a delivery of no history at once": (
        {"outputs.0.publish": {"mode": "Deliver", "deliver": {"batchInterval": "0s"}}},
        'deliver.batchInterval: Invalid value: "object": must be greater than zero',
    ),
    "a comparison of what is delivered with nothing": (
        {"outputs.0.publish": {"mode": "Deliver"}, "outputs.0.validate": {"keys": ["id"]}},
        "validate requires against: Reference with publish mode Deliver",
    ),
    "a live application in the place of production's": (
        {"window.end": "Live", "handOff": {"to": "Live", "start": "Deploy", "name": "rmi"}},
        "is the SparkApplication of applicationRef; choose another name for the live application",
    ),
    "a hand-off to nowhere": (
        {"window.end": "Live", "handOff": {"start": "Prepare"}},
        "spec.handOff.to: Required value",
    ),
    "a duration with a fraction": ({"window.warmUp": "1.5h"}, "spec.window.warmUp"),
    "a duration longer than ten years": ({"window.drain": "3661d"}, "is longer than ten years"),
    "no misalignment at all": (
        {"maxMisalignment": "0s"},
        "must be greater than zero; a step spans half of it",
    ),
    "a misalignment that is no duration": (
        {"maxMisalignment": "15 min"},
        'spec.maxMisalignment: Invalid value: "15 min"',
    ),
    "more than a million steps": ({"maxMisalignment": "10ms"}, "into more than 1,000,000 steps"),
    "a publish mode for all outputs beside sources": (
        {"publish": "Append"},
        "has no effect, because spec.sources lists what is read",
    ),
    "a publish mode for all outputs beside one that is kept": (
        {"sources": None, "publish": "Append", "outputs.0.publish": {"mode": "None"}},
        "spec.publish is the mode of all outputs that have none",
    ),
    "a table without a catalog": ({"sources.0.table": "raw.impressions"}, "spec.sources[0].table"),
    "a unit that is none": (
        {"sources.0.timestampUnit": "min"},
        'supported values: "s", "ms", "us", "ns"',
    ),
    "a snapshot by id and by time": (
        {"sources.0.snapshot": {"id": 1, "asOf": "2021-07-13T00:00:00Z"}},
        (
            'spec.sources[0].snapshot: Invalid value: "object": both id and asOf are set; remove'
            " one of them"
        ),
    ),
    "a snapshot that never gets the rows that are waited for": (
        {"waitForInput": "6h", "sources.0.snapshot": {"asOf": "2021-07-13T00:00:00Z"}},
        'spec.waitForInput: Invalid value: "object": cannot be combined with snapshot.id',
    ),
    "a watermark without its property": (
        {"sources.0.watermark": {"unit": "ms"}},
        "spec.sources[0].watermark.property: Required value",
    ),
    "a column's value without the column": (
        {"sources.0.live": {"kafka": {"topic": "t", "value": {"format": "column"}}}},
        "column is required with format: column",
    ),
    "duplicates without offsets to compare": (
        {"sources.0.kafka": {"partitionColumn": "p", "dropDuplicates": True}},
        "dropDuplicates requires the Kafka partition and offset",
    ),
    "a rate of batch jobs": (
        {"execution": "Batch", "maxRowsPerSecond": 100},
        "Batch cannot limit its rate",
    ),
    "a rate of nothing": ({"maxRowsPerSecond": 0}, "spec.maxRowsPerSecond"),
    "a schema without the format": (
        {"sources.0.live": {"kafka": {"topic": "t", "value": {"schema": "{}"}}}},
        "schema is required with format: avro",
    ),
    "another name of a field in Avro": (
        {
            "sources.0.live": {
                "kafka": {
                    "topic": "t",
                    "value": {"format": "avro", "schema": "{}", "fields": {"userId": "uid"}},
                }
            }
        },
        "timeZone require format: json",
    ),
    "Confluent's framing without the schema's id": (
        {"sources.0.live": {"kafka": {"topic": "t", "value": {"framing": "Confluent"}}}},
        "schemaId is required with framing: Confluent",
    ),
    "a schema's id that no framing writes": (
        {"sources.0.live": {"kafka": {"topic": "t", "value": {"schemaId": 1}}}},
        "schemaId is required with framing: Confluent",
    ),
    "a framing before bytes that are given as they are": (
        {
            "sources.0.live": {
                "kafka": {
                    "topic": "t",
                    "value": {
                        "format": "column",
                        "column": "v",
                        "framing": "Confluent",
                        "schemaId": 1,
                    },
                }
            }
        },
        "remove framing",
    ),
    "two sources of one name": (
        {"sources.1.name": "impressions"},
        'spec.sources[1]: Duplicate value: {"name":"impressions"}',
    ),
    "two sources of one topic": (
        {"sources.0.live": LIVE, "sources.1.live": LIVE},
        "two sources have the same topic",
    ),
    "two outputs of one name": (
        {"outputs": [{"name": "a", "table": "lake.ops.a"}, {"name": "a", "table": "lake.ops.b"}]},
        'spec.outputs[1]: Duplicate value: {"name":"a"}',
    ),
    "two outputs into one table": (
        {"outputs": [{"name": "a", "table": "lake.ops.a"}, {"name": "b", "table": "lake.ops.a"}]},
        'spec.outputs: Invalid value: "object": two outputs have the same table',
    ),
    "an output whose query is left out": (
        {"ignoredQueries": ["alerts", "a"], "outputs": [{"name": "a", "table": "lake.ops.a"}]},
        "contains the name of an output",
    ),
    "an ignored query without a name": ({"ignoredQueries": [""]}, "spec.ignoredQueries[0]"),
    "a catalog listed twice": (
        {"catalogs": [{"name": "lake"}, {"name": "lake"}]},
        "spec.catalogs[1]: Duplicate value",
    ),
    "sources of a catalog that is not listed": (
        {"catalogs": [{"name": "pond"}], "outputs": []},
        "a source's table is in a catalog that spec.catalogs does not list",
    ),
    "outputs of a catalog that is not listed": (
        {"catalogs": [{"name": "lake"}], "outputs.0.table": "pond.ops.summary"},
        "an output's table is in a catalog that spec.catalogs does not list",
    ),
    "an order that does not exist": (
        {"ordering": {"policy": "Random"}},
        "spec.ordering.policy: Unsupported value",
    ),
    "strict order without offsets": (
        {
            "ordering": {"policy": "Strict"},
            "sources.0.kafka": OFFSETS,
            "sources.1.kafka": {"partitionColumn": "p"},
        },
        "Strict requires kafka.partitionColumn and kafka.offsetColumn for every source",
    ),
    "rows to replace that no time tells apart": (
        {"outputs.0.timestampColumn": None, "outputs.0.publish": {"mode": "Replace"}},
        (
            'spec.outputs[0].timestampColumn: Invalid value: "object": is missing; publish mode'
            " Replace requires it"
        ),
    ),
    "a warm-up whose output cannot be told apart": (
        {"outputs.0.timestampColumn": None, "window.warmUp": "1h"},
        "every output requires a timestampColumn",
    ),
    "a unit without a column": (
        {"outputs.0.timestampColumn": None, "outputs.0.timestampUnit": "ms"},
        "is set without timestampColumn",
    ),
    "a percentage above all": (
        {"outputs.0.validate": {"minMatch": "100.1"}},
        "spec.outputs[0].validate.minMatch",
    ),
    "a comparison of rows that no time tells apart": (
        {"outputs.0.timestampColumn": None, "outputs.0.validate": {"minMatch": "99.9"}},
        'spec.outputs[0].timestampColumn: Invalid value: "object": is missing; validate requires it',
    ),
    "a comparison of a table with itself": (
        {
            "outputs.0.validate": {
                "against": "Reference",
                "reference": {"table": "lake.ops.summary"},
            }
        },
        "is the table of the output itself; remove reference",
    ),
    "a reference in a catalog that nobody gives": (
        {
            "catalogs": [{"name": "lake"}],
            "outputs.0.validate": {
                "against": "Reference",
                "reference": {"table": "audit.ops.summary"},
            },
        },
        "the reference of an output is in a catalog that spec.catalogs does not list",
    ),
    "a comparison with a reference that is not named": (
        {"outputs.0.validate": {"against": "Reference"}},
        "reference is required with against: Reference, and not allowed with against: Production",
    ),
    "a reference that is not compared with": (
        {"outputs.0.validate": {"reference": {"table": "lake.audit.summary"}}},
        "reference is required with against: Reference, and not allowed with against: Production",
    ),
    "a tolerance between rows that nothing pairs": (
        {"outputs.0.validate": {"tolerance": {"watched": "0.1"}}},
        "requires keys: without them, it is unknown which rows to compare with each other",
    ),
    "a tolerance that is no number": (
        {"outputs.0.validate": {"keys": ["a"], "tolerance": {"watched": "-1"}}},
        "spec.outputs[0].validate.tolerance",
    ),
    "keys of the output that are not compared": (
        {"outputs.0.keys": ["a"], "outputs.0.validate": {"ignore": ["a"]}},
        "cannot be ignored or have a tolerance",
    ),
    "a key that is listed twice": (
        {"outputs.0.keys": ["a", "b", "a"]},
        "a column is listed more than once",
    ),
    "more keys than a row needs": (
        {"outputs.0.keys": [f"k{number}" for number in range(17)]},
        "spec.outputs[0].keys: Too many: 17: must have at most 16 items",
    ),
    "rows to replace that nothing identifies": (
        {"outputs.0.publish": {"mode": "Upsert"}},
        "publish mode Upsert requires it to determine which row replaces which",
    ),
    "files without a place": (
        {"outputs.0.publish": {"mode": "Export"}},
        "location is required with mode: Export, and not allowed with any other mode",
    ),
    "a place without files": (
        {"outputs.0.publish": {"mode": "Append", "location": "s3://lake/out"}},
        "location is required with mode: Export, and not allowed with any other mode",
    ),
    "a place that could mean another one": (
        {"outputs.0.publish": {"mode": "Export", "location": "s3://lake/out/../raw"}},
        "spec.outputs[0].publish.location",
    ),
    "two outputs in the same directory": (
        {
            "outputs": [
                {
                    "name": name,
                    "table": f"lake.ops.{name}",
                    "timestampColumn": "at",
                    "publish": {"mode": "Export", "location": "s3://lake/out"},
                }
                for name in ("a", "b")
            ]
        },
        "two outputs have the same publish.location",
    ),
    "keys that are not compared": (
        {"outputs.0.validate": {"keys": ["a"], "ignore": ["a"]}},
        "cannot be ignored or have a tolerance",
    ),
    "keys that are compared with a tolerance": (
        {"outputs.0.validate": {"keys": ["a"], "tolerance": {"a": "1"}}},
        "cannot be ignored or have a tolerance",
    ),
    "batch jobs that are to read in order": (
        {
            "execution": "Batch",
            "ordering": {"policy": "Strict"},
            "sources.0.kafka": {"partitionColumn": "p", "offsetColumn": "o"},
        },
        "Batch does not keep the order of rows",
    ),
    "more executors at least than at most": (
        {"scaling": {"minExecutors": 5, "maxExecutors": 4}},
        'spec.scaling.minExecutors: Invalid value: "object": must not be greater than maxExecutors',
    ),
    "a step of no bytes": ({"planning": {"targetStepBytes": 0}}, "spec.planning.targetStepBytes"),
    "memory in which no job starts": (
        {"planning": {"resources": {"memory": "64Mi"}}},
        (
            'spec.planning.resources.memory: Invalid value: "object": is too little for a job to'
            " start; set at least 128Mi"
        ),
    ),
    "memory in bytes in which no job starts": (
        {"planning": {"resources": {"memory": "134217727"}}},
        "set at least 128Mi",
    ),
    "memory of a few decimal megabytes": (
        {"planning": {"resources": {"memory": "134M"}}},
        "set at least 128Mi",
    ),
    "no attempts": ({"failurePolicy": {"maxAttempts": 0}}, "should be greater than or equal to 1"),
    "a field that does not exist": ({"windoww": {}}, 'unknown field "spec.windoww"'),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_refused_in_words(
    admin: Rest, crds: None, namespace: str, what: str
) -> None:
    changes, words = BROKEN[what]
    document = changed(BACKFILL, {f"spec.{place}": value for place, value in changes.items()})
    answer = admin.create(BACKFILLS.format(namespace), document, fieldValidation="Strict")
    assert answer.status in {400, 422}
    assert words in answer.message
    assert "evaluating" not in answer.message, "every rule can be told of whatever is wrong besides"
    with pytest.raises(InvalidManifest):
        load_manifests(str(document), require_application=False)


def test_a_name_too_long_for_its_children_is_refused(
    admin: Rest, crds: None, namespace: str
) -> None:
    answer = admin.create(
        BACKFILLS.format(namespace), changed(BACKFILL, {"metadata.name": "a" * 64})
    )
    assert answer.status == 422
    assert "metadata.name: Too long" in answer.message


@pytest.mark.parametrize(("field", "value"), [("attempt", 1), ("released", 11)])
def test_an_assignment_never_goes_back(
    admin: Rest, crds: None, namespace: str, field: str, value: int
) -> None:
    collection = SPLIT_ASSIGNMENTS.format(namespace)
    admin.create(collection, ASSIGNMENT).expect()
    answer = admin.patch(f"{collection}/july", {"spec": {field: value}})
    assert answer.status == 422
    assert f'spec.{field}: Invalid value: "object": must not decrease' in answer.message


def test_a_driver_of_an_earlier_attempt_can_not_write_over_a_later_ones_report(
    admin: Rest, crds: None, namespace: str
) -> None:
    collection = SPLIT_ASSIGNMENTS.format(namespace)
    admin.create(collection, ASSIGNMENT).expect()
    report = {"attempt": 2, "heartbeat": "2021-08-01T00:00:00Z", "executors": 3}
    admin.patch(f"{collection}/july/status", {"status": report}).expect()
    answer = admin.patch(f"{collection}/july/status", {"status": {"attempt": 1, "executors": 1}})
    assert answer.status == 422
    assert "a later attempt has already reported; this driver must stop" in answer.message
