"""A main program that is not in the image is fetched as Spark fetches files."""

import http.server
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from backfill.runtime.main_program import run_program


@pytest.mark.usefixtures("spark")
def test_a_program_on_a_server_runs_alone_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    told = tmp_path / "told"
    (tmp_path / "main.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "here = Path(__file__)\n"
        "assert (sys.argv[0], sys.path[0]) == (str(here), str(here.parent))\n"
        "assert [each.name for each in here.parent.iterdir()] == [here.name]\n"
        "Path(sys.argv[1]).write_text(__name__)\n"
    )
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run_program(f"http://127.0.0.1:{server.server_port}/main.py", [str(told)])
        server.shutdown()
    assert told.read_text() == "__main__"
