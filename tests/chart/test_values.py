"""Values that would not work are refused with words that say what to do."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helm_chart import CHART, Values, refusal

BAD: dict[str, tuple[Values, tuple[str, ...]]] = {
    "a value that does not exist": ({"replicaCount": 2}, ("replicaCount",)),
    "a value that does not exist, further down": ({"image": {"repo": "x"}}, ("image", "repo")),
    "a scope that does not exist": ({"scope": "Namespace"}, ("scope", "'Cluster', 'Namespaces'")),
    "namespaces as a list of names": ({"namespaces": ["streaming"]}, ("namespaces", "want object")),
    "a namespace without a name": ({"namespaces": [{"drivers": ["spark"]}]}, ("namespaces", "name")),
    "a namespace's name in capitals": ({"namespaces": [{"name": "Streaming"}]}, ("namespaces/0/name", "Streaming")),
    "service accounts as a word": ({"namespaces": [{"name": "a", "drivers": "spark"}]}, ("namespaces/0/drivers", "want array")),
    "a namespace twice": ({"namespaces": [{"name": "a"}, {"name": "a"}]}, ("namespaces lists a twice",)),
    "no namespace at all": ({"namespaces": []}, ("namespaces is empty", "--set namespaces[0].name=streaming")),
    "chosen namespaces without one": ({"scope": "Namespaces"}, ("--set namespaces[0].name=streaming",)),
    "a number as text": ({"replicas": "two"}, ("replicas", "want integer")),
    "no workers": ({"workers": 0}, ("workers", "minimum")),
    "no jobs": ({"jobs": {"concurrent": 0}}, ("jobs/concurrent", "minimum")),
    "an image of jobs with its tag": ({"jobs": {"image": {"repository": "b:1.0"}}}, ("jobs/image/repository", "b:1.0")),
    "a default taken away": ({"log": {"level": None}}, ("/log", "missing property 'level'")),
    "a section taken away": ({"image": None}, ("missing property 'image'",)),
    "a repository with its tag": ({"image": {"repository": "r.example.com/b:1.0"}}, ("image/repository", "r.example.com/b:1.0")),
    "a name that no Service may have": ({"fullnameOverride": "2nd"}, ("2nd is not a valid Service name", "fullnameOverride")),
    "a workspace that is no place": ({"workspace": {"uri": "backfills"}}, ("workspace/uri", "backfills")),
    "a workspace with a query": ({"workspace": {"uri": "s3://lake/prod?"}}, ("workspace/uri", "s3://lake/prod?")),
    "a workspace by something else than the namespace": ({"workspace": {"uri": "s3://lake/{name}"}}, ("workspace/uri", "{name}")),
    "a credential as an annotation's number": ({"serviceAccount": {"annotations": {"a": 1}}}, ("annotations", "want string")),
    "a level that does not exist": ({"log": {"level": "trace"}}, ("log/level", "debug")),
    "a tag as the digest": ({"image": {"digest": "1.0"}}, ("image/digest",)),
    "root": ({"podSecurityContext": {"runAsUser": 0}}, ("podSecurityContext/runAsUser", "minimum")),
    "alerts that link to nowhere": ({"metrics": {"prometheusRule": {"runbooks": "docs"}}}, ("prometheusRule/runbooks",)),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=[name.replace(" ", "-") for name in BAD])
def test_bad_values_are_refused_in_words(case: str) -> None:
    values, words = BAD[case]
    said = refusal(values)
    assert all(word in said for word in words), said


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and (*path, key) not in WHOLE:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


WHOLE = {
    ("resources", "requests"),
    ("podSecurityContext",),
    ("metrics", "dashboard", "labels"),
}
"""Values that have a default and are the user's to fill."""


SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def rules_of(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rule of each value of a section."""
    for key, rule in part["properties"].items():
        yield key, SCHEMA["$defs"][rule["$ref"].rsplit("/", 1)[1]] if "$ref" in rule else rule


def test_every_value_has_a_rule_and_every_rule_a_value() -> None:
    def ruled(part: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for key, rule in rules_of(part):
            whole = "properties" not in rule or (*path, key) in WHOLE
            yield from [(*path, key)] if whole else ruled(rule, (*path, key))

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(leaves(values)) == set(ruled(SCHEMA)) - {("global",)}


def test_a_default_can_be_replaced_and_not_be_taken_away() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def sections(
        part: dict[str, Any], given: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        yield part, given
        for key, rule in rules_of(part):
            # OpenShift sets what is taken away from podSecurityContext
            if "properties" in rule and key != "podSecurityContext":
                yield from sections(rule, given[key])

    for part, given in sections(SCHEMA, values):
        assert set(part.get("required", ())) == {
            key for key, default in given.items() if default not in (None, "", [], {})
        }


def test_every_value_is_explained_in_the_readme() -> None:
    text = (CHART / "README.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [
        ".".join(path) for path in leaves(values) if f"| `{'.'.join(path)}` |" not in text
    ] == []
