"""A tenant who edits the ConfigMaps and the report that the operator reads: its memory and other Backfills do not notice."""

import base64
import gzip
import json
import subprocess
import sys
import time
from typing import Any, cast

import pytest

from backfill.api.errors import BackfillError
from backfill.api.manifests.problems import read_json
from backfill.controller.cluster.channel import KubernetesChannel
from backfill.controller.cluster.job_pods.manifests import report_essence, result_of
from backfill.controller.jobs.case_codec import decode_end
from backfill.controller.jobs.codec import decode_progress
from backfill.controller.jobs.kinds import VerifyJob
from backfill.controller.manager.wiring import Caches
from backfill.kube.cache import Cache, labelled_key, own_key
from backfill.kube.client import Cluster
from backfill.kube.names import owner_reference
from backfill.kube.packed import MOST_TEXT, packed, unpacked
from backfill.protocol.split_assignment import SplitAssignmentStatus

pytestmark = pytest.mark.hostile
VERIFY = VerifyJob(cast("Any", None), 1)
BOMBS = {
    "zeros": b"0" * (200 * 2**20),
    "empty lists": b"[" + b"[]," * 5_000_000 + b"0]",
    "numbers": b"[" + b"0," * 7_000_000 + b"0]",
    "deep": b"[" * 15_000 + b"]" * 15_000,
    "deeper": b'{"kind":' * 15_000,
}
_READS = """
import base64, resource, sys
from backfill.kube.packed import unpacked
from backfill.controller.jobs.case_codec import decode_end
from backfill.controller.jobs.kinds import VerifyJob
from backfill.api.errors import BackfillError
content = base64.b64decode(sys.stdin.buffer.read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_end(VerifyJob(None, 1), content)
except BackfillError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_result_that_unpacks_to_gigabytes_is_refused_in_little_memory(bomb: str) -> None:
    content = gzip.compress(BOMBS[bomb])
    assert len(content) < 2**20, "it fits into a ConfigMap"
    read = subprocess.run(
        [sys.executable, "-c", _READS], input=base64.b64encode(content), capture_output=True, check=True, timeout=60
    )
    assert int(read.stdout) < 100 * 1024, "kilobytes"


@pytest.mark.parametrize("end", ["Progress", "Running", "", None, 3])
def test_an_end_that_is_none_is_refused(end: object) -> None:
    with pytest.raises(BackfillError, match="cannot be read"):
        decode_end(VERIFY, packed({"kind": end, "result": None, "cause": "", "problems": [], "error": None}))


def test_what_follows_or_misses_in_a_stream_is_refused() -> None:
    content = packed({"a": 1})
    assert json.loads(unpacked(content)) == {"a": 1}
    for broken in (content[:-9], content + content, content + b"x", b""):
        with pytest.raises(ValueError, match="cut off"):
            unpacked(broken)
    with pytest.raises(ValueError, match="more than"):
        unpacked(gzip.compress(b" " * (MOST_TEXT + 1)))


def test_progress_of_megabytes_is_no_progress_and_is_not_kept() -> None:
    began = time.monotonic()
    assert decode_progress("[" * 10**6) is None
    assert time.monotonic() - began < 0.1
    reports = Cache(labelled_key, report_essence)
    reports.put(_object("job", status={"progress": "[" * 10**6, "more": "x" * 10**5, "result": "y" * 10**6}))
    kept = reports.get("team-a", "job")
    assert result_of(kept)
    assert len(json.dumps(kept)) < 3000


def test_of_labelled_objects_only_what_is_used_is_kept() -> None:
    caches = Caches()
    padding = "x" * 200_000
    for cache in (caches.pods, caches.assignments, *caches.children.values()):
        made = _object("made", spec={"containers": [{"name": "spark", "env": [{"name": "A", "value": padding}]}]})
        if cache is caches.assignments:
            made["spec"] = {"attempt": 1}
        made["metadata"]["annotations"] = {"a": padding}
        made["metadata"]["labels"]["theirs"] = padding
        made["metadata"]["ownerReferences"] += [{"uid": str(n), "name": padding[:100]} for n in range(1000)]
        cache.put(made)
        assert len(json.dumps(cache.get("team-a", "made"))) < 1500


_REPORT: dict[str, Any] = {"attempt": 1, "phase": "Running", "heartbeat": "2024-01-01T00:00:00Z"}
_QUERY: dict[str, Any] = {"name": "q", "sources": [{"name": "s", "committed": 1, "rows": 1}]}


@pytest.mark.parametrize(
    "absurd",
    [
        {"queries": [_QUERY | {"sources": [{"name": "s", "committed": -1}]}]},
        {"queries": [_QUERY | {"sources": [{"name": "s", "rows": 2**63 - 1}]}]},
        {"queries": [_QUERY | {"lateRows": -1}]},
        {"queries": [_QUERY | {"neededDrainSeconds": 1e308}]},
        {"queries": [_QUERY] * 65},
        {"executors": 2**62},
        {"processingSeconds": 1e308},
        {"processingSeconds": -1.0},
        {"maxObservedMisalignmentSeconds": 1e308},
        {"heartbeat": "99999-01-01T00:00:00Z"},
        {"attempt": "one"},
    ],
    ids=str,
)
def test_an_absurd_report_counts_as_none(absurd: dict[str, Any]) -> None:
    read_json(SplitAssignmentStatus, _REPORT | {"queries": [_QUERY]})
    assignments = Cache(own_key)
    assignments.put(_object("july", status=_REPORT | absurd))
    channel = KubernetesChannel(cast("Cluster", None), assignments, ("team-a", "july"), "u")
    assert channel.report() is None


def _object(name: str, **parts: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "namespace": "team-a",
        "name": name,
        "uid": name,
        "resourceVersion": "1",
        "labels": {"backfill.dev/backfill": "july"},
        "ownerReferences": [owner_reference("july", "u")],
    }
    return {"metadata": metadata, **parts}
