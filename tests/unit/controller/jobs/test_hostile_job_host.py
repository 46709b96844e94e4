"""A job in the operator's container for jobs has fallen into somebody else's hands, or somebody
pretends to be the container.
"""

import json
import os
import socket
import stat
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backfill.api.catalog_properties import GivenCatalog
from backfill.controller.jobs.isolation import landlock_version
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.pool import JobPool
from backfill.controller.jobs.process import Confinement, JobProcess, ProcessDied
from job_hosts import HostedPlace
from situations import HEADER
from table_jobs import ended
from waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.hostile

JOB = VerifyJob(HEADER, 1)
MIB = 2**20
_HOST = """
    import sys
    from backfill.controller.jobs import jobs_container_main, process
    process._MODULE = "hostile_job"
    sys.exit(jobs_container_main.main(sys.argv[1:]))
"""
_JOB = """
    import json, os, signal, socket, struct, subprocess, sys, time
    from pathlib import Path
    from backfill.controller.jobs.framing import Frames
    from backfill.controller.jobs.isolation import confine_to_files, keep_memory_private
    connection = socket.socket(fileno=int(sys.argv[1]))
    frames = Frames(connection)
    order = frames.receive()
    def say(value):
        cause = json.dumps(value)
        frames.send({"kind": "Failed", "error": "BackfillError", "problems": [], "cause": cause, "progress": None, "used": None})
    def outcome(action):
        try:
            action()
        except OSError as error:
            return type(error).__name__
        return "done"
"""


