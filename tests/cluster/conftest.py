"""A real cluster with nodes, images and the Spark operator, and for every test a namespace with an operator of its own.

``KUBECONFIG`` names the cluster; one that may be in use is refused. The tests write to ``BACKFILL_E2E_DIRECTORY``, which pods
mount by its path: the nodes have to share it with this machine.
"""

import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS / "apiserver"))  # plain requests, and which clusters are accepted

from installation import Installation, definitions_installed  # noqa: E402
from kubeconfigs import why_refused  # noqa: E402
from rest import Rest  # noqa: E402

from iceberg_tables import sqlite_catalog  # noqa: E402

DIRECTORY = Path(os.environ.get("BACKFILL_E2E_DIRECTORY", Path(tempfile.gettempdir()) / "backfill-e2e"))
_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    given = os.environ.get("KUBECONFIG")
    if not given:
        pytest.skip("no cluster: KUBECONFIG names none")
    if reason := why_refused(Path(given)):
        pytest.skip(reason)
    return Path(given)


@pytest.fixture(scope="session")
def admin(kubeconfig: Path) -> Iterator[Rest]:
    """Plain requests as a user who may do everything."""
    rest = Rest(kubeconfig)
    definitions_installed(rest, TESTS.parent / "crds")
    yield rest
    rest.close()


@pytest.fixture
def lake_directory() -> Iterator[Path]:
    """A directory that pods see at the same path. Whatever is made in it, any of their users may change."""
    before = os.umask(0)
    directory = DIRECTORY / uuid.uuid4().hex[:10]
    (directory / "warehouse").mkdir(parents=True)
    (directory / "work").mkdir()
    yield directory
    shutil.rmtree(directory)
    os.umask(before)


@pytest.fixture
def lake(lake_directory: Path) -> Catalog:
    """An empty catalog ``lake`` with a namespace ``raw``, as pods have it."""
    catalog = sqlite_catalog(lake_directory)
    catalog.create_namespace("raw")
    (lake_directory / "catalog.db").chmod(0o666)
    return catalog


@pytest.fixture
def installation(admin: Rest, kubeconfig: Path, lake_directory: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """A namespace with the operator, installed as users do, and what drivers need."""
    namespace = f"e2e-{re.sub('[^a-z0-9]+', '-', request.node.name.removeprefix('test_'))[:30].strip('-')}-{uuid.uuid4().hex[:6]}"
    made = Installation(admin, kubeconfig, namespace, lake_directory)
    try:
        made.install()
        yield made
        if request.node.stash.get(_FAILED, False):
            print(made.story())
    finally:
        made.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed  # type: ignore[attr-defined]
    return report
