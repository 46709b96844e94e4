"""Reading a manifest file, and saying everything that is wrong with it at once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backfill.api.errors import InvalidManifest
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.api.manifests.documents import read_documents
from backfill.api.output import PublishMode
from backfill.api.quantities import format_time
from cases import cases
from manifests import APPLICATION, BACKFILL, changed, spec_with
from repository import ROOT
from waiting import PATIENCE_SECONDS


def problems(source: Path | str, *, require_application: bool = False) -> list[str]:
    with pytest.raises(InvalidManifest) as caught:
        load_manifests(source, require_application=require_application)
    return [str(problem) for problem in caught.value.problems]


def file(directory: Path, *documents: dict[str, Any]) -> Path:
    (directory / "app.py").write_text("print()")
    path = directory / "backfill.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_a_file_gives_the_backfill_and_the_application_it_refers_to(tmp_path: Path) -> None:
    other = changed(
        APPLICATION, {"metadata.name": "other", "spec.mainApplicationFile": "missing.py"}
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "rmi"},
        "spec": {"ports": [{1: 2}]},
    }
    loaded = load_manifests(file(tmp_path, service, other, APPLICATION, BACKFILL))
    assert loaded.backfill.metadata.namespace == "streaming"
    assert loaded.application is not None
    assert loaded.application.name == "rmi"
    assert loaded.application.main_application_file == str(tmp_path / "app.py")
    assert loaded.application.manifest == APPLICATION


def test_an_application_without_a_namespace_is_in_the_backfills(tmp_path: Path) -> None:
    loaded = load_manifests(
        file(tmp_path, changed(APPLICATION, {"metadata.namespace": None}), BACKFILL)
    )
    assert loaded.application is not None
    assert loaded.application.namespace == "streaming"


def test_everything_a_local_run_needs_is_taken_from_the_application(tmp_path: Path) -> None:
    application = changed(
        APPLICATION,
        {
            "spec.mainApplicationFile": f"local://{tmp_path}/app.py",
            "spec.arguments": ["--day", "11"],
            "spec.sparkConf": {"spark.sql.ansi.enabled": "true"},
            "spec.deps": {
                "pyFiles": ["lib/shared.zip", "s3://code/more.zip"],
                "jars": ["local:///opt/a.jar"],
                "repositories": [],
            },
            "spec.driver": {
                "cores": 1,
                "envVars": {"MODE": "x"},
                "env": [
                    {"name": "REGION", "value": "eu"},
                    {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s"}}},
                ],
            },
        },
    )
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shared.zip").touch()
    loaded = load_manifests(file(tmp_path, application, BACKFILL)).application
    assert loaded is not None
    assert loaded.main_application_file == f"{tmp_path}/app.py"
    assert loaded.arguments == ("--day", "11")
    assert loaded.spark_conf == {"spark.sql.ansi.enabled": "true"}
    assert loaded.py_files == (str(tmp_path / "lib/shared.zip"), "s3://code/more.zip")
    assert loaded.jars == ("/opt/a.jar",)
    assert loaded.env == {"MODE": "x", "REGION": "eu"}


def test_json_indented_with_tabs_is_read_as_well_as_yaml() -> None:
    text = json.dumps(BACKFILL, indent="\t")
    assert load_manifests(text, require_application=False).backfill.metadata.name == "july"


def test_unquoted_times_stay_what_was_written() -> None:
    text = spec_with().replace("'2021-07-11T00:00:00Z'", "2021-07-11T02:30:00.5+02:30")
    assert text != spec_with()
    window = load_manifests(text, require_application=False).backfill.spec.window
    assert format_time(window.start) == "2021-07-11T00:00:00.500000Z"


def test_publish_mode_none_is_a_word_and_not_nothing() -> None:
    text = spec_with(outputs__0__publish={"mode": "None"})
    assert "mode: None" in text
    assert (
        load_manifests(text, require_application=False).backfill.spec.outputs[0].publish.mode
        is PublishMode.NONE
    )


def test_a_status_in_the_file_is_not_taken_for_the_truth() -> None:
    text = yaml.safe_dump(changed(BACKFILL, {"status": {"planId": "abc"}}))
    assert load_manifests(text, require_application=False).backfill.status.plan_id is None


@cases(
    ("text", "expected"),
    {
        "an empty file": ("", "kind: manifest contains no Backfill, and no other resource"),
        "a list": ("- 1", "manifest: document 1 is not a resource"),
        "a bracket left open": ("kind: [", "manifest:1:8: expected the node content"),
        "a tab in YAML": ("a:\n\tb: 1", "manifest:2:1: found character '\\t'"),
        "a key twice": (
            "a: 1\nb: 2\na: 3",
            "manifest:3:1: duplicate key 'a'",
        ),
        "a key twice in JSON": (
            '{"a": 1, "a": 2}',
            "manifest:1:10: duplicate key 'a'",
        ),
        "control characters": ("a: \x01", "special characters are not allowed"),
        "not a number": ("a: .nan", "use only the types that JSON has"),
        "bytes": ("a: !!binary aGk=", "use only the types that JSON has"),
        "a list within itself": ("&a [*a]", "too large or nested too deeply"),
        "a Python object": ("a: !!python/object:os.system {}", "could not determine a constructor"),
        "a kind in lower case": ("kind: backfill", "only backfill; did you mean Backfill?"),
        "another kind": (
            "kind: Service",
            "only Service; add one (apiVersion: backfill.dev/v1alpha1)",
        ),
        "two Backfills": (
            spec_with() + "---\n" + spec_with(),
            "contains 2 Backfills (july, july); keep one",
        ),
    },
)
def test_a_text_that_is_no_manifest_is_refused(text: str, expected: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert expected in found[0]


@cases(
    ("changes", "expected"),
    {
        "a field left out": ({"window": None}, "spec.window: is missing; add window"),
        "a field misspelt": (
            {"sources__0__timestampColum": "x"},
            "spec.sources[0].timestampColum: is not a known field; did you mean timestampColumn?",
        ),
        "snake case": (
            {"max_misalignment": "15m"},
            "spec.max_misalignment: is not a known field; did you mean maxMisalignment?",
        ),
        "unknown": (
            {"window__colour": "red"},
            "spec.window.colour: is not a known field; known fields: start, end, warmUp, drain",
        ),
        "a field misspelt deep inside": (
            {"sources__0__live": {"kafka": {"topik": "t", "topic": "t"}}},
            "spec.sources[0].live.kafka.topik: is not a known field; did you mean topic?",
        ),
        "a table without its catalog": (
            {"sources__0__table": "raw.impressions"},
            'spec.sources[0].table: "raw.impressions" does not have the required format; '
            "write it as catalog.namespace.table, with a catalog name of ASCII letters and digits",
        ),
        "a tolerance that is no number": (
            {"outputs__0__validate": {"tolerance": {"views": "some"}}},
            'spec.outputs[0].validate.tolerance.views: "some" does not have the required format; '
            'use a number, for example "0.01", or a duration, for example 5s',
        ),
        "a comparison with a reference that is not named": (
            {"outputs__0__validate": {"against": "Reference"}},
            "spec.outputs[0].validate: reference is required with against: Reference, and not"
            " allowed with against: Production",
        ),
        "a reference that is not compared with": (
            {"outputs__0__validate": {"reference": {"table": "lake.audit.summary"}}},
            "spec.outputs[0].validate: reference is required with against: Reference, and not"
            " allowed with against: Production",
        ),
        "a number for text": (
            {"outputs__0__validate": {"minMatch": 99.9}},
            "spec.outputs[0].validate.minMatch: 99.9 is a number, not a string; put it in quotes:"
            ' "99.9"',
        ),
        "a number as Spark property": (
            {"overrides__sparkConf": {"spark.sql.shuffle.partitions": 200}},
            "spec.overrides.sparkConf[spark.sql.shuffle.partitions]: 200 is a number, not"
            ' a string; put it in quotes: "200"',
        ),
        "Norway": (
            {"sources__0__regions": {"column": "country", "in": [False]}},
            "spec.sources[0].regions.in[0]: false is a boolean, not a string; put the value in"
            " quotes",
        ),
        "text for a number": (
            {"scaling": {"minExecutors": "3"}},
            'spec.scaling.minExecutors: "3" is not a whole number; remove the quotes',
        ),
        "too small a number": (
            {"scaling": {"minExecutors": 0}},
            "spec.scaling.minExecutors: 0 should be greater than or equal to 1",
        ),
        "text for a truth value": (
            {"suspend": "soon"},
            'spec.suspend: "soon" is not true or false; remove the quotes',
        ),
        "a mapping for a list": (
            {"sources": {"a": 1}},
            'spec.sources: {"a": 1} is not a list; use a list',
        ),
        "text for a mapping": (
            {"window": "today"},
            'spec.window: "today" is not a mapping; use a mapping',
        ),
        "no choice": (
            {"execution": "stream"},
            'spec.execution: "stream" is not one of Auto, Streaming or Batch; did you mean'
            " Streaming?",
        ),
        "a choice in lower case": (
            {"outputs__0__publish": {"mode": "replace"}},
            'spec.outputs[0].publish.mode: "replace" is not one of None, Append, Replace,'
            " Upsert, Export or Deliver; did you mean Replace?",
        ),
        "how to deliver what is not delivered": (
            {"outputs__0__publish": {"mode": "Append", "deliver": {"maxRowsPerSecond": 5}}},
            "spec.outputs[0].publish: deliver is not allowed with any mode other than Deliver",
        ),
        "a delivery of no history at once": (
            {"outputs__0__publish": {"mode": "Deliver", "deliver": {"batchInterval": "0s"}}},
            'spec.outputs[0].publish.deliver.batchInterval: "0s" must be greater than zero',
        ),
        "a comparison with what is not there": (
            {
                "outputs__0__publish": {"mode": "Deliver"},
                "outputs__0__validate": {"minMatch": "90"},
            },
            "spec.outputs[0]: validate requires against: Reference with publish mode Deliver, whose table has"
            " no rows of production",
        ),
        "files without a place": (
            {"outputs__0__publish": {"mode": "Export"}},
            "spec.outputs[0].publish: location is required with mode: Export, and not allowed with any other mode",
        ),
        "a place without files": (
            {"outputs__0__publish": {"mode": "Append", "location": "s3://lake/out"}},
            "spec.outputs[0].publish: location is required with mode: Export, and not allowed with any other mode",
        ),
        "a duration in words": (
            {"window__warmUp": "2 hours"},
            'spec.window.warmUp: "2 hours" is not a duration; write it as 2h',
        ),
        "a number of seconds": (
            {"window__warmUp": 300},
            "spec.window.warmUp: 300 is not a duration; write it as 300s, if it is in seconds",
        ),
        "a month": (
            {"window__warmUp": "P1M"},
            'spec.window.warmUp: "P1M" is not a duration; write it as 30s, 15m, 2h, 1d or 1h30m',
        ),
        "minutes in ISO": (
            {"window__warmUp": "PT1M"},
            'spec.window.warmUp: "PT1M" is not a duration; write it as 1m',
        ),
        "a length of time without an end": (
            {"window__warmUp": "99999999999999 weeks"},
            'spec.window.warmUp: "99999999999999 weeks"'
            " is not a duration; write it as 30s, 15m, 2h, 1d or 1h30m",
        ),
        "digits of other scripts": (
            {"window__warmUp": "٣"},
            'spec.window.warmUp: "٣" is not a duration; write it as 30s, 15m, 2h, 1d or 1h30m',
        ),
        "one publish mode for an output": (
            {"outputs__0__publish": "Replace"},
            'spec.outputs[0].publish: "Replace" is not a mapping; write {mode: Replace}',
        ),
        "one key": (
            {"outputs__0__keys": "id"},
            'spec.outputs[0].keys: "id" is not a list; write [id]',
        ),
        "a length of time that nobody can tell": (
            {"window__warmUp": "soon"},
            'spec.window.warmUp: "soon" is not a duration; write it as 30s, 15m, 2h, 1d or 1h30m',
        ),
        "an hour for a time": (
            {"window__start": "2021-07-11T06"},
            'spec.window.start: "2021-07-11T06" is neither a date nor a time in RFC 3339; write it'
            " as 2021-07-11T06:00:00Z, if it is in UTC",
        ),
        "a window that ends before it starts": (
            {"window__end": "2021-07-10T00:00:00Z"},
            "spec.window: end 2021-07-10T00:00:00Z is not after start 2021-07-11T00:00:00Z; "
            "end is exclusive and must be later than start",
        ),
    },
)
def test_a_mistake_in_a_field_is_named_with_its_place_and_what_to_do(
    changes: dict[str, Any], expected: str
) -> None:
    assert problems(spec_with(**changes)) == [expected]


def test_an_empty_field_says_so() -> None:
    assert problems(
        spec_with()
        .replace("  window:\n", "  workspaces:\n")
        .replace("spec:\n", "spec:\n  window:\n")
    )[0].startswith("spec.window: is empty; a mapping is required")


def test_mistakes_in_fields_between_fields_and_in_the_application_are_told_together(
    tmp_path: Path,
) -> None:
    backfill = changed(
        BACKFILL,
        {
            "spec.window.warmUp": 5,
            "spec.sources.1.name": "impressions",
            "spec.sources.1.colour": "red",
            "spec.outputs.0.publish": {"mode": "Replace"},
            "spec.outputs.0.timestampColumn": None,
            "spec.execution": "Streams",
        },
    )
    application = changed(APPLICATION, {"spec.type": "Scala", "spec.sparkConf": {"spark.x": 1}})
    fields = [
        problem.split(": ")[0]
        for problem in problems(file(tmp_path, application, backfill), require_application=True)
    ]
    assert fields == [
        "spec.window.warmUp",
        "spec.sources[1].colour",
        "spec.execution",
        "spec.sources[1].name",
        "spec.outputs[0].timestampColumn",
        "SparkApplication/rmi",
        "SparkApplication/rmi",
    ]


def test_a_rule_is_not_told_about_a_field_that_is_wrong_by_itself() -> None:
    found = problems(
        spec_with(outputs__0__timestampColumn=7, outputs__0__publish={"mode": "Replace"})
    )
    assert found == [
        'spec.outputs[0].timestampColumn: 7 is a number, not a string; put it in quotes: "7"'
    ]


@cases(
    ("change", "expected"),
    {
        "a near name": (
            {"metadata.name": "rni"},
            'contains no SparkApplication "rmi" in namespace streaming; did you mean rni?',
        ),
        "another namespace": (
            {"metadata.namespace": "prod"},
            "add the production SparkApplication as another document",
        ),
        "a program that is not there": (
            {"spec.mainApplicationFile": "gone.py"},
            '"gone.py": there is no file ',
        ),
        "a program elsewhere": (
            {"spec.mainApplicationFile": "s3://code/app.py"},
            '"s3://code/app.py" is not on this machine',
        ),
        "no program": ({"spec.mainApplicationFile": None}, "spec.mainApplicationFile: is missing"),
        "a module that is not there": (
            {"spec.deps": {"pyFiles": ["s3://code/more.zip", "gone.zip"]}},
            'spec.deps.pyFiles[1]: "gone.zip": there is no file ',
        ),
        "another language": (
            {"spec.type": "Scala"},
            'spec.type: "Scala" is not supported; use Python',
        ),
        "another operator": (
            {"apiVersion": "spark.apache.org/v1"},
            'apiVersion: "spark.apache.org/v1" is not supported; use sparkoperator',
        ),
    },
)
def test_an_application_that_can_not_be_run_here_is_refused(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    found = problems(
        file(tmp_path, changed(APPLICATION, change), BACKFILL), require_application=True
    )
    assert len(found) == 1
    assert expected in found[0]


def test_two_applications_of_one_name_are_refused(tmp_path: Path) -> None:
    path = file(tmp_path, APPLICATION, APPLICATION, BACKFILL)
    assert problems(path) == [
        'spec.applicationRef.name: the file has 2 SparkApplications named "rmi"; keep one of them'
    ]


def test_without_the_application_a_file_is_enough_where_none_is_required(tmp_path: Path) -> None:
    path = file(tmp_path, BACKFILL)
    assert load_manifests(path, require_application=False).application is None
    assert "contains no SparkApplication" in problems(path, require_application=True)[0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, "there is no file", id="is not there"),
        pytest.param(b"\xff\xfe\x00", "cannot be read", id="is not text"),
    ],
)
def test_a_file_is_refused_that(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "backfill.yaml"
    if content is not None:
        path.write_bytes(content)
    assert expected in problems(path)[0]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in problems(tmp_path)[0]


def test_a_missing_version_is_told_with_everything_else() -> None:
    text = yaml.safe_dump(changed(BACKFILL, {"apiVersion": None, "spec.execution": "Streams"}))
    assert [problem.split(":")[0] for problem in problems(text)] == ["apiVersion", "spec.execution"]


def test_the_example_of_the_repository_is_well_formed() -> None:
    assert load_manifests(ROOT / "examples/demo/backfill.yaml").application is not None


@pytest.mark.hostile
def test_a_workspace_that_could_mean_another_place_is_refused_and_it_is_said_what_to_write() -> (
    None
):
    (problem,) = problems(spec_with(workspace="s3://lake/prod/team-b?"))
    assert problem.startswith(
        'spec.workspace: "s3://lake/prod/team-b?" does not have the required format'
    )
    assert "no .., spaces" in problem


@pytest.mark.hostile
@pytest.mark.parametrize(
    "name",
    ["la\u212ae", "l\u0430ke", "lake\u200b", "lake__uri", "la--ke", "\uff4cake", "lake\n", "-lake"],
    ids=ascii,
)
def test_a_catalog_that_only_looks_like_another_one_is_refused(name: str) -> None:
    """PyIceberg folds KELVIN SIGN to k: the operator's own catalog would be opened with another
    server.
    """
    found = problems(spec_with(catalogs=[{"name": name, "secretRef": {"name": "s"}}]))
    assert any(
        problem.startswith("spec.catalogs[0].name") and "ASCII" in problem for problem in found
    ), found
    found = problems(spec_with(sources__0__table=f"{name}.raw.a"))
    assert any(
        problem.startswith("spec.sources[0].table") and "ASCII" in problem for problem in found
    ), found


def test_a_margin_that_is_no_duration_is_not_taken_for_missing() -> None:
    manifest = changed(
        BACKFILL,
        {
            "spec.window.end": "Live",
            "spec.handOff": {"to": "Live", "startingTimestampMargin": "P1D"},
            "spec.sources.0.live": {"kafka": {"topic": "t"}},
            "spec.sources.1.live": {"kafka": {"topic": "u"}},
        },
    )
    told = problems(yaml.safe_dump(manifest))
    assert [each for each in told if "startingTimestampMargin" in each] == [
        'spec.handOff.startingTimestampMargin: "P1D" is not a duration; write it as 1d'
    ]


_ALIASES = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
BOMBS = {
    "aliases of aliases": f"a0: &a0 [0, 0, 0, 0]\n{_ALIASES}",
    "a list of itself": "a: &a [*a]\n",
    "many values": f"a: [{'0,' * 1_000_000}0]\n",
    "JSON of many values": f'{{"a": [{"0," * 1_000_000}0]}}',
    "many levels": f"a: {'[' * 5_000}{']' * 5_000}\n",
    "a number in base 60": f"a: 1{':1' * 100_000}\n",
    "many characters": f"a: {'x' * 5_000_000}\n",
}
_READS_BOMB = """
import resource, sys
from pathlib import Path
from backfill.api.errors import InvalidManifest
from backfill.api.manifests.documents import read_documents
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_documents(sys.stdin.read(), "july.yaml")
except InvalidManifest as error:
    print(str(error).splitlines()[0])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.hostile
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_manifest_of_little_text_does_not_fill_the_memory_of_who_checks_it(bomb: str) -> None:
    """As that of a pull request, which a pipeline checks."""
    read = subprocess.run(
        [sys.executable, "-c", _READS_BOMB],
        input=BOMBS[bomb],
        text=True,
        capture_output=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    said, kilobytes = read.stdout.splitlines()
    assert said.startswith("july.yaml: is too large or nested too deeply")
    assert int(kilobytes) < 200 * 1024


def test_anchors_of_a_manifest_may_be_used() -> None:
    (document,) = read_documents("driver: &pod {cores: 1}\nexecutor: *pod\n", "app.yaml")
    assert document == {"driver": {"cores": 1}, "executor": {"cores": 1}}


def test_merge_keys_are_read_as_kubernetes_reads_them() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: [{<<: *a, z: 4}]\n"
    assert read_documents(text, "manifest") == [
        {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": [{"x": 1, "y": 2, "z": 4}]}
    ]


def test_the_items_of_a_list_are_documents() -> None:
    text = "kind: List\nitems:\n- {kind: Backfill}\n- {kind: Pod}\n---\nkind: List\n"
    kinds = [each["kind"] for each in read_documents(text, "manifest")]
    assert kinds == ["Backfill", "Pod", "List"]


def test_a_quote_that_is_not_closed_is_named_where_it_begins() -> None:
    with pytest.raises(InvalidManifest, match=r"^manifest:2:4: found unexpected end of stream"):
        read_documents("a: 1\nb: 'c\nd: 2\n", "manifest")
