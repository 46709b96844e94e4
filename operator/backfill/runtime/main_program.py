"""The application's main program, run as ``spark-submit`` runs it."""

import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from backfill.runtime.catalyst import downloaded


def run_program(main_file: str, arguments: Sequence[str]) -> None:
    """Runs it to its end. ``main_file`` is a path or, if the program is not in the image, a URI."""
    path = _fetched(main_file) if urlsplit(main_file).scheme else main_file
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    runpy.run_path(path, run_name="__main__")


def _fetched(uri: str) -> str:
    """The path of a copy on this machine, alone in its directory.

    It is fetched here, with the properties and credentials of the application. Among the files that
    Spark is given, ``spark-submit`` would look for it as well: where the Spark operator runs, which
    production does not need to reach the program.
    """
    return unquote(urlsplit(downloaded(uri, Path(tempfile.mkdtemp(prefix="program-")))).path)
