"""etcd and kube-apiserver for tests: real ones, started in seconds on free ports, gone with the
process that started them.
"""

import secrets
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import create_default_context

from kubeconfigs import write_kubeconfig

from waiting import PATIENCE_SECONDS

# A test run that is killed leaves no server behind where util-linux is to be had.
_DIE_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
_STARTS = 3  # another process can take a free port before the server does


class StartError(Exception):
    """A server ended, or was not ready in time; the message holds the end of its log."""


class Servers:
    """One etcd and one kube-apiserver with RBAC, and the kubeconfig of a user who may do
    everything.

    Nothing else runs: no pods start, nothing is garbage collected, namespaces stay when they are
    deleted.
    """

    def __init__(self, assets: Path, folder: Path) -> None:
        self._assets, self._folder = assets, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._token = secrets.token_hex(16)
        self._etcd_port, self._etcd_peer_port, self._port = _free_ports(3)
        self.admin_kubeconfig = folder / "admin.kubeconfig"

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """What the API server's certificate is verified with."""
        return self._folder / "certificates" / "apiserver.crt"

    def start(self) -> None:
        """Starts both servers and returns when the API server is ready."""
        client, peer = (
            f"http://127.0.0.1:{self._etcd_port}",
            f"http://127.0.0.1:{self._etcd_peer_port}",
        )
        self._spawn(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        self.start_api_server()
        write_kubeconfig(self.admin_kubeconfig, self.url, self.ca_file.read_bytes(), self._token)

    def start_api_server(self) -> None:
        """Starts the API server, at the address it had before, and waits until it is ready."""
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        certificates = self._folder / "certificates"
        # made by the server itself; it signs service account tokens as well
        key = certificates / "apiserver.key"
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={certificates}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        self._wait_until_ready()

    def stop_api_server(self) -> None:
        """Kills the API server; what is stored stays."""
        _kill(self._running.pop("kube-apiserver"))

    def stop(self) -> None:
        """Kills what runs."""
        for process in self._running.values():
            _kill(process)
        self._running.clear()

    def _spawn(self, name: str, *arguments: str) -> None:
        command = [*_DIE_WITH_PARENT, str(self._assets / name), *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._ready():
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                name = (ended or ["kube-apiserver"])[0]
                log = (self._folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise StartError(f"{name} {'ended' if ended else 'was not ready in time'}:\n{log}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._token}"}
        )
        try:
            with urllib.request.urlopen(
                request, timeout=5, context=create_default_context(cafile=self.ca_file)
            ) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def running_servers(assets: Path, folder: Path) -> Iterator[Servers]:
    """Servers that run until the block is left. ``assets`` holds the programs, ``folder`` gets
    data, logs and keys.
    """
    for attempt in range(_STARTS):
        servers = Servers(assets, folder / f"start-{attempt}")
        (folder / f"start-{attempt}").mkdir(parents=True)
        try:
            servers.start()
            break
        except StartError:
            servers.stop()
            if attempt == _STARTS - 1:
                raise
        except BaseException:
            servers.stop()
            raise
    try:
        yield servers
    finally:
        servers.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
