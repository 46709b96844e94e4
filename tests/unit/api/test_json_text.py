"""Depth has one limit, whatever the interpreter takes."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from backfill.api.errors import InvalidManifest
from backfill.api.json_text import (
    CUT,
    MOST_LEVELS,
    levels_of,
    read_all_but_depths,
    read_json_text,
    readable_everywhere,
)
from backfill.api.manifests.documents import read_documents

pytestmark = pytest.mark.hostile
DEPTHS = [500, 5_000, 100_000]


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


@pytest.fixture(params=[300, 50_000], ids=["a low limit", "a high limit"])
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(request.param)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("levels", DEPTHS)
def test_what_is_nested_too_deeply_is_refused(levels: int) -> None:
    for text in (nested(levels), b"[" * levels, b'{"a":' * levels):
        with pytest.raises(ValueError, match="recursion limit exceeded"):
            read_json_text(text)


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("levels", DEPTHS)
def test_what_one_object_nests_too_deeply_does_not_hide_the_others(levels: int) -> None:
    others = {"name": 'b"]}[\\', "values": [1, {"a": []}]}
    text = b'{"items":[%b,%b],"more":"%b"}' % (
        nested(levels),
        json.dumps(others).encode(),
        b"]" * 9,
    )
    page = read_all_but_depths(text)
    assert page["items"][1] == others
    assert page["more"] == "]" * 9
    assert levels_of(page) == MOST_LEVELS
    assert json.loads(readable_everywhere(text)) == page
    deepest = page["items"][0]
    while isinstance(deepest, dict | list):
        (deepest,) = deepest.values() if isinstance(deepest, dict) else deepest
    assert deepest == CUT


def test_as_many_levels_as_are_read_are_read_whole() -> None:
    text = nested(MOST_LEVELS)
    assert read_json_text(text) == read_all_but_depths(text) == json.loads(text)
    assert readable_everywhere(text) == text


@pytest.mark.parametrize("text", [b"", b"[", b"]" * 300, b"[" * 300, b'"a', b'{"a":}'])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    for read in (read_json_text, read_all_but_depths):
        with pytest.raises(ValueError, match="line 1"):
            read(text)


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_manifest_that_is_nested_too_deeply_is_refused(levels: int) -> None:
    """Also in the text of a file, as JSON and as YAML."""
    for text in (nested(levels).decode(), f"spec: {'[' * levels}"):
        with pytest.raises(InvalidManifest, match="nested too deeply"):
            read_documents(text, "backfill.yaml")


@pytest.mark.parametrize("limit", [300, 1000, 50_000])
def test_no_depth_ends_the_process(limit: int) -> None:
    """Not even in a thread, whose stack is small."""
    program = (
        "import sys, threading\n"
        "from backfill.api.json_text import read_all_but_depths\n"
        f"sys.setrecursionlimit({limit})\n"
        "def read():\n"
        "    for levels in (500, 5_000, 100_000, 1_000_000):\n"
        "        read_all_but_depths(b'[' * levels + b']' * levels)\n"
        "    print('alive')\n"
        "threading.stack_size(128 * 1024)\n"
        "thread = threading.Thread(target=read); thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr
