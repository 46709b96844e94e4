"""Real servers that keep tables and workspaces: an S3-compatible object store, and PostgreSQL for a
catalog.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import missing
from installed_spark import INSTALLED
from local_ports import free_port, listens
from repository import ROOT
from waiting import eventually

SCRIPT = ROOT / "scripts" / "object-store.sh"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the servers' programs and Spark's jars are."""

    gateway: Path
    jars: Path
    postgresql: Path

    @property
    def spark_jars(self) -> str:
        """The jars as Spark takes them."""
        return ",".join(sorted(str(jar) for jar in self.jars.glob("*.jar")))


def find_programs() -> Programs:
    """Gets what is missing, or skips the test where that is not possible; with CI set it fails."""
    found = subprocess.run(["sh", SCRIPT, INSTALLED], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        missing.skip(found.stderr.strip()[-1000:])
    return Programs(*(Path(line) for line in found.stdout.splitlines()))


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running object store."""

    endpoint: str
    files: Path
    """Where it keeps its buckets; an object is a file there."""


@contextmanager
def object_store(
    programs: Programs, directory: Path, key: str, secret: str, bucket: str
) -> Iterator[ObjectStore]:
    """An object store with one bucket, for one pair of keys."""
    port, files = free_port(), directory / "buckets"
    (files / bucket).mkdir(parents=True)
    environment = {**os.environ, "ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    command = [
        programs.gateway / "versitygw",
        "--port",
        f"127.0.0.1:{port}",
        "--region",
        "us-east-1",
        "posix",
        files,
    ]
    with (directory / "gateway.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        eventually(lambda: listens(port), (directory / "gateway.log").read_text)
        yield ObjectStore(f"http://127.0.0.1:{port}", files)
    finally:
        server.kill()
        server.wait()


@contextmanager
def postgresql(programs: Programs, user: str, password: str) -> Iterator[str]:
    """An empty database that asks for a password; its host and port."""
    # it refuses to run as root
    port, account = free_port(), "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgresql-") as temporary:
        directory = Path(temporary)
        (directory / "password").write_text(password)
        if account:
            owner = pwd.getpwnam(account)
            for path in (directory, directory / "password"):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        data, log = directory / "data", directory / "log"
        options = [
            f"--username={user}",
            f"--pwfile={directory / 'password'}",
            "--auth=scram-sha-256",
            "--no-sync",
        ]
        subprocess.run(
            [programs.postgresql / "initdb", "-D", data, *options],
            user=account,
            cwd=directory,
            check=True,
            capture_output=True,
        )
        serve = [
            programs.postgresql / "postgres",
            "-D",
            data,
            "-p",
            str(port),
            "-k",
            directory,
            "-c",
            "fsync=off",
        ]
        with log.open("wb") as output:
            server = subprocess.Popen(
                serve, user=account, cwd=directory, stdout=output, stderr=output
            )
        try:
            eventually(lambda: listens(port), log.read_text)
            yield f"127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGINT)  # without waiting for clients
            server.wait()
            shutil.rmtree(data)