@pytest.fixture
def hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], HostedPlace]]:
    """Gives a container whose jobs do something else."""
    made: list[HostedPlace] = []

    def make(program: str) -> HostedPlace:
        (tmp_path / "hostile_host.py").write_text(textwrap.dedent(_HOST))
        (tmp_path / "hostile_job.py").write_text(textwrap.dedent(_JOB) + textwrap.dedent(program))
        monkeypatch.syspath_prepend(str(tmp_path))
        made.append(HostedPlace(program="hostile_host"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def begun(place: HostedPlace, **catalogs: GivenCatalog) -> JobProcess:
    assert place.ready(30)
    process = JobProcess(partial(place.start, own_identity=False), Confinement(catalogs, ()))
    process.send(JOB)
    return process


def said(process: JobProcess) -> Any:
    message = process.receive(30)
    assert message is not None
    return json.loads(str(message.error))


FORGED = {
    "no JSON": "struct.pack('!I', 3) + b'{]}'",
    "more than fits": "struct.pack('!I', 2**31)",
    "how another process has ended": """struct.pack('!I', 29) + b'{"ended":"well","printed":""}'""",
    "another result": """struct.pack('!I', 32) + b'{"kind":"Done","result":{},"x":1}'""",
}


def test_forged_and_oversized_messages_end_the_job_and_no_other(
    hostile: Callable[[str], HostedPlace],
) -> None:
    bodies = "\n".join(
        f"    if number == {number}: connection.sendall({each})"
        for number, each in enumerate(FORGED.values())
    )
    place = hostile(
        "number = int(next(iter(order['confinement']['catalogs'])))\nif"
        f" True:\n{bodies}\ntime.sleep(60)"
    )
    for number in range(len(FORGED)):
        process = begun(place, **{str(number): GivenCatalog({})})
        with pytest.raises(ProcessDied):
            process.receive(30)
        process.close()
    assert place.ready(0), "the container goes on"


def test_what_a_job_leaves_running_is_ended_with_it(hostile: Callable[[str], HostedPlace]) -> None:
    place = hostile("""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                say(os.getpid())
                while True:
                    time.sleep(60)
            os._exit(0)
        time.sleep(60)
    """)
    process = begun(place)
    left = said(process)
    assert Path(f"/proc/{left}").exists()
    process.close()
    eventually(lambda: not Path(f"/proc/{left}").exists(), "its end")
    again = begun(place)
    assert said(again) != left
    again.close()


def test_a_job_whose_socket_somebody_else_holds_is_over_when_its_process_is(
    hostile: Callable[[str], HostedPlace],
) -> None:
    place = hostile("""
        if os.fork() == 0:
            time.sleep(60)
        os._exit(7)
    """)
    process = begun(place)
    with pytest.raises(ProcessDied, match="exit status 7"):
        eventually(lambda: process.receive(1), "a message")
    process.close()


def test_a_job_that_fills_its_memory_is_ended_and_the_container_goes_on(
    hostile: Callable[[str], HostedPlace],
) -> None:
    place = hostile(f"""
        taken = []
        while sum(map(len, taken)) < {600 * MIB}:
            taken.append(b"x" * {8 * MIB})
            time.sleep(0.02)
        time.sleep(60)
    """)
    pool = JobPool(lambda _key: {}, place=place, memory_bytes=150 * MIB)
    runner = pool.runner(("default", "january"), lambda: None)
    runner.start(JOB)
    assert "needs more than 150 MiB of memory" in str(ended(runner, JOB).error)
    assert place.ready(0)
    pool.close()


def test_a_job_that_prints_without_end_is_told_of_in_its_last_lines_only(
    hostile: Callable[[str], HostedPlace],
) -> None:
    process = begun(place := hostile("print('\\x01' * 5_000_000, flush=True); sys.exit(3)"))
    with pytest.raises(ProcessDied, match="exit status 3"):
        process.receive(30)
    process.close()
    assert 30_000 < len(process.printed) <= 32 * 1024
    assert place.ready(0)


def test_code_in_a_job_reaches_neither_the_container_nor_the_operator(
    hostile: Callable[[str], HostedPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Landlock, also as root, and though the token is not even in that container."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setenv("TOKEN", "an option of the operator's")
    place = hostile(f"""
        keep_memory_private()
        assert confine_to_files([Path.cwd()])
        host = os.getppid()
        sockets = Path(next(iter(order["confinement"]["catalogs"])))
        def connect(path):
            with socket.socket(socket.AF_UNIX) as attempt:
                attempt.connect(str(path))
        def bind():
            with socket.socket(socket.AF_UNIX) as own:
                own.bind(str(sockets / "socket"))
        say({{
            "its own file": outcome(lambda: Path("file").write_text("x")),
            "the token": outcome((sockets / "token").read_text),
            "the operator's socket": outcome(lambda: connect(sockets / "socket")),
            "a socket of its own in its place": outcome(bind),
            "the container's environment": outcome(Path(f"/proc/{{host}}/environ").read_text),
            "the container's memory": outcome(lambda: open(f"/proc/{{host}}/mem", "rb")),
            "the container's connection": outcome(lambda: os.listdir(f"/proc/{{host}}/fd")),
            "a signal": outcome(lambda: os.kill(host, signal.SIGUSR1)) if {landlock_version()} >= 6 else "PermissionError",
            "options of the operator": "TOKEN" in os.environ,
        }})
        time.sleep(60)
    """)
    (place.directory / "token").write_text("the operator's token")
    process = begun(place, **{str(place.directory): GivenCatalog({})})
    outcomes = said(process)
    process.close()
    assert {name for name, outcome in outcomes.items() if outcome in ("done", True)} == {
        "its own file"
    }


def test_what_a_job_does_to_end_the_container_ends_nothing_but_itself(
    hostile: Callable[[str], HostedPlace],
) -> None:
    """Without Landlock, whose later versions keep it from sending signals at all. SIGKILL and
    SIGSTOP do not reach the first process of a container from within.
    """
    place = hostile("""
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getppid(), number)
        say("sent")
        time.sleep(60)
    """)
    process = begun(place)
    assert said(process) == "sent"
    process.close()
    again = begun(place)
    assert said(again) == "sent"
    again.close()


def test_nobody_can_connect_while_there_is_a_container_nor_at_once_after_it(
    hostile: Callable[[str], HostedPlace],
) -> None:
    place = hostile("time.sleep(60)")
    process = begun(place)
    assert not place.path.exists()
    with pytest.raises(FileNotFoundError):
        connected(place.path)
    lost_at = time.monotonic()
    place.hosts[0].kill()
    eventually(lambda: not place.ready(0), "it is lost")
    eventually(place.path.exists, "the operator listens again")
    assert time.monotonic() - lost_at > 1.5, (
        "the kernel has ended all processes of the container by then"
    )
    process.close()


def test_another_user_who_connects_is_handed_nothing(caplog: pytest.LogCaptureFixture) -> None:
    # so this test's own user is the stranger
    place = HostedPlace(start=False, user=os.getuid() + 1)
    with connected(place.path) as stranger:
        assert stranger.recv(1) == b"", "the operator hangs up"
    assert not place.ready(0.2)
    assert f"user {os.getuid()} may not run jobs: --jobs-user is {os.getuid() + 1}" in caplog.text
    place.close()


def test_another_user_cannot_even_connect() -> None:
    """Nor put a socket of its own in its place, where the directory is the operator's."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    place = HostedPlace(start=False)
    assert stat.S_IMODE(place.directory.stat().st_mode) == 0o755
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        refused = 0
        for attempt in (lambda: connected(place.path), place.path.unlink):
            try:
                attempt()
            except PermissionError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    place.close()


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    connection.settimeout(PATIENCE_SECONDS)
    return connection
