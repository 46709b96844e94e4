"""Rules of the repository that no tool checks."""

import operator
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from repository import ROOT


def test_the_operator_folder_is_not_a_package_because_it_would_shadow_the_standard_library() -> (
    None
):
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert operator.itemgetter(0)("ab") == "a"


def test_unit_tests_are_in_the_folders_of_what_they_test() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("*.py")}
    mirrored = [ROOT / "operator" / "backfill", ROOT]
    assert [
        str(folder)
        for folder in sorted(folders)
        if not any((root / folder).is_dir() for root in mirrored)
    ] == []


def test_no_two_files_of_one_run_have_one_name_as_pytest_could_import_only_the_first() -> None:
    together = [ROOT / "tests" / name for name in ("end_to_end", "simulation", "spark", "unit")]
    names = Counter(path.name for folder in together for path in folder.rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_no_file_names_a_package_registry() -> None:
    pinned = (ROOT / "constraints.txt").read_text()
    assert re.findall(r"^(?![\w.\[\]-]+==[\w.+!]+$).+$", pinned, flags=re.MULTILINE) == []


def test_docstrings_refer_to_modules_that_exist() -> None:
    def name(path: Path) -> str:
        return ".".join(path.relative_to(ROOT / "operator").with_suffix("").parts)

    paths = sorted((ROOT / "operator" / "backfill").rglob("*.py"))
    modules = {name(path).removesuffix(".__init__") for path in paths}
    referred = {
        (name(path), reference if reference[0] != "." else name(path.parent) + reference)
        for path in paths
        for reference in re.findall(r":mod:`~?([^`]+)`", path.read_text())
    }
    assert referred
    assert [(here, there) for here, there in sorted(referred) if there not in modules] == []


_IMAGES = ROOT / "spark-images"


@pytest.mark.parametrize(
    "listed",
    sorted(str(path.relative_to(_IMAGES)) for path in _IMAGES.rglob("requirements*.txt")),
)
def test_the_images_have_the_libraries_that_everything_was_tested_with(listed: str) -> None:
    spark = Path(listed).parent.name
    with_spark = ["sh", ROOT / "scripts" / "constraints.sh", spark]
    pinned = (
        subprocess.run(with_spark, capture_output=True, text=True, check=True).stdout
        if (_IMAGES / spark / "constraints.txt").exists()
        else (ROOT / "constraints.txt").read_text()
    )
    text = (_IMAGES / listed).read_text()
    installed = re.findall(r"^[\w.-]+==\S+", text, flags=re.MULTILINE)
    own = (_IMAGES / "catalogs.txt").read_text()
    assert installed
    assert {_normal(each) for each in installed} <= {
        _normal(each) for each in (pinned + own).splitlines()
    }
    assert (
        re.findall(
            r"^(?!#|[\w.-]+==\S+ \\$|    --hash=sha256:[0-9a-f]{64}( \\)?$).+$",
            text,
            flags=re.MULTILINE,
        )
        == []
    )


def test_images_can_be_made_for_each_spark_that_is_supported() -> None:
    lines = {path.parent.name for path in _IMAGES.glob("*/jars.sha256")}
    assert lines == {path.parent.name for path in _IMAGES.glob("*/requirements.txt")}
    profiles = re.findall(
        r"<name>spark</name><value>(\S+)</value>", (_IMAGES / "pom.xml").read_text()
    )
    assert lines == set(profiles)
    limits = (ROOT / "docs" / "will-my-program-work.md").read_text()
    assert lines == set(re.findall(r"^\| (\d\.\d) \|", limits, flags=re.MULTILINE))


def _normal(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"


def test_only_a_few_modules_reach_into_the_jvm_of_spark() -> None:
    runtime = ROOT / "operator" / "backfill" / "runtime"
    reaching = {
        str(path.relative_to(runtime))
        for path in runtime.rglob("*.py")
        if re.search(r"\._(jvm|jdf|gateway)\b|\bjava_classes\(", path.read_text())
    }
    handing_over = {
        f"hand_off/{name}.py" for name in ("broker_offsets", "hadoop_files", "offset_log")
    }
    others = {"agent/executor_requests.py", "early_java.py", "queries/encoded_locations.py"}
    assert reaching == {
        "catalyst.py",
        "java_classes.py",
        "spark_versions.py",
        *others,
        *handing_over,
    }
