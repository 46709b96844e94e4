"""A job process that has fallen into somebody else's hands: what it can say to the operator, and
what it can reach.
"""

import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backfill.api.catalog_properties import GivenCatalog
from backfill.controller.jobs import process as job_process
from backfill.controller.jobs.framing import Frames
from backfill.controller.jobs.isolation import landlock_version
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.pool import JobPool, JobUsage
from backfill.controller.jobs.process import (
    ChildProcess,
    ConfinedChild,
    Confinement,
    JobProcess,
    ProcessDied,
)
from backfill.controller.jobs.process_main import RESERVED_BYTES
from situations import HEADER
from table_jobs import ended
from waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.hostile

JOB = VerifyJob(HEADER, 1)
MEMORY, LEAP = 300 * 2**20, 1200 * 2**20
SAYS = {
    "a pickle": "struct.pack('!I', len(PICKLE)) + PICKLE",
    "a pickle as multiprocessing frames it": "struct.pack('!i', len(PICKLE)) + PICKLE",
    "no JSON": "struct.pack('!I', 3) + b'{]}'",
    "deep JSON": "struct.pack('!I', 200000) + b'[' * 200000",
    "empty lists": "struct.pack('!I', 6000003) + b'[' + b'[],' * 2000000 + b'0]'",
    "many numbers": "struct.pack('!I', 15000009) + b'{\"result\":[' + b'1000,' * 2999999 + b'1]}'",
    "no object": "struct.pack('!I', 2) + b'[]'",
    "another kind": "frame({'kind': 'Promoted', 'result': None, 'cause': ''})",
    "another result": "frame({'kind': 'Done', 'result': {'header': {}}, 'cause': ''})",
    "an error of no kind": (
        "frame({'kind': 'Failed', 'error': 'dataclass', 'problems': [], 'cause': 'x'})"
    ),
    "more than fits": "struct.pack('!I', 2**31)",
}


class Payload:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self._mark),)


