"""Rules of the repository that no tool checks."""

import operator
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_operator_folder_is_not_a_package_because_it_would_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert operator.itemgetter(0)("ab") == "a"


def test_no_file_names_a_package_registry() -> None:
    pinned = (ROOT / "constraints.txt").read_text()
    assert re.findall(r"^(?![\w.\[\]-]+==[\w.+!]+$).+$", pinned, flags=re.MULTILINE) == []
