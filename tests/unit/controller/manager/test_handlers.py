"""What Kopf is told to call."""

import asyncio
from types import SimpleNamespace

import kopf
import pytest

from backfill.controller.manager import handlers
from backfill.controller.manager.wiring import Caches
from backfill.kube.resources import Resource


def test_every_kind_that_is_kept_has_a_handler() -> None:
    selectors = [each.selector for each in handlers.REGISTRY._watching.get_all_handlers()]
    handled = {
        Resource(each.group or "", each.version or "", str(each.plural))
        for each in selectors
        if each is not None
    }
    assert handled == {watched.resource for watched in Caches().watched()}


def _probed(stuck: str | None) -> str:
    memo = SimpleNamespace(operator=SimpleNamespace(stuck=stuck))
    return asyncio.run(handlers.reconciles(memo=memo))


def test_a_probe_fails_if_a_reconcile_is_stuck() -> None:
    assert _probed(None) == "ok"
    with pytest.raises(kopf.PermanentError, match="has been under way for 1000 s"):
        _probed("the reconcile of a/b has been under way for 1000 s")


def test_probes_are_answered_on_addresses_of_the_family_that_pods_have() -> None:
    endpoint = handlers._liveness_endpoint
    assert endpoint(8081, {}) == "http://0.0.0.0:8081/healthz"
    assert endpoint(8081, {"POD_IP": "10.0.0.1"}) == "http://0.0.0.0:8081/healthz"
    assert endpoint(8081, {"POD_IP": "fd00::1"}) == "http://[::]:8081/healthz"
    assert endpoint(0, {}) is None