@pytest.fixture
def lying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Has job processes say something; gives the mark that a payload would leave."""

    def say(expression: str) -> Path:
        mark = tmp_path / "mark"
        program = f"""
            import json, socket, struct, sys, time
            PICKLE = {pickle.dumps(Payload(mark))!r}
            def frame(message):
                content = json.dumps(message).encode()
                return struct.pack('!I', len(content)) + content
            connection = socket.socket(fileno=int(sys.argv[1]))
            connection.recv(1)
            connection.sendall({expression})
            time.sleep(60)
        """
        (tmp_path / "lying_job.py").write_text(textwrap.dedent(program))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(job_process, "_MODULE", "lying_job")
        return mark

    yield say


@pytest.mark.parametrize("said", SAYS)
def test_what_is_no_message_of_a_job_is_its_end_and_no_more(
    said: str, lying: Callable[[str], Path], tmp_path: Path
) -> None:
    mark = lying(SAYS[said])
    process = JobProcess(partial(ChildProcess, log=tmp_path / "log"))
    try:
        process.send(JOB)
        if said == "an error of no kind":
            message = process.receive(30)
            assert message is not None
            assert str(message.error) == "x"
        else:
            with pytest.raises(ProcessDied):
                process.receive(30)
            assert not process.alive
    finally:
        process.close()
    assert not mark.exists()


def test_half_a_message_holds_a_place_no_longer_than_a_job_may_take(
    lying: Callable[[str], Path],
) -> None:
    lying("struct.pack('!I', 1000) + b'{'")
    pool = JobPool(lambda _key: {}, longest_seconds=1.0)
    try:
        runner = pool.runner(("default", "january"), lambda: None)
        runner.start(JOB)
        assert "has not finished in 1 s" in str(ended(runner, JOB).error)
    finally:
        pool.close()


def test_a_message_may_come_in_pieces_and_two_at_once() -> None:
    ours, theirs = socket.socketpair()
    frames = Frames(ours)
    sent = [json.dumps({"number": number}).encode() for number in range(3)]
    content = b"".join(struct.pack("!I", len(each)) + each for each in sent)
    theirs.sendall(content[:9])
    assert frames.receive(0.05) is None
    theirs.sendall(content[9:])
    assert [frames.receive(5) for _ in sent] == [{"number": number} for number in range(3)]
    theirs.close()
    with pytest.raises(EOFError):
        frames.receive(5)
    frames.close()


def test_the_environment_of_a_job_holds_nothing_of_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("BACKFILL_OPERATOR_NAMESPACES", "all")
    monkeypatch.setenv("SOME_PASSWORD", "hunter2")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    catalogs = {"lake": GivenCatalog({"credential": "in no environment"})}
    process = JobProcess(partial(ConfinedChild, own_identity=False), Confinement(catalogs, ()))
    try:
        process.send(JOB)
        # this test may be root, from whom nothing is kept
        environment = Path(f"/proc/{process._process.pid}/environ")
        names = (
            {each.partition("=")[0] for each in environment.read_text().split("\0")}
            if os.getuid() == 0
            else set()
        )
        assert not names & {
            "KUBERNETES_SERVICE_HOST",
            "BACKFILL_OPERATOR_NAMESPACES",
            "SOME_PASSWORD",
        }
        assert "in no environment" not in str(
            job_process._environment(os.environ, tmp_path, own_identity=True)
        )
        message = process.receive(60)
        assert message is not None
        assert message.kind == "Done"
    finally:
        process.close()


_HOSTILE = """
import json, os, signal, subprocess, sys
from pathlib import Path
from backfill.controller.jobs.isolation import confine_to_files, keep_memory_private
home, token = Path(sys.argv[1]), Path(sys.argv[2])
keep_memory_private()
assert confine_to_files([home])
def outcome(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
parent = os.getppid()
def core():
    import resource
    if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
        return
    raise OSError
def dumpable():
    import ctypes
    if ctypes.CDLL(None).prctl(3, 0, 0, 0, 0):
        return
    raise OSError
print(json.dumps({
    "its own file": outcome(lambda: (home / "file").write_text("x")),
    "its libraries": outcome(lambda: Path(os.__file__).read_text()),
    "the token": outcome(token.read_text),
    "a link to the token": outcome(lambda: ((home / "link").symlink_to(token), (home / "link").read_text())),
    "a mounted Secret": outcome(lambda: os.listdir("/etc/backfill") if Path("/etc/backfill").exists() else os.listdir("/etc")),
    "the operator's environment": outcome(Path(f"/proc/{parent}/environ").read_text),
    "the operator's memory": outcome(lambda: open(f"/proc/{parent}/mem", "rb")),
    "its own environment, to another place": outcome(lambda: Path("/tmp/of-a-job").write_text("x")),
    "a shell": outcome(lambda: subprocess.run(["/bin/sh", "-c", "true"])),
    "a signal": outcome(lambda: os.kill(parent, signal.SIGUSR1)),
    "a core dump": outcome(core),
    "being looked at": outcome(dumpable),
}))
"""


def test_code_in_a_job_reaches_no_token_no_other_process_and_no_program(tmp_path: Path) -> None:
    """With Landlock, also as root."""
    version = landlock_version()
    if not version:
        pytest.skip("this kernel has no Landlock")
    home, token = tmp_path / "home", tmp_path / "token"
    home.mkdir()
    token.write_text("the operator's token")
    command = [sys.executable, "-c", _HOSTILE, str(home), str(token)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    allowed = {"its own file", "its libraries"} | ({"a signal"} if version < 6 else set())
    assert {name for name, outcome in outcomes.items() if outcome == "done"} == allowed


def test_a_job_that_prints_without_end_does_not_fill_the_operators_memory_or_log(
    lying: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    lying("(sys.stdout.write('x' * 5_000_000 + chr(10)), sys.exit(3))")
    pool = JobPool(lambda _key: {})
    try:
        runner = pool.runner(("default", "january"), lambda: None)
        runner.start(JOB)
        assert "exit status 3" in str(ended(runner, JOB).error)
        record = eventually(
            lambda: next(
                (each for each in caplog.records if "job failed" in each.getMessage()), None
            ),
            "the log",
        )
        assert len(record.getMessage()) < 100_000
    finally:
        pool.close()


LEAPS = {
    "bytes": "b'x' * LEAP",
    "a list": "[0] * (LEAP // 8)",
    "what little data unpacks to": "zlib.decompress(zlib.compress(bytes(LEAP), 9))",
    "PyArrow's": "pyarrow.array(numpy.ones(LEAP // 8)).cast(pyarrow.string())",
    "of several threads": "list(ThreadPoolExecutor(8).map(lambda _: b'x' * (LEAP // 4), range(8)))",
}


@pytest.mark.parametrize("leap", LEAPS)
def test_a_job_that_leaps_in_memory_is_stopped_before_it_has_the_memory_of_others(
    leap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel: nobody can look often enough."""
    program = f"""
        import zlib
        from concurrent.futures import ThreadPoolExecutor
        import numpy, pyarrow
        from backfill.controller.jobs import process_main
        LEAP, do = {LEAP}, process_main.do
        class Leap:
            def run(self, on_progress):
                return {LEAPS[leap]}
        process_main.do = lambda job, on_progress: do(Leap(), on_progress)
        process_main.main()
    """
    (tmp_path / "leaping_job.py").write_text(textwrap.dedent(program))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(job_process, "_MODULE", "leaping_job")
    monkeypatch.setattr("backfill.controller.jobs.pool._LOOK_SECONDS", 5.0)
    usages: list[JobUsage] = []
    pool = JobPool(lambda _key: {}, memory_bytes=MEMORY, on_used=usages.append)
    try:
        runner = pool.runner(("default", "january"), lambda: None)
        runner.start(JOB)
        said = str(ended(runner, JOB).error)
    finally:
        pool.close()
    assert "needs more than 300 MiB of memory" in said
    (usage,) = usages
    assert usage.peak_bytes is not None
    assert usage.peak_bytes < MEMORY + RESERVED_BYTES
