"""Separates processes of the same user from each other, by means of the kernel: their memory, and
the files that they may use.

Limits are permanent: neither the process nor its children can remove them.
"""

import ctypes
import os
import resource
import site
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of Landlock's system calls, which are the same on all architectures."""
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE = 1 << 14
_READ = _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Rights that a rule for a file may have. All others are rights of directories."""
_RIGHTS_BY_VERSION = ((1, 13), (2, 14), (3, 15), (5, 16))
"""Versions of Landlock, and the number of rights that they know."""
_BIND_TCP = 1
_SCOPED = 3
"""Restricts signals and abstract sockets to processes with the same limits."""

_LIBRARIES = ("/usr", "/lib", "/lib64", "/opt/backfill")
_SETTINGS = (
    *(
        "ssl",
        "pki",
        "ca-certificates",
        "resolv.conf",
        "hosts",
        "nsswitch.conf",
        "host.conf",
        "gai.conf",
        "localtime",
    ),
    *(
        "timezone",
        "mime.types",
        "passwd",
        "group",
        "services",
        "protocols",
        "ld.so.cache",
        "krb5.conf",
        "gss",
    ),
)
_KERNEL = (
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/sys/vm",
    "/sys/devices/system",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_FILES_OF_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"),
    *(
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
    ),
    *("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_FEDERATED_TOKEN_FILE", "PYICEBERG_HOME"),
)


_TOKENS = Path("/var/run/secrets/kubernetes.io")


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def keep_memory_private() -> None:
    """Keeps other processes of this user from reading this one's memory and environment, and
    disables core dumps.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of what its children leave running,
    as is the first process of a container.
    """
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def landlock_version() -> int:
    """Version of Landlock in the kernel; 0 if there is none."""
    return max(int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)), 0)


def confine_to_files(writable: Iterable[Path]) -> bool:
    """Leaves this process only what its libraries need to read, and directories to write to: no
    token of a service account, no mounted Secret, no program to start, no file of another process,
    no signal to one. Call it before there are threads.

    Returns False if the kernel does not support it.
    """
    version = landlock_version()
    if not version:
        return False
    libc = _libc()
    rights = (
        1 << next(bits for since, bits in reversed(_RIGHTS_BY_VERSION) if version >= since)
    ) - 1
    wanted = _Ruleset(rights, _BIND_TCP if version >= 4 else 0, _SCOPED if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), size, 0)
    if ruleset < 0:
        return False
    try:
        for place in _readable():
            _allow(ruleset, place, _READ)
        for place in (*map(Path, _DEVICES), *writable):
            _allow(ruleset, place, rights & ~_EXECUTE)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _readable() -> Iterator[Path]:
    yield from map(Path, (*_LIBRARIES, *_KERNEL))
    yield from (Path("/etc") / name for name in _SETTINGS)
    yield from (
        Path(place)
        for place in (sys.prefix, sys.base_prefix, *site.getsitepackages(), *sys.path)
        if place
    )
    for variable in _FILES_OF_VARIABLES:
        if value := os.environ.get(variable):
            place = Path(value)
            # a file that is replaced is another one
            around = place if place.is_dir() else place.parent
            yield place if _TOKENS.resolve().is_relative_to(around.resolve()) else around


def _allow(ruleset: int, place: Path, rights: int) -> None:
    """Adds a rule. Nothing is needed for what does not exist."""
    with suppress(OSError):
        parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = rights if place.is_dir() else rights & _OF_FILES
            rule = _PathBeneath(allowed, parent)
            _libc().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        finally:
            os.close(parent)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
