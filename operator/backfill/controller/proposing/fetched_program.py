"""An application's program on this machine, also if Spark would fetch it from an object store."""

from pathlib import Path
from typing import Final

from backfill.api.errors import BadInput, Problem, first_line
from backfill.api.spark_application import Application
from backfill.planning.workspace import Workspace

_MOST_BYTES: Final = 256 * 2**20


def fetched(application: Application, catalog: str, directory: Path) -> Application:
    """The application with its main program and Python files here: those of object stores are
    copied into a directory. ``catalog`` is the one whose properties open the store.

    Raises:
        BadInput: a file cannot be read.
    """
    modules = tuple(_here(file, catalog, directory) for file in application.py_files)
    main = _here(application.main_application_file, catalog, directory)
    return application.model_copy(update={"main_application_file": main, "py_files": modules})


def _here(file: str, catalog: str, directory: Path) -> str:
    if "://" not in file:
        return file
    place, _, name = file.rpartition("/")
    try:
        content = Workspace(place, catalog).read(name, _MOST_BYTES)
    except Exception as error:  # whatever client libraries raise
        why = f"{file} cannot be read here: {first_line(error)}"
        fix = "put the program into the image (local:///…), or list what it reads and writes"
        raise BadInput(Problem("spec.sources", why, fix)) from error
    copy = directory / name
    copy.write_bytes(content)
    return str(copy)
