"""A driver and its controller on the API server; the driver has the permissions that are shipped
for it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driver_ends import (
    PATIENT,
    ChannelMaker,
    Connection,
    PlayedController,
    driver_channel,
    driver_connection,
)
from identities import ServiceAccountMaker
from proxy import UnreliableProxy
from rest import Rest
from roles import rules_of

from backfill.runtime.agent.kubernetes_channel import KubernetesChannel, Timing


@pytest.fixture
def controller(admin: Rest, crds: None, namespace: str) -> PlayedController:
    return PlayedController(admin, namespace)


@pytest.fixture
def connection(service_account: ServiceAccountMaker, tmp_path: Path) -> Connection:
    kubeconfig = service_account("spark", rules_of("driver.yaml", "Role", "backfill-driver"))
    return driver_connection(kubeconfig, tmp_path / "service account")


@pytest.fixture
def make_channel(
    controller: PlayedController, connection: Connection, proxy: UnreliableProxy
) -> Iterator[ChannelMaker]:
    """Makes channels of drivers that reach the server through the proxy."""
    made: list[KubernetesChannel] = []

    def make(attempt: int = 1, timing: Timing = PATIENT, opened: bool = True) -> KubernetesChannel:
        channel = driver_channel(replace(connection, url=proxy.url), controller, attempt, timing)
        if opened:
            channel.open()
            made.append(channel)
        return channel

    yield make
    for channel in made:
        channel.close()
