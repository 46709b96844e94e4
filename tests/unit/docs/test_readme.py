"""The Backfill that the README shows is one."""

import re
from pathlib import Path

from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.runtime.switching.stream_matching import kafka_sources
from repository import ROOT

README = ROOT / "README.md"


def test_the_shown_backfill_is_accepted(tmp_path: Path) -> None:
    [shown] = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "shown.yaml").write_text(shown)
    spec = load_manifests(tmp_path / "shown.yaml", require_application=False).backfill.spec
    assert spec.outputs[0].name == "summaries"
    read = kafka_sources({"subscribe": "impressions,titles"}, spec.sources, lambda *_: False)
    assert [source.name for source in read] == ["impressions", "titles"], (
        "a program that reads these topics is not refused"
    )
