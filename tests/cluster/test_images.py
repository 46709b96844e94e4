"""What is in the images that the cluster runs, and what is not."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_files import ImageFiles
from images import JOBS, OPERATOR, SPARK

_PLACES = re.compile(
    r"(^|/)(\.netrc|\.pgpass|\.pypirc|\.git-credentials|\.dockercfg|\.env|id_(rsa|dsa|ecdsa|ed25519))$"
    r"|/\.(aws|kube|docker|ssh|azure|git)/|/\.config/gcloud/|^/(run|var/run)/secrets/."
)
"""Files that credentials are kept in."""
_TEXTS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\\?\s[A-Za-z0-9+/=]{40}"
    rb"|\b(AKIA|ASIA)(?![0-9A-Z]*EXAMPLE)[0-9A-Z]{16}\b"
    rb"|aws_secret_access_key\s*=\s*[A-Za-z0-9+/]{40}\b"
)
_LOGIN = re.compile(rb"[a-z][a-z0-9+]+://[^\s/:@'\"]+:[^\s/@'\"]+@")
"""An address with a password: in libraries it is an example, in what configures the image it is
none.
"""
_CONFIGURATION = re.compile(r"^/(etc|root|home)/|^/opt/[^/]+\.sh$")


def suspicious(path: str, content: bytes) -> bool:
    """Whether a file of an image looks like somebody's credentials."""
    if _PLACES.search(path) or _TEXTS.search(content):
        return True
    return bool(_CONFIGURATION.match(path) and _LOGIN.search(content))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for gigabytes, which are not kept as those of ``tmp_path`` are."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/root/.netrc", ""),
        ("/tmp/work/.aws/credentials", ""),
        ("/run/secrets/token", ""),
        ("/opt/key.pem", "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIE" * 16),
        ("/opt/app/settings.py", "KEY = 'AKIA" + "ABCDEFGH23456789'"),
        ("/etc/pip.conf", "[global]\nindex-url = https://me:mine@packages.example/simple"),
    ],
)
def test_credentials_would_be_seen(path: str, content: str) -> None:
    assert suspicious(path, content.encode())


@pytest.mark.parametrize(
    ("image", "user", "entry"),
    [
        (OPERATOR, "10001:10001", ["backfill-operator"]),
        (JOBS, "185:0", ["/opt/backfill/bin/python3", "-I", "-m", "backfill.job"]),
        (SPARK, "185", ["/opt/entrypoint.sh"]),
    ],
    ids=["operator", "jobs", "spark"],
)
def test_an_image_has_its_user_its_entry_point_and_nobodys_credentials(
    image: str, user: str, entry: list[str], place: Path
) -> None:
    made = ImageFiles(image, place)
    assert (made.config["config"]["User"], made.config["config"]["Entrypoint"]) == (user, entry)
    configuration = json.dumps(made.config).encode()
    assert not _TEXTS.search(configuration) and not _LOGIN.search(configuration)
    assert [
        name
        for name in made.config["config"]["Env"]
        if re.search(r"(?i)secret|token|passw|access_key", name)
    ] == []

    seen, found = 0, []
    for path, content in made.files():
        seen += 1
        if suspicious(path, content):
            found.append(path)
    assert found == []
    assert seen > 5_000


def test_the_operators_image_has_nothing_that_opens_a_table(place: Path) -> None:
    paths = [path for path, _ in ImageFiles(OPERATOR, place).files()]
    libraries = re.compile(r"/site-packages/(pyarrow|pyiceberg|numpy|sqlalchemy|psycopg2)/")
    assert [path for path in paths if libraries.search(path)] == []
    assert any("/site-packages/kopf/" in path for path in paths)
