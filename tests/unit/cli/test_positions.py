"""Problems say where in a manifest file the field is."""

from pathlib import Path

import pytest

from backfill.api.errors import BadInput, Problem
from backfill.cli.positions import positions_in

MANIFEST = """\
kind: SparkApplication
metadata: {name: other}
spec: {mainApplicationFile: other.py}
---
kind: SparkApplication
metadata:
  name: app
spec:
  mainApplicationFile: app.py
---
kind: Backfill
spec:
  window: {start: 2021-07-11, end: soon}
  sources:
    - name: clicks
      timestampColumn: at
    - name: views
  overrides:
    sparkConf:
      spark.sql.ansi.enabled: false
"""


@pytest.mark.parametrize(
    ("problem", "position"),
    [
        ("spec.window.end: is not a time", "13:31"),
        ("spec.sources[1].name: is taken", "17:7"),
        ("spec.sources[1].table: is missing", "17:7"),
        ("spec.sources[0].timestampColumn, spec.sources[1].name: are wrong", "16:7"),
        ("spec.overrides.sparkConf[spark.sql.ansi.enabled]: is a boolean", "20:7"),
        ("metadata.name: is missing", "11:1"),
        ("SparkApplication/app: spec.mainApplicationFile: there is none", "9:3"),
        ("SparkApplication spec.mainApplicationFile: there is none", "3:8"),
    ],
)
def test_a_field_has_a_line_and_a_column(tmp_path: Path, problem: str, position: str) -> None:
    file = tmp_path / "my backfill.yaml"
    file.write_text(MANIFEST)
    assert positions_in(file)(problem) == f"{file}:{position}: {problem}"


@pytest.mark.parametrize(
    "problem",
    [
        "--publish: requires --window",
        "specially made: a message",
        "spec",
        "the catalog answers 503",
        "SparkApplication/third: spec.type: is missing",
    ],
)
def test_what_is_no_field_of_the_file_stays_as_it_is(tmp_path: Path, problem: str) -> None:
    file = tmp_path / "backfill.yaml"
    file.write_text(MANIFEST)
    assert positions_in(file)(problem) == problem


@pytest.mark.parametrize("text", ["", "a: [", "\x00", "a: &a [*a]", "- 1", "kind: Backfill\nspec"])
def test_a_file_that_is_no_manifest_has_no_positions(tmp_path: Path, text: str) -> None:
    file = tmp_path / "backfill.yaml"
    file.write_text(text)
    for given in (file, tmp_path / "none.yaml", None):
        assert positions_in(given)("spec.window: is missing") == "spec.window: is missing"


def test_a_problem_of_several_fields_is_said_once() -> None:
    error = BadInput(
        [
            Problem("spec.sources[0].table", "catalog lake is not configured", "configure it"),
            Problem("spec.window", "is missing"),
            Problem("spec.outputs[0].table", "catalog lake is not configured", "configure it"),
        ]
    )
    assert str(error).splitlines() == [
        "spec.sources[0].table, spec.outputs[0].table: catalog lake is not configured;"
        " configure it",
        "spec.window: is missing",
    ]
    assert len(error.problems) == 3
