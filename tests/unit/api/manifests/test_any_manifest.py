"""Whatever stands in a manifest, it is read or refused in words; nothing else comes out."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.api.errors import InvalidManifest
from backfill.api.manifests.backfill_manifest import load_manifests
from manifests import BACKFILL, changed, places

RICH = changed(
    BACKFILL,
    {
        "spec.sources.0.live": {"kafka": {"topic": "i", "value": {"format": "json"}}},
        "spec.sources.0.kafka": {"partitionColumn": "p", "offsetColumn": "o"},
        "spec.sources.0.regions": {"column": "r", "in": ["a"]},
        "spec.ordering": {"policy": "Strict", "allowedLateness": "5m"},
        "spec.outputs.0.publish": {"mode": "Replace"},
        "spec.catalogs": [{"name": "lake", "secretRef": {"name": "s"}}],
        "spec.overrides": {"driver": {"memory": "4g"}, "sparkConf": {"spark.x": "1"}},
        "spec.scaling": {"minExecutors": 1, "maxExecutors": 4, "completeWithin": "5h"},
    },
)
WORDS = st.sampled_from(
    [
        "None",
        "Strict",
        "lake.raw.a",
        "5m",
        "2021-07-11T00:00:00Z",
        "impressions",
        "name",
        "spec",
        "",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def mutilated(draw: st.DrawFn) -> dict[str, Any]:
    document = copy.deepcopy(RICH)
    for _ in range(draw(st.integers(1, 4))):
        *path, last = draw(st.sampled_from(list(places(document))))
        here: Any = document
        for part in path:
            here = here[part]
        what = draw(st.sampled_from(["replace", "remove", "misspell"]))
        if what == "replace":
            here[last] = draw(VALUES)
        else:
            value = here.pop(last)
            if what == "misspell" and isinstance(here, dict):
                here[f"{last}s"] = value
    return document


def read_or_refused(text: str) -> None:
    try:
        load_manifests(text, require_application=False)
    except InvalidManifest as error:
        assert error.problems
        assert all(problem.message and "\n" not in str(problem) for problem in error.problems)
        assert len({str(problem) for problem in error.problems}) == len(error.problems)


@settings(max_examples=200)
@given(mutilated())
def test_a_mutilated_backfill(document: dict[str, Any]) -> None:
    read_or_refused(json.dumps(document))


@given(VALUES)
def test_any_value_as_a_backfill(value: Any) -> None:
    read_or_refused(json.dumps({**BACKFILL, "spec": value}))
    read_or_refused(json.dumps({**BACKFILL, "metadata": value}))


@given(st.text(max_size=40) | st.text(alphabet="ab:-[]{}#&*!|>'\"%@\t\n ,?", max_size=40))
def test_any_text(text: str) -> None:
    read_or_refused(text)
