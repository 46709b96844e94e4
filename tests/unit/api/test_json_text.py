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
    MOST_VALUES,
    is_within,
    read_json_text,
    read_within_bounds,
    within_bounds,
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
    page = read_within_bounds(text)
    assert page["items"][1] == others
    assert page["more"] == "]" * 9
    assert is_within(page, levels=MOST_LEVELS, values=10**6) is False
    assert json.loads(within_bounds(text)) == page
    deepest = page["items"][0]
    while isinstance(deepest, dict | list):
        (deepest,) = deepest.values() if isinstance(deepest, dict) else deepest
    assert deepest == CUT


MANY = {
    "lists": b"[" + b"[]," * 400_000 + b"0]",
    "objects": b"[" + b"{}," * 400_000 + b"0]",
    "numbers": b"[" + b"999," * 300_000 + b"0]",
    "names": b"{" + b",".join(b'"%x":1' % number for number in range(150_000)) + b"}",
    "many lists": b"[" + b",".join([b"[" + b"[]," * 20_000 + b"0]"] * 20) + b"]",
}


@pytest.mark.parametrize("many", MANY)
def test_what_one_object_fills_with_values_does_not_take_the_memory_for_the_others(
    many: str,
) -> None:
    """Two of them, of one and a half megabytes at most each: as a page, and as a watch."""
    assert len(MANY[many]) < 1_500_000
    item = b'{"metadata":{"name":"a"},"spec":{"overrides":{"driver":{"template":%b}}}}' % MANY[many]
    page = read_within_bounds(b'{"items":[%b,%b]}' % (item, item))
    line = json.loads(within_bounds(b'{"type":"ADDED","object":%b}' % item))
    for each in (*page["items"], line["object"]):
        assert each["metadata"] == {"name": "a"}
        assert CUT in json.dumps(each)
        assert len(json.dumps(each)) < 10 * MOST_VALUES


def test_an_object_with_as_many_values_as_are_read_is_read_whole() -> None:
    whole = {"items": [{"spec": {"a": {"b": list(range(MOST_VALUES - 10))}}}] * 3}
    assert read_within_bounds(json.dumps(whole).encode()) == whole


@pytest.mark.timeout(20)
@pytest.mark.parametrize("end", [b"", b"\\"])
def test_a_text_that_is_cut_off_in_a_string_of_quotes_takes_no_time(end: bytes) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_within_bounds(b'{"a":[[],"' + b'\\"' * 700_000 + end)


def test_as_many_levels_as_are_read_are_read_whole() -> None:
    text = nested(MOST_LEVELS)
    assert read_json_text(text) == read_within_bounds(text) == json.loads(text)
    assert within_bounds(text) == text


@pytest.mark.parametrize("text", [b"", b"[", b"]" * 300, b"[" * 300, b'"a', b'{"a":}'])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    for read in (read_json_text, read_within_bounds):
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
        "from backfill.api.json_text import read_within_bounds\n"
        f"sys.setrecursionlimit({limit})\n"
        "def read():\n"
        "    for levels in (500, 5_000, 100_000, 1_000_000):\n"
        "        read_within_bounds(b'[' * levels + b']' * levels)\n"
        "    print('alive')\n"
        "threading.stack_size(128 * 1024)\n"
        "thread = threading.Thread(target=read); thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr
