"""What Kopf calls, from the operator's start to its end.

Handlers only keep what was seen, which marks a Backfill; workers reconcile the marked ones. A
handler of the kind ``on.event`` writes nothing: no finalizer, no annotation.
"""

import asyncio
import errno
import logging
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import kopf
from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from backfill.controller.children.apache import Apache
from backfill.controller.children.kubeflow import Kubeflow
from backfill.controller.manager.listing import Watched
from backfill.controller.manager.login import bounded_session
from backfill.controller.manager.operator import Operator
from backfill.kube.client import label_selector
from backfill.kube.object_names import CONTROLLER_MANAGER, GROUP
from backfill.kube.request_errors import ClusterError
from backfill.kube.resources import (
    BACKFILL,
    DECISION,
    JOB_REPORT,
    POD,
    SPLIT_ASSIGNMENT,
    Resource,
)

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 2.0
_PAGE: Final = 50
"""Objects in a page of Kopf's first list. By default it requests all at once, and reports of jobs
can have a megabyte each.
"""
_POSTERS: Final = 8
_KEPT_SECONDS: Final = 0.05
_LAST_EVENTS_SECONDS: Final = 0.5
_IDENTITY: Final[Any] = "backfill-operator"
"""Not shown anywhere. Without it, Kopf uses the user's name, which a container's user may not have.
"""
REGISTRY: Final = kopf.OperatorRegistry()


def run(operator: Operator) -> int:
    """Runs an operator until SIGTERM or SIGINT, or until it has lost its Lease, and returns the
    exit status of the process.

    Kopf ends at some answers, such as a refused watch. It is then started again, while the
    operator goes on.
    """
    settings = operator.settings
    _LOG.info(
        "%s started; it reconciles %s",
        settings.identity,
        ", ".join(settings.namespaces) or "all namespaces",
    )
    while True:
        stop, failed = asyncio.Event(), False
        try:
            kopf.run(
                registry=REGISTRY,
                memo=kopf.Memo(operator=operator, stop=stop),
                identity=_IDENTITY,
                standalone=True,
                clusterwide=not settings.namespaces,
                namespaces=operator.namespaces,
                liveness_endpoint=_liveness_endpoint(settings.health_port, os.environ),
                stop_flag=stop,
            )
        except Exception as error:
            failed = True
            if not operator.has_begun or getattr(error, "errno", None) == errno.EADDRINUSE:
                _LOG.error("the operator ends: %s", error)
                operator.close()
                return 1
            _LOG.warning("Kopf has failed, and is started again: %s", error)
        if operator.is_over(failed=failed):
            operator.close()
            return operator.exit_status


@kopf.on.startup(registry=REGISTRY, errors=kopf.ErrorsMode.PERMANENT)
async def start(memo: Any, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Fills the caches, and becomes a candidate for the Lease. Kopf watches and answers probes
    afterwards.
    """
    operator: Operator = memo.operator
    operator.recorder.begin_anew()
    configure(settings, operator.watched, operator.settings.identity)
    memo.metrics = await _serve_metrics(operator)
    try:
        while not operator.has_begun and (
            problem := await asyncio.to_thread(_problem_of, operator)
        ):
            _LOG.error("%s", problem)
            await asyncio.sleep(_RETRY_SECONDS)
    except asyncio.CancelledError:
        memo.stop.set()  # otherwise Kopf waits for it
        raise
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _note_signal, memo)
    operator.begin(restart=partial(loop.call_soon_threadsafe, memo.stop.set))


def _note_signal(memo: Any) -> None:
    if "ending" not in memo:
        memo.ending = asyncio.create_task(_end_soon(memo))


async def _end_soon(memo: Any) -> None:
    """Lets reconciles end and the last Events be posted before Kopf ends."""
    await asyncio.to_thread(memo.operator.close)
    await asyncio.sleep(_LAST_EVENTS_SECONDS)
    memo.stop.set()


@kopf.on.login(registry=REGISTRY)
async def log_in(memo: Any, **_: Any) -> kopf.AiohttpSession:
    """Reads the credentials, again when they were refused. The same ones are tried again after a
    while: a server that is starting may refuse good ones.
    """
    credentials = await asyncio.to_thread(memo.operator.login.connection)
    if memo.get("credentials") == credentials:
        await asyncio.sleep(_RETRY_SECONDS)
    memo.credentials = credentials
    return bounded_session(credentials)


def _of(kind: Resource) -> dict[str, Any]:
    return {
        "group": kind.group,
        "version": kind.version,
        "plural": kind.plural,
        "registry": REGISTRY,
    }


@kopf.on.event(**_of(BACKFILL))
@kopf.on.event(**_of(SPLIT_ASSIGNMENT))
@kopf.on.event(**_of(DECISION))
@kopf.on.event(**_of(JOB_REPORT))
@kopf.on.event(**_of(POD))
@kopf.on.event(**_of(Kubeflow.resource))
@kopf.on.event(**_of(Apache.resource))
async def changed(event: kopf.RawEvent, resource: kopf.Resource, memo: Any, **_: Any) -> None:
    """Keeps what was seen. The cache marks the Backfill that it belongs to."""
    operator: Operator = memo.operator
    operator.recorder.may_post()
    cache = operator.cache_of[Resource(resource.group, resource.version, resource.plural)]
    manifest: Any = event["object"]
    if event["type"] == "DELETED":
        cache.forget(manifest)
    else:
        cache.put(manifest)


@kopf.on.probe(registry=REGISTRY, id="leader")
async def is_leader(memo: Any, **_: Any) -> bool:
    """Whether this replica leads."""
    return bool(memo.operator.leads)


@kopf.on.probe(registry=REGISTRY, id="reconciles")
async def reconciles(memo: Any, **_: Any) -> str:
    """Fails if a reconcile is stuck."""
    if stuck := memo.operator.stuck:
        raise kopf.PermanentError(stuck)
    return "ok"


@kopf.on.cleanup(registry=REGISTRY, errors=kopf.ErrorsMode.PERMANENT)
async def end(memo: Any, **_: Any) -> None:
    """Answers no more scrapes, which the next run of Kopf does."""
    memo.stop.set()  # otherwise Kopf waits for it
    # Where one watch fails, Kopf leaves the others. It cancels them together with what pauses them,
    # so that they take that for a pause, go on and wait for a login for ever.
    watches = {task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")}
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    await memo.metrics.cleanup()


class _NothingHandled(kopf.DiffBaseStorage):
    """No handler needs to know what has changed since the last one, which Kopf would read from an
    annotation: anybody may have written it.
    """

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def configure(settings: kopf.OperatorSettings, watched: Sequence[Watched], identity: str) -> None:
    """Sets what Kopf is to do otherwise than by default."""
    # otherwise it requires permissions for namespaces and definitions
    settings.scanning.disabled = True
    settings.posting.reporting_component = CONTROLLER_MANAGER
    settings.posting.reporting_instance = identity
    settings.posting.event_name_prefix = f"{CONTROLLER_MANAGER}-"
    settings.posting.default_backoffs = (1, 5, 20)
    settings.posting.worker_limit = _POSTERS
    settings.watching.chunk_size = _PAGE
    # for so long Kopf keeps each object as a whole, in case that it changes again
    settings.queueing.idle_timeout = _KEPT_SECONDS
    settings.persistence.diffbase_storage = _NothingHandled()
    # Kopf removes its own finalizer from objects that are being deleted, and by default uses the
    # same name for it in every operator.
    settings.persistence.finalizer = f"{GROUP}/unused"
    for kind in watched:
        if kind.labels:
            resource = kind.resource
            settings.watching.label_selectors[resource.group, resource.version, resource.plural] = (
                label_selector(kind.labels)
            )


def _liveness_endpoint(port: int, environment: Mapping[str, str]) -> str | None:
    """Where Kopf answers probes: on all addresses of the pod's first family. It binds one only."""
    if not port:
        return None
    ipv6 = ":" in environment.get("POD_IP", "")
    return f"http://{'[::]' if ipv6 else '0.0.0.0'}:{port}/healthz"


def _problem_of(operator: Operator) -> str | None:
    """Fills the caches, and returns why it cannot start yet."""
    try:
        return operator.fill_caches()
    except ClusterError as error:
        return f"cannot list resources: {error}"


async def _serve_metrics(operator: Operator) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/metrics", make_aiohttp_handler(operator.metrics.registry))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if operator.settings.metrics_port:
        await web.TCPSite(runner, port=operator.settings.metrics_port).start()
    return runner
