"""A tenant who edits the ConfigMaps and the report that the operator reads: its memory and other
Backfills do not notice.
"""

import base64
import gzip
import json
import subprocess
import sys
import time
import tracemalloc
from typing import Any, cast

import pytest
from kubernetes.client import Configuration

from backfill.api.errors import BackfillError, BadInput
from backfill.api.manifests.problems import read_json
from backfill.controller.cluster.channel import KubernetesChannel
from backfill.controller.cluster.job_pods.packed_jobs import decode_end, decode_progress
from backfill.controller.cluster.job_pods.pod_manifests import report_essence, result_of
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.manager.wiring import Caches, pod_essence
from backfill.kube.cache import Cache, labelled_key, own_key
from backfill.kube.client import Cluster
from backfill.kube.object_names import owner_reference
from backfill.kube.packed_json import MOST_TEXT, packed, unpacked
from backfill.kube.resources import POD
from backfill.kube.transport import Call
from backfill.protocol.split_assignment import SplitAssignmentStatus
from situations import HEADER
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.hostile
VERIFY = VerifyJob(cast("Any", None), 1)
BOMBS = {
    "zeros": b"0" * (200 * 2**20),
    "empty lists": b"[" + b"[]," * 5_000_000 + b"0]",
    "numbers": b"[" + b"0," * 7_000_000 + b"0]",
    "deep": b"[" * 15_000 + b"]" * 15_000,
    "deeper": b'{"kind":' * 15_000,
    "500 levels": b'{"kind":' * 500 + b"1" + b"}" * 500,
    "5,000 levels": b'{"kind":' * 5_000 + b"1" + b"}" * 5_000,
    "100,000 levels": b'{"kind":' * 100_000 + b"1" + b"}" * 100_000,
}
WRONG = {
    "outputs": b'{"outputs":[%b]}',
    "warnings": b'{"outputs":[],"warnings":[%b]}',
    "steps": b'{"header":{"stepStartsUs":[%b]}}',
    "sources": b'{"header":{"sources":[%b]}}',
    "rows of steps": b'{"header":{"sources":[{"name":"s","stepRows":[%b]}]}}',
    "inputs": b'{"header":{"inputs":{"sources":[%b]}}}',
    "regions": b'{"header":{"inputs":{"sources":[{"regions":[%b]}]}}}',
}
"""Where a plan has lists, each with what does not belong there."""
_READS = """
import base64, resource, sys
from backfill.kube.packed_json import unpacked
from backfill.controller.cluster.job_pods.packed_jobs import decode_end
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.api.errors import BackfillError
content = base64.b64decode(sys.stdin.buffer.read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_end(PlanJob.__new__(PlanJob) if sys.argv[1:] else VerifyJob(None, 1), content)
except BackfillError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

_KEEPS = """
import base64, gc, sys
import backfill.controller.jobs.kinds.publish, backfill.controller.jobs.kinds.verify
from backfill.controller.cluster.job_pods.packed_jobs import decode_end
from backfill.controller.jobs.kinds.make_plan import PlanJob
content, job = base64.b64decode(sys.stdin.buffer.read()), PlanJob.__new__(PlanJob)
decode_end(job, content)  # what is loaded and allocated once
def kilobytes():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4
before = kilobytes()
kept = [decode_end(job, content) for _ in range(8)]
print((kilobytes() - before) // len(kept))
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_result_that_unpacks_to_gigabytes_is_refused_in_little_memory(bomb: str) -> None:
    content = gzip.compress(BOMBS[bomb])
    assert len(content) < 2**20, "it fits into a ConfigMap"
    assert _kilobytes_to_read(content) < 100 * 1024


@pytest.mark.parametrize("where", WRONG)
def test_a_result_with_a_million_mistakes_is_refused_in_little_memory(where: str) -> None:
    """What pydantic notes of each takes a kilobyte, and all of them take a few in a report."""
    wrong = b",".join([b'"a"' if "steps" in where else b"0"] * 1_990_000)
    content = gzip.compress(b'{"kind":"Done","cause":"","result":' + WRONG[where] % wrong + b"}")
    assert len(content) < 20_000
    assert _kilobytes_to_read(content, "plan") < 60 * 1024


def test_a_report_of_a_few_kilobytes_leaves_a_few_megabytes_in_the_operator() -> None:
    """It holds the plans of all Backfills as long as these are there: several that take a hundred
    megabytes each would end it, and end it again after each restart.
    """
    numbers = b",".join([b"1000"] * 499_000)
    content = gzip.compress(packed_plan().replace(b'"@"', b"[%b]" % numbers))
    assert len(content) < 20_000
    read = subprocess.run(
        [sys.executable, "-c", _KEEPS],
        input=base64.b64encode(content),
        capture_output=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert int(read.stdout) < 10 * 1024


def test_text_that_a_report_repeats_is_not_kept() -> None:
    warnings = json.dumps(["\U0001f600" + "x" * 8000] * 1000).encode()
    content = packed_plan().replace(b'"@"', b"[]")[:-2] + b',"warnings":%b}}' % warnings
    with pytest.raises(BackfillError, match="characters of text"):
        decode_end(VERIFY, gzip.compress(content))


def packed_plan() -> bytes:
    header = json.loads(HEADER.to_json()) | {"stepEndsUs": "@"}
    result = {"header": header, "outputs": []}
    return json.dumps({"kind": "Done", "cause": "", "result": result}).encode()


def test_a_result_of_a_million_names_is_refused_in_little_memory() -> None:
    names = b",".join(b'"%x":0' % number for number in range(400_000))
    content = gzip.compress(b'{"kind":"Done","cause":"","result":{"header":{' + names + b"}}}")
    assert len(content) < 900 * 1024, "it fits into a report"
    assert _kilobytes_to_read(content, "plan") < 100 * 1024


@pytest.mark.parametrize(
    "used", [{"seconds": 1e300, "peak_bytes": 1}, {"seconds": 1, "peak_bytes": 10**400}]
)
def test_what_a_pod_says_that_it_took_cannot_spoil_the_metrics_of_all(
    used: dict[str, float],
) -> None:
    with pytest.raises(BackfillError, match="incompatible job format"):
        decode_end(VERIFY, packed({"kind": "Done", "result": None, "cause": "", "used": used}))


def test_a_message_of_megabytes_is_cut() -> None:
    said = {"kind": "Failed", "error": "InvalidPlanInput", "cause": "x" * 10**5, "result": None}
    problem = {"field": "f" * 9_000, "message": "m\x1bc" * 1500, "fix": "", "may_pass": True}
    end = decode_end(VERIFY, packed(said | {"problems": [problem] * 100}))
    assert len(str(end.error)) < 2 * 10**6
    assert "\x1b" not in str(end.error)
    assert isinstance(end.error, BadInput)
    assert end.error.may_pass
    assert (
        str(decode_end(VERIFY, packed(said | {"error": "BackfillError"})).error) == f"{'x' * 8191}…"
    )


@pytest.mark.parametrize("end", ["Progress", "Running", "", None, 3])
def test_an_end_that_is_none_is_refused(end: object) -> None:
    with pytest.raises(BackfillError, match="incompatible job format"):
        decode_end(
            VERIFY,
            packed({"kind": end, "result": None, "cause": "", "problems": [], "error": None}),
        )


def test_what_follows_or_misses_in_a_stream_is_refused() -> None:
    content = packed({"a": 1})
    assert json.loads(unpacked(content)) == {"a": 1}
    for broken in (content[:-9], content + content, content + b"x", b""):
        with pytest.raises(ValueError, match="truncated"):
            unpacked(broken)
    with pytest.raises(ValueError, match="more than"):
        unpacked(gzip.compress(b" " * (MOST_TEXT + 1)))


def test_progress_of_megabytes_is_no_progress_and_is_not_kept() -> None:
    began = time.thread_time()
    assert decode_progress("[" * 10**6) is None
    assert time.thread_time() - began < 0.1
    reports = Cache(labelled_key, report_essence)
    reports.put(
        _object("job", status={"progress": "[" * 10**6, "more": "x" * 10**5, "result": "y" * 10**6})
    )
    kept = reports.get("team-a", "job")
    assert result_of(kept)
    assert len(json.dumps(kept)) < 3000


def test_of_labelled_objects_only_what_is_used_is_kept() -> None:
    caches = Caches()
    padding = "x" * 200_000
    for cache in (caches.pods, caches.assignments, *caches.children.values()):
        made = _object(
            "made",
            spec={"containers": [{"name": "spark", "env": [{"name": "A", "value": padding}]}]},
        )
        if cache is caches.assignments:
            made["spec"] = {"attempt": 1}
        made["metadata"]["annotations"] = {"a": padding}
        made["metadata"]["labels"]["theirs"] = padding
        made["metadata"]["ownerReferences"] += [
            {"uid": str(n), "name": padding[:100]} for n in range(1000)
        ]
        cache.put(made)
        assert len(json.dumps(cache.get("team-a", "made"))) < 1500


def test_a_list_of_large_objects_takes_the_memory_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may make objects with our labels makes as many and as large ones as the API server
    takes.
    """
    cluster, padding, most = Cluster(Configuration()), "x" * 200_000, 600

    def page(call: Call) -> bytes:
        query = dict(call.query)
        first = int(query.get("continue", "0"))
        numbers = range(first, min(first + int(query["limit"]), most))
        items = [
            _object(f"pod-{number}", spec={"containers": [], "hostname": padding})
            for number in numbers
        ]
        after = str(numbers.stop) if numbers.stop < most else ""
        metadata = {"continue": after, "resourceVersion": "1"}
        return json.dumps({"kind": "PodList", "items": items, "metadata": metadata}).encode()

    monkeypatch.setattr(cluster._transport, "send", page)
    tracemalloc.start()
    try:
        listing = cluster.list(POD, essence=pod_essence)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(listing.items) == most
    assert peak < 60 * 2**20


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


def _kilobytes_to_read(content: bytes, *job: str) -> int:
    read = subprocess.run(
        [sys.executable, "-c", _READS, *job],
        input=base64.b64encode(content),
        capture_output=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    return int(read.stdout)


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
