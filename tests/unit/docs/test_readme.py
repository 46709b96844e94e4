"""The Backfills that the README and the examples show are some."""

import re
from pathlib import Path

import pytest

from backfill.api.manifests.backfill_manifest import load_manifests
from repository import ROOT

README = ROOT / "README.md"


def test_the_shown_backfill_is_accepted(tmp_path: Path) -> None:
    [shown] = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "shown.yaml").write_text(shown)
    spec = load_manifests(tmp_path / "shown.yaml", require_application=False).backfill.spec
    assert spec.is_short
    assert spec.publish == "Replace"


@pytest.mark.parametrize("case", ["correct", "fill", "bootstrap"])
def test_the_commonest_cases_are_three_decisions(case: str) -> None:
    file = ROOT / "examples" / "short" / f"{case}.yaml"
    assert len(file.read_text().splitlines()) <= 10
    spec = load_manifests(file, require_application=False).backfill.spec
    assert spec.is_short
    assert spec.publish is not None
