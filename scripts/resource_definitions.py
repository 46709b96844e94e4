"""Writes crds/ from the resource models, so that the two cannot differ. ``--check`` only
compares.
"""

import sys
from pathlib import Path

import yaml

from backfill.crd.definitions import (
    backfill_definition,
    decision_definition,
    job_report_definition,
    split_assignment_definition,
)

TARGET = Path(__file__).parents[1] / "crds"
HEADER = "# Generated from the models in operator/backfill/api by `make generate`.\n"


class _Dumper(yaml.SafeDumper):
    """Writes a part that stands in several places in each of them."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def definitions() -> dict[str, str]:
    """The text of every file in crds/, by its name."""
    all_made = (
        backfill_definition(),
        decision_definition(),
        job_report_definition(),
        split_assignment_definition(),
    )
    return {
        f"{made['spec']['names']['plural']}.yaml": (
            HEADER + yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=130)
        )
        for made in all_made
    }


def main() -> int:
    """Writes the files, or says that they are not current."""
    texts = definitions()
    if "--check" in sys.argv[1:]:
        there = {path.name: path.read_text() for path in TARGET.glob("*.yaml")}
        if there != texts:
            print("crds/ is not current: run make generate", file=sys.stderr)
            return 1
        return 0
    TARGET.mkdir(exist_ok=True)
    for name, text in texts.items():
        (TARGET / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
