"""A real cluster with nodes, images and the Spark operator; in it one operator, some teams and one
set of tables for all tests.

``KUBECONFIG`` names the cluster; one that may be in use is refused. The tests write to
``BACKFILL_E2E_DIRECTORY``, which pods mount by its path: the nodes have to share it with this
machine. What ``restarts.py`` ends and starts again may need a command.
"""

import fcntl
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS / "apiserver"))  # plain requests, and which clusters are accepted

from installation import Installation, definitions_installed  # noqa: E402
from kubeconfigs import why_refused  # noqa: E402
from live_cluster import Cluster  # noqa: E402
from plays import Plays  # noqa: E402
from replays import Replay  # noqa: E402
from rest import Rest  # noqa: E402
from storage import Storage, shared_directory  # noqa: E402
from stores import Stores  # noqa: E402
from teams import Team  # noqa: E402

import missing  # noqa: E402
from iceberg_tables import sqlite_catalog  # noqa: E402

DIRECTORY = Path(
    os.environ.get("BACKFILL_E2E_DIRECTORY", Path(tempfile.gettempdir()) / "backfill-e2e")
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "alone: others would disturb what it measures, or it disturbs all others"
    )


@pytest.fixture(autouse=True)
def _turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes run their tests at once, but for those that are marked to run alone."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (DIRECTORY / "turns").open("w") as turns:
        fcntl.flock(
            turns, fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH
        )
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """As somebody who may do everything. The definitions are those of this version."""
    given = os.environ.get("KUBECONFIG")
    reason = why_refused(Path(given)) if given else "no cluster: KUBECONFIG names none"
    if given is None or reason:
        missing.skip(str(reason))
    rest = Rest(Path(given))
    definitions_installed(rest, TESTS.parent / "crds")
    yield Cluster(rest, Path(given))
    rest.close()


@pytest.fixture(scope="session")
def directory() -> Iterator[Path]:
    """A directory that pods see at the same path. Whatever is made in it, any of their users may
    change.
    """
    before = os.umask(0)
    made = DIRECTORY / uuid.uuid4().hex[:10]
    (made / "warehouse").mkdir(parents=True)
    (made / "work").mkdir()
    yield made
    shutil.rmtree(made)
    os.umask(before)


@pytest.fixture(scope="session")
def lake(directory: Path) -> Catalog:
    """A catalog ``lake`` with a namespace ``raw``, as pods have it."""
    catalog = sqlite_catalog(directory)
    catalog.create_namespace("raw")
    (directory / "catalog.db").chmod(0o666)
    return catalog


@pytest.fixture(scope="session")
def storage(directory: Path) -> Storage:
    """What pods are told of it."""
    return shared_directory(directory)


@pytest.fixture(scope="session")
def plays(lake: Catalog) -> Plays:
    """The history that all Backfills read."""
    return Plays(lake)


@pytest.fixture(scope="session")
def teams(cluster: Cluster, storage: Storage) -> dict[str, Team]:
    """``open``, and ``poor`` for a quota."""
    session = uuid.uuid4().hex[:6]
    return {name: Team(cluster, f"e2e-{name}-{session}", storage) for name in ("open", "poor")}


@pytest.fixture(scope="session")
def installation(cluster: Cluster, teams: dict[str, Team]) -> Iterator[Installation]:
    """The operator that looks after the teams."""
    name = f"e2e-operator-{uuid.uuid4().hex[:6]}"
    yield from _installed(Installation(cluster, name, list(teams.values())))


@pytest.fixture
def installation_apart(cluster: Cluster) -> Iterator[Installation]:
    """Another one, without teams, for what the others would not survive."""
    yield from _installed(Installation(cluster, f"e2e-apart-{uuid.uuid4().hex[:6]}"))


@pytest.fixture
def stores(cluster: Cluster) -> Iterator[Stores]:
    """They start while the operator is installed."""
    made = Stores(cluster, f"e2e-stores-{uuid.uuid4().hex[:6]}")
    try:
        made.make()
        yield made
    finally:
        made.remove()


@pytest.fixture
def remote(cluster: Cluster, stores: Stores) -> Iterator[Installation]:
    """An operator, and a team whose pods have no volume."""
    session = uuid.uuid4().hex[:6]
    team = Team(cluster, f"e2e-remote-{session}", stores.storage)
    operator = f"e2e-remote-operator-{session}"
    yield from _installed(Installation(cluster, operator, [team]))


@pytest.fixture
def replay(
    installation: Installation, teams: dict[str, Team], plays: Plays
) -> Iterator[Callable[..., Replay]]:
    """Makes a Backfill of this name, and a wrong summary that it is to mend. It goes with the
    test.
    """
    made: list[Replay] = []

    def make(name: str, team: str = "open") -> Replay:
        made.append(Replay(teams[team], plays.summary(name)))
        return made[-1]

    yield make
    for each in made:
        each.delete()


def _installed(installation: Installation) -> Iterator[Installation]:
    try:
        try:
            installation.install()
        except BaseException:
            print(installation.story())
            raise
        yield installation
    finally:
        installation.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Of a test that failed it is told what could be seen in the cluster."""
    report = yield
    for fixture in ("installation", "installation_apart", "remote", "stores", "broker"):
        if report.failed and report.when == "call" and fixture in getattr(item, "funcargs", {}):  # type: ignore[attr-defined]
            report.sections.append(("the cluster", item.funcargs[fixture].story()))  # type: ignore[attr-defined]
    return report
