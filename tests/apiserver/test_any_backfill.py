"""Server and models agree on any Backfill: what one of them takes, the other takes as well."""

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rest import BACKFILLS, Answer, Manifest, Rest
from samples import BACKFILL, rich_backfill

from backfill.api.errors import InvalidManifest
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.api.quantities import format_duration, format_time
from manifests import places

ON_A_SERVER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

NAMES = st.from_regex(r"\A[A-Za-z0-9]([-_.A-Za-z0-9]{0,10}[A-Za-z0-9])?\Z")
COLUMNS = st.text(st.characters(codec="ascii", exclude_characters="\n"), min_size=1, max_size=12)
TABLES = (
    st.tuples(st.sampled_from(["lake", "pond"]), NAMES, NAMES)
    .map(".".join)
    .filter(lambda name: ".." not in name)
)
DURATIONS = st.timedeltas(timedelta(), timedelta(days=30)).map(
    lambda value: format_duration(value // 1000 * 1000)
)
TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2070, 1, 1), timezones=st.just(UTC)).map(
    format_time
)


def some_of(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Manifest]:
    return st.fixed_dictionaries(required, optional=optional)


SNAPSHOTS = st.one_of(
    some_of({"id": st.integers(0, 2**63 - 1)}, {"protect": st.booleans()}),
    some_of({"asOf": TIMES}, {}),
    st.just({}),
)
VALUES = st.sampled_from(
    [
        {},
        {"format": "json"},
        {"format": "avro", "schema": '"long"'},
        {"format": "column", "column": "v"},
    ]
)
KAFKA = some_of(
    {}, {f"{name}Column": COLUMNS for name in ("partition", "offset", "key", "timestamp")}
)
SOURCES = some_of(
    {"name": NAMES, "table": TABLES, "timestampColumn": COLUMNS},
    {
        "timestampUnit": st.sampled_from(["s", "ms", "us", "ns"]),
        "filter": st.just("a == 1"),
        "regions": st.builds(
            lambda column, values: {"column": column, "in": values},
            COLUMNS,
            st.lists(NAMES, min_size=1),
        ),
        "snapshot": SNAPSHOTS,
        "kafka": KAFKA,
        "live": st.builds(
            lambda topic, value: {"kafka": {"topic": topic, "value": value}}, NAMES, VALUES
        ),
    },
)
PUBLISH = some_of(
    {},
    {
        "mode": st.sampled_from(["None", "Append", "Replace", "Upsert"]),
        "approval": st.sampled_from(["Automatic", "Manual"]),
        "incomplete": st.sampled_from(["Wait", "Publish"]),
        "maxLoss": st.sampled_from(["0", "1", "99.9", "100"]),
        "allowNull": st.lists(COLUMNS, max_size=2),
    },
)
OUTPUTS = some_of(
    {"name": NAMES, "table": TABLES},
    {
        "timestampColumn": COLUMNS,
        "timestampUnit": st.sampled_from(["s", "ms", "us", "ns"]),
        "keys": st.lists(COLUMNS, max_size=3),
        "publish": PUBLISH,
    },
)
CATALOGS = st.lists(
    st.sampled_from(["lake", "LAKE", "la_ke", "la-ke", "pond", "Pond", "la\u212ae", "l\u0430ke"]),
    min_size=1,
    max_size=3,
).map(lambda names: [{"name": name} for name in names])
HAND_OFFS = some_of(
    {"to": st.just("Live")},
    {
        "start": st.sampled_from(["Prepare", "Deploy"]),
        "statePartitions": st.integers(1, 100_000),
        "name": st.sampled_from(["rmi", "rmi-live"]),
        "maxLag": DURATIONS,
        "maxDistance": DURATIONS,
        "startingTimestampMargin": DURATIONS,
        "overrides": st.just({"executor": {"cores": 2}}),
    },
)
EXECUTORS = st.integers(1, 10000)
MEMORY = st.builds(
    "{}{}".format,
    st.integers(1, 2**28) | st.integers(127, 135).map(lambda value: value * 2**20),
    st.sampled_from(["", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti"]),
) | st.sampled_from(["127Mi", "128Mi", "134217727", "134217728", "131071Ki", "134M", "135M"])
LIVE_SOURCES = st.builds(
    lambda source, number: {
        **source,
        **({"kafka": {"partitionColumn": "p", "offsetColumn": "o"}} if number % 2 else {}),
        "live": {"kafka": {"topic": f"topic-{number}"}},
    },
    SOURCES,
    st.integers(0, 99),
)
SPECS = some_of(
    {
        "applicationRef": st.just({"name": "rmi"}),
        "window": some_of(
            {"start": TIMES, "end": TIMES | st.just("Live")},
            {"warmUp": DURATIONS, "drain": DURATIONS},
        ),
        "sources": st.lists(SOURCES | LIVE_SOURCES, min_size=1, max_size=3),
    },
    {
        "handOff": HAND_OFFS,
        "ordering": some_of(
            {},
            {
                "policy": st.sampled_from(["WithinLateness", "Exact", "Strict", "Unordered"]),
                "allowedLateness": DURATIONS,
            },
        ),
        "maxMisalignment": DURATIONS,
        "outputs": st.lists(OUTPUTS, max_size=3),
        "execution": st.sampled_from(["Auto", "Streaming", "Batch"]),
        "scaling": some_of(
            {}, {"minExecutors": EXECUTORS, "maxExecutors": EXECUTORS, "completeWithin": DURATIONS}
        ),
        "overrides": some_of(
            {},
            {
                "driver": st.just({"memory": "4g", "labels": {"a": "b"}}),
                "sparkConf": st.dictionaries(NAMES, st.text()),
            },
        ),
        "workspace": st.just("s3://lake/backfills"),
        "catalogs": (
            st.just([{"name": "lake"}, {"name": "pond", "secretRef": {"name": "s"}}]) | CATALOGS
        ),
        "planning": some_of(
            {},
            {
                "targetStepBytes": st.sampled_from([1, "1Gi"]),
                "resources": some_of({}, {"memory": MEMORY}),
            },
        ),
        "failurePolicy": some_of({}, {"maxAttempts": st.integers(1, 100), "backoff": DURATIONS}),
        "suspend": st.booleans(),
        "retryNonce": st.text(max_size=64),
        "ttlAfterFinished": DURATIONS,
    },
)
WRONG = st.sampled_from(
    [
        "",
        "None",
        "lake.raw.a",
        "a.b",
        "5m",
        "1.5h",
        "400000d",
        "10s5m",
        "2021-07-11T00:00:00Z",
        "2021-07-11",
        -1,
        0,
        7,
        1.5,
        True,
        [],
        {},
    ]
)


def agree(admin: Rest, namespace: str, document: Manifest) -> bool:
    """Whether both take the document; fails where they differ."""
    answer: Answer = admin.create(
        BACKFILLS.format(namespace), document, dryRun="All", fieldValidation="Strict"
    )
    try:
        load_manifests(json.dumps(document), require_application=False)
    except InvalidManifest as error:
        assert answer.status in {400, 422}, f"only the models refuse it: {error}"
        return False
    assert answer.ok, f"only the server refuses it: {answer.message}"
    return True


@settings(ON_A_SERVER, max_examples=300)
@given(spec=SPECS)
def test_any_specification(admin: Rest, crds: None, namespace: str, spec: Manifest) -> None:
    agree(admin, namespace, {**BACKFILL, "spec": spec})


@settings(ON_A_SERVER, max_examples=300)
@given(data=st.data())
def test_a_specification_with_something_wrong_in_it(
    admin: Rest, crds: None, namespace: str, data: st.DataObject
) -> None:
    document = copy.deepcopy(rich_backfill())
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(list(places(document["spec"]))))
        here: Any = document["spec"]
        for part in path:
            here = here[part]
        if data.draw(st.booleans()):
            here[last] = data.draw(WRONG)
            # an API server takes an empty list for text of a format
            assume(last != "asOf" or here[last] != [])
        else:
            del here[last]
    agree(admin, namespace, document)


def test_the_specification_to_start_from_is_taken_by_both(
    admin: Rest, crds: None, namespace: str
) -> None:
    assert agree(admin, namespace, rich_backfill())
