"""A program that Spark would fetch is read with the credentials of the catalog."""

from pathlib import Path

import pytest

from backfill.api.errors import BadInput
from backfill.api.spark_application import Application
from backfill.controller.proposing.fetched_program import fetched


def test_main_program_and_modules_are_copied_and_what_is_here_stays(tmp_path: Path) -> None:
    store, here = tmp_path / "store", tmp_path / "here"
    for directory in (store, here):
        directory.mkdir()
    (store / "main.py").write_text("import lib")
    (store / "lib.zip").write_bytes(b"PK")
    application = Application(
        name="app",
        main_application_file=f"file://{store}/main.py",
        py_files=(f"file://{store}/lib.zip", "/opt/more.py"),
    )
    found = fetched(application, "", here)
    assert Path(found.main_application_file).read_text() == "import lib"
    assert found.py_files == (str(here / "lib.zip"), "/opt/more.py")


@pytest.mark.parametrize("file", ["https://host/main.py", "file:///nowhere/main.py"])
def test_what_cannot_be_read_is_said_with_another_way(tmp_path: Path, file: str) -> None:
    application = Application(name="app", main_application_file=file)
    with pytest.raises(BadInput, match=r"cannot be read here.*or list what it reads and writes"):
        fetched(application, "", tmp_path)
