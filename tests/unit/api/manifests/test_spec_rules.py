"""Rules between fields, and which fields may change once planned."""

from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.manifests.backfill_manifest import check_spec, spec_difference
from backfill.api.manifests.problems import read_json
from backfill.api.spec import BackfillSpec
from cases import cases
from manifests import BACKFILL, changed


def spec(changes: dict[str, Any] | None = None) -> BackfillSpec:
    places = {f"spec.{place}": value for place, value in (changes or {}).items()}
    return read_json(Backfill, changed(BACKFILL, places)).spec


def against(table: str) -> dict[str, Any]:
    return {"against": "Reference", "reference": {"table": table}}


OFFSETS = {"partitionColumn": "p", "offsetColumn": "o"}
LIVE_SOURCES = {
    "sources.0.kafka": OFFSETS,
    "sources.0.live": {"kafka": {"topic": "a"}},
    "sources.1.kafka": OFFSETS,
    "sources.1.live": {"kafka": {"topic": "b"}},
}
HANDED_OVER = {"window.end": "Live", "handOff": {"to": "Live"}, **LIVE_SOURCES}
BROKEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a window without an end, and nothing that goes on": (
        {"window.end": "Live"},
        ["spec.window.end: is Live, but spec.handOff is missing"],
    ),
    "a hand-off after a window with an end": (
        {**HANDED_OVER, "window.end": "2021-07-12T00:00:00Z"},
        ["spec.window.end: is a time, but spec.handOff requires Live"],
    ),
    "a hand-off with a drain": (
        {**HANDED_OVER, "window.drain": "1h"},
        ["spec.window.drain: cannot be combined with handOff"],
    ),
    "a hand-off in any order": (
        {**HANDED_OVER, "ordering": {"policy": "Unordered"}},
        ['spec.ordering.policy: "Unordered" is only for stateless applications'],
    ),
    "a hand-off of batch jobs": (
        {**HANDED_OVER, "execution": "Batch"},
        ['spec.execution: "Batch" keeps no state, but handOff hands over state'],
    ),
    "a hand-off to unknown offsets": (
        {**HANDED_OVER, "sources.1.kafka": {"partitionColumn": "p"}},
        ["spec.sources[1].kafka.offsetColumn: is missing; handOff requires it"],
    ),
    "a hand-off by time without a margin": (
        {**HANDED_OVER, "handOff": {"to": "Live", "startingTimestampMargin": "0s"}},
        ["spec.handOff.startingTimestampMargin: must be greater than zero"],
    ),
    "a live application that may not be behind": (
        {**HANDED_OVER, "handOff": {"to": "Live", "maxLag": "0s"}},
        ["spec.handOff.maxLag: must be greater than zero"],
    ),
    "history that goes on with rows without offsets, or of one snapshot": (
        {
            **HANDED_OVER,
            "handOff": {
                "to": "Live",
                "startingTimestampMargin": "30m",
                "maxDistance": "10m",
            },
            "sources.0.kafka": {},
            "sources.1.snapshot": {"id": 7},
        },
        [
            "spec.handOff.maxDistance: extends history with newer rows, which requires the Kafka",
            "spec.handOff.maxDistance: extends history with newer snapshots, but"
            " spec.sources[1].snapshot.id selects a fixed one",
        ],
    ),
    "a hand-off of a part of the rows": (
        {
            **HANDED_OVER,
            "sources.0.filter": "a = 1",
            "sources.1.regions": {"column": "r", "in": ["eu"]},
        },
        [
            "spec.sources[0].filter: excludes rows from history",
            "spec.sources[1].regions: excludes rows from history",
        ],
    ),
    "a hand-off that replaces a window without an end": (
        {**HANDED_OVER, "outputs.0.publish": {"mode": "Replace"}, "outputs.0.validate": {}},
        [
            'spec.outputs[0].publish.mode: "Replace" requires a window that ends',
            "spec.outputs[0].validate: requires a window that ends",
        ],
    ),
    "a hand-off that replaces whatever is found": (
        {"window.end": "Live", "handOff": {"to": "Live"}, "sources": [], "outputs": []}
        | {"publish": "Replace"},
        ['spec.publish: "Replace" requires a window that ends'],
    ),
    "a hand-off that delivers whatever is found": (
        {"window.end": "Live", "handOff": {"to": "Live"}, "sources": [], "outputs": []}
        | {"publish": "Deliver"},
        ['spec.publish: "Deliver" is not possible with handOff'],
    ),
    "a live application in the place of production's": (
        {**HANDED_OVER, "handOff": {"to": "Live", "start": "Deploy", "name": "rmi"}},
        ['spec.handOff.name: "rmi" is the SparkApplication of spec.applicationRef'],
    ),
    "two sources of one name": (
        {"sources.1.name": "impressions"},
        ['spec.sources[1].name: "impressions" is already the name'],
    ),
    "two outputs of one name": (
        {"outputs": [{"name": "a", "table": "lake.ops.a"}, {"name": "a", "table": "lake.ops.b"}]},
        ['spec.outputs[1].name: "a" is already the name of another output'],
    ),
    "two outputs into one table": (
        {"outputs": [{"name": "a", "table": "lake.ops.a"}, {"name": "b", "table": "lake.ops.a"}]},
        ['spec.outputs[1].table: "lake.ops.a" is already the table of another output'],
    ),
    "an output that is read, too": (
        {"sources.1.table": "lake.ops.summary", "sources.1.snapshot": {"protect": True}},
        [
            'spec.outputs[0].table: "lake.ops.summary" is also the table of spec.sources[1]: the'
            " application would read the old rows of its own output; write to another table, or"
            " choose the rows"
        ],
    ),
    "a snapshot that never gets the rows that are waited for": (
        {"waitForInput": "6h", "sources.1.snapshot": {"id": 7}},
        [
            "spec.waitForInput: cannot be combined with spec.sources[1].snapshot.id: a fixed"
            " snapshot never gets more rows; remove waitForInput or snapshot.id"
        ],
    ),
    "an output whose query is left out": (
        {"ignoredQueries": ["alerts", "a"], "outputs": [{"name": "a", "table": "lake.ops.a"}]},
        ['spec.ignoredQueries[1]: "a" is also the name of an output'],
    ),
    "two sources of one topic": (
        {"sources.0.live": {"kafka": {"topic": "t"}}, "sources.1.live": {"kafka": {"topic": "t"}}},
        ['spec.sources[1].live.kafka.topic: "t" is already the topic of another source'],
    ),
    "a catalog listed twice": (
        {"catalogs": [{"name": "lake"}, {"name": "lake"}]},
        ['spec.catalogs[1].name: "lake" is already the name of another catalog'],
    ),
    "catalogs that PyIceberg cannot tell apart": (
        {
            "catalogs": [
                {"name": "lake"},
                {"name": "LAKE"},
                {"name": "my-lake"},
                {"name": "my_lake"},
            ]
        },
        [
            'spec.catalogs[1].name: PyIceberg does not distinguish "LAKE" from "lake"',
            'spec.catalogs[3].name: PyIceberg does not distinguish "my_lake" from "my-lake"',
        ],
    ),
    "a static table twice, and in a catalog that is not listed": (
        {
            "catalogs": [{"name": "lake"}],
            "staticTables": [
                {"table": "lake.ops.users"},
                {"table": "lake.ops.users", "asOf": "window"},
                {"table": "pond.ops.users"},
            ],
        },
        [
            'spec.staticTables[1].table: "lake.ops.users" is already listed',
            'spec.staticTables[2].table: "pond.ops.users" is in a catalog that spec.catalogs does'
            " not list",
        ],
    ),
    "catalogs listed, but not these": (
        {"catalogs": [{"name": "pond"}], "sources.1.table": "pond.a.b"},
        [
            (
                'spec.sources[0].table: "lake.raw.impressions" is in a catalog that spec.catalogs'
                " does not list; add lake"
            ),
            (
                'spec.outputs[0].table: "lake.ops.summary" is in a catalog that spec.catalogs does'
                " not list; add lake"
            ),
        ],
    ),
    "strict order without offsets": (
        {
            "ordering": {"policy": "Strict"},
            "sources.0.kafka": OFFSETS,
            "sources.1.kafka": {"partitionColumn": "p"},
        },
        [
            "spec.sources[1].kafka.offsetColumn: is missing; ordering policy Strict requires it;"
            " set it to the column with the Kafka offset"
        ],
    ),
    "a rate of batch jobs": (
        {"execution": "Batch", "maxRowsPerSecond": 100},
        ['spec.execution: "Batch" cannot limit its rate, as maxRowsPerSecond requires'],
    ),
    "rows to replace that no time tells apart": (
        {"outputs.0.timestampColumn": None, "outputs.0.publish": {"mode": "Replace"}},
        ["spec.outputs[0].timestampColumn: is missing; publish mode Replace requires it"],
    ),
    "a warm-up whose output cannot be told apart": (
        {"outputs.0.timestampColumn": None, "window.warmUp": "1h"},
        [
            "spec.outputs[0].timestampColumn: is missing; it is required to exclude the results of"
            " warmUp and drain"
        ],
    ),
    "a unit without a column": (
        {"outputs.0.timestampColumn": None, "outputs.0.timestampUnit": "ms"},
        ["spec.outputs[0].timestampUnit: is set without timestampColumn"],
    ),
    "a comparison of rows that no time tells apart": (
        {"outputs.0.timestampColumn": None, "outputs.0.validate": {"minMatch": "99.9"}},
        [
            "spec.outputs[0].timestampColumn: is missing; validate requires it to determine which"
            " rows to compare"
        ],
    ),
    "a comparison of a table with itself": (
        {"outputs.0.validate": against("lake.ops.summary")},
        [
            'spec.outputs[0].validate.reference.table: "lake.ops.summary" is the table of the output'
            " itself; remove reference, and set against: Production"
        ],
    ),
    "a reference in a catalog that nobody gives": (
        {"catalogs": [{"name": "lake"}], "outputs.0.validate": against("audit.ops.summary")},
        [
            'spec.outputs[0].validate.reference.table: "audit.ops.summary" is in a catalog that'
            " spec.catalogs does not list; add audit to spec.catalogs"
        ],
    ),
    "a tolerance between rows that nothing pairs": (
        {"outputs.0.validate": {"tolerance": {"watched": "0.1"}}},
        [
            "spec.outputs[0].validate.tolerance: requires keys: without them, it is unknown which"
            " rows to compare with each other"
        ],
    ),
    "keys that are not compared exactly, for both purposes": (
        {"outputs.0.keys": ["a"], "outputs.0.validate": {"ignore": ["a"]}},
        ["spec.outputs[0].keys: a is a key, so it cannot be ignored or have a"],
    ),
    "a key that is listed twice": (
        {"outputs.0.keys": ["a", "b", "a"]},
        ['spec.outputs[0].keys: "a" is listed 2 times'],
    ),
    "rows to replace that nothing identifies": (
        {"outputs.0.publish": {"mode": "Upsert"}},
        [
            "spec.outputs[0].keys: is missing; publish mode Upsert requires it to determine"
            " which row"
        ],
    ),
    "an upsert of a window that nothing tells": (
        {
            "outputs.0.timestampColumn": None,
            "outputs.0.keys": ["a"],
            "outputs.0.publish": {"mode": "Upsert"},
        },
        ["spec.outputs[0].timestampColumn: is missing; publish mode Upsert requires it"],
    ),
    "keys that are not compared exactly": (
        {
            "outputs.0.validate": {
                "keys": ["a", "b", "c"],
                "ignore": ["a"],
                "tolerance": {"b": "1"},
            }
        },
        [
            "spec.outputs[0].validate.keys: a is a key, so it cannot be ignored or have a",
            "spec.outputs[0].validate.keys: b is a key, so it cannot be ignored or have a",
        ],
    ),
    "batch jobs that are to read in order": (
        {
            "execution": "Batch",
            "ordering": {"policy": "Strict"},
            "sources.0.kafka": {"partitionColumn": "p", "offsetColumn": "o"},
            "sources.1.kafka": {"partitionColumn": "p", "offsetColumn": "o"},
        },
        [
            'spec.execution: "Batch" does not keep the order of rows, which ordering.policy Strict requires'
        ],
    ),
    "more steps than make sense": (
        {"maxMisalignment": "100ms"},
        [
            "spec.maxMisalignment: would divide a window of 1d into up to 1,728,000 steps; the"
            " maximum is 1,000,000"
        ],
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_is_told(broken: str) -> None:
    changes, expected = BROKEN[broken]
    found = [str(problem) for problem in check_spec(spec(changes))]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


@cases(
    "changes",
    {
        "the plainest one": {},
        "all catalogs listed": {"catalogs": [{"name": "lake"}]},
        "state that goes on live": HANDED_OVER,
        "state that goes on by time": {
            **HANDED_OVER,
            "handOff": {"to": "Live", "startingTimestampMargin": "30m"},
            "sources.0.kafka": {},
        },
        "state of a history that goes on": {
            **HANDED_OVER,
            "handOff": {"to": "Live", "maxDistance": "10m"},
        },
        "state that a live application of its own goes on with": {
            **HANDED_OVER,
            "handOff": {"to": "Live", "start": "Deploy", "name": "rmi-live", "maxLag": "1m"},
        },
        "strict with offsets": {
            "ordering": {"policy": "Strict"},
            "sources.0.kafka": OFFSETS,
            "sources.1.kafka": OFFSETS,
        },
        "all rows are the window's": {
            "outputs.0.timestampColumn": None,
            "outputs.0.publish": {"mode": "Append"},
        },
        "a drain that can be cut off": {
            "window.drain": "1h",
            "outputs.0.publish": {"mode": "Replace"},
        },
        "one table as two sources": {"sources.1.table": "lake.raw.impressions"},
        "a chosen snapshot of the output's table": {
            "sources.1.table": "lake.ops.summary",
            "sources.1.snapshot": {"id": 7},
        },
        "an upsert": {
            "outputs.0.keys": ["a", "b"],
            "outputs.0.publish": {"mode": "Upsert"},
            "outputs.0.validate": {"tolerance": {"c": "0.1"}},
        },
        "a comparison with another table": {"outputs.0.validate": against("lake.audit.summary")},
        "keys for a comparison only": {
            "outputs.0.keys": ["a"],
            "outputs.0.validate": {"keys": ["b"], "ignore": ["a"]},
        },
        "many steps, but not too many": {"maxMisalignment": "1s"},
    },
)
def test_no_rule_is_broken_by(changes: dict[str, Any]) -> None:
    assert check_spec(spec(changes)) == []


CHANGED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the window": (
        {"window.end": "2021-07-13T00:00:00Z"},
        ['spec.window.end: was "2021-07-12T00:00:00Z", is "2021-07-13T00:00:00Z"'],
    ),
    "a source's filter": (
        {"sources.1.filter": "a = 1"},
        ['spec.sources[1].filter: was not set, is "a = 1"'],
    ),
    "a default": (
        {"ordering": {"policy": "Exact"}},
        ['spec.ordering.policy: was "WithinLateness", is "Exact"'],
    ),
    "the keys of an output": (
        {"outputs.0.keys": ["a"]},
        ['spec.outputs[0].keys: was [], is ["a"]'],
    ),
    "the publish mode, with its approval": (
        {"outputs.0.publish": {"mode": "Append", "approval": "Manual"}},
        ['spec.outputs[0].publish.mode: was "None", is "Append"'],
    ),
    "several at once": (
        {"maxMisalignment": "1h", "workspace": "/shared"},
        ['spec.maxMisalignment: was "15m", is "1h"', 'spec.workspace: was not set, is "/shared"'],
    ),
    "the number of catalogs": (
        {"catalogs": [{"name": "lake"}]},
        ['spec.catalogs: was [], is [{"name": "lake"}]'],
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_change_after_planning_is_told(change: str) -> None:
    changes, expected = CHANGED[change]
    assert [str(problem) for problem in spec_difference(spec(), spec(changes))] == expected


@cases(
    "changes",
    {
        "nothing": {},
        "suspend": {"suspend": True},
        "tuning of the next attempt": {
            "overrides": {"driver": {"memory": "8g"}, "sparkConf": {"spark.x": "1"}}
        },
        "scaling": {"scaling": {"maxExecutors": 40, "completeWithin": "5h"}},
        "the failure policy": {"failurePolicy": {"maxAttempts": 9}},
        "how long things are kept": {"ttlAfterFinished": "7d"},
        "the approval of an output": {"outputs.0.publish": {"approval": "Manual"}},
        "another way to write the same moment": {"window.end": "2021-07-12T02:00:00+02:00"},
    },
)
def test_at_any_time_may_change(changes: dict[str, Any]) -> None:
    assert spec_difference(spec(), spec(changes)) == []


def test_a_limit_of_rows_may_change_but_not_come_or_go() -> None:
    none, slow, fast = spec(), spec({"maxRowsPerSecond": 10}), spec({"maxRowsPerSecond": 20})
    assert spec_difference(slow, fast) == []
    for old, new in ((none, slow), (slow, none)):
        assert [each.field for each in spec_difference(old, new)] == ["spec.maxRowsPerSecond"]
