"""A driver and its controller over an API server that refuses, forgets, answers late, or is not
there.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import urllib3
from driver_ends import (
    PATIENT,
    QUICK,
    ChannelMaker,
    PlayedController,
    await_committed,
    await_released,
    committed_in,
    driver_channel,
    driver_connection,
    progress,
)
from proxy import CUT, DROP, Cut, Request, Response, UnreliableProxy, expired_event, refusal
from resources import definitions
from rest import DEFINITIONS, Manifest, Rest
from servers import running_servers

from waiting import PATIENCE_SECONDS, eventually

Hook = Callable[[Request], Response | Cut | None]


def first(count: int, answer: Response | Cut, *verbs: str) -> Hook:
    """Answers that many requests of these verbs, and passes on the rest."""
    left = [count]

    def hook(request: Request) -> Response | Cut | None:
        if request.verb not in verbs or left[0] == 0:
            return None
        left[0] -= 1
        return answer

    return hook


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(refusal(409, "Conflict"), id="conflict"),
        pytest.param(refusal(429, "TooManyRequests"), id="too many requests"),
        pytest.param(refusal(500, "InternalError"), id="internal error"),
        pytest.param(refusal(503, "ServiceUnavailable"), id="unavailable"),
        pytest.param(
            refusal(404, "NotFound"), id="a resource that a starting server does not know yet"
        ),
        pytest.param(refusal(403, "Forbidden"), id="forbidden for a moment"),
        pytest.param(Response(200, b"<html>sign in</html>"), id="the page of something in between"),
        pytest.param(Response(200, b'{"kind": "SplitAssignm'), id="half an answer"),
        pytest.param(CUT, id="cut"),
    ],
)
def test_what_is_refused_or_not_answered_is_tried_until_it_is_done(
    controller: PlayedController,
    make_channel: ChannelMaker,
    proxy: UnreliableProxy,
    answer: Response | Cut,
) -> None:
    controller.create()
    proxy.before = first(3, answer, "get")
    channel = make_channel()
    proxy.before = first(8, answer, "patch", "watch", "get")
    proxy.kill_watches()
    channel.report(progress(1))
    controller.write(released=4)
    await_committed(controller, 1)
    await_released(channel, 4)
    assert channel.controller_alive()


def test_a_server_that_asks_to_be_left_alone_is(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    proxy.before = first(1, refusal(429, "TooManyRequests", retry_after_seconds=1), "patch")
    begun = time.monotonic()
    channel.report(progress(1))
    await_committed(controller, 1)
    assert time.monotonic() - begun >= 1
    assert proxy.count("patch") == 2


def test_a_report_whose_answer_was_lost_is_there_and_the_next_one_follows(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    # so that it does not learn from the watch what it has written
    proxy.on_event = lambda request, event: DROP
    proxy.after = lambda request, response: CUT if request.verb == "patch" else None
    channel.report(progress(1))
    await_committed(controller, 1)
    proxy.after = lambda request, response: None
    channel.report(progress(2))
    await_committed(controller, 2)


def test_a_report_that_arrives_after_a_newer_one_changes_nothing(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    held: list[Request] = []

    def hold_the_first(request: Request) -> Response | Cut | None:
        if request.verb != "patch" or held:
            return None
        held.append(request)
        return CUT

    proxy.before = hold_the_first
    channel.report(progress(1))
    eventually(lambda: held, "the first report is under way")
    channel.report(progress(2, phase="Finished"))
    channel.close()
    late = held[0]
    query = "&".join(f"{name}={value}" for name, value in late.query.items())
    answer = urllib3.request(
        "PATCH", f"{proxy.url}{late.path}?{query}", body=late.body, headers=_own(late)
    )
    assert answer.status == 422
    assert (committed_in(controller.status), controller.status["phase"]) == (2, "Finished")


def test_every_release_is_heard_of_however_often_the_watch_is_cut(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    for released in range(2, 12):
        proxy.kill_watches()
        controller.write(released=released)
        await_released(channel, released)
    assert proxy.count("get") == 1, "each watch goes on where the last one ended"


def test_a_watch_that_is_silent_costs_no_more_than_a_heartbeat(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    proxy.on_event = lambda request, event: DROP
    controller.write(released=6)
    channel.report(progress(1))
    await_released(channel, 6)


@pytest.mark.parametrize("where", ["an answer", "an event"])
def test_a_version_that_the_server_has_forgotten_is_read_anew(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy, where: str
) -> None:
    controller.create()
    channel = make_channel()
    if where == "an answer":
        proxy.before = first(1, refusal(410, "Expired"), "watch")
        proxy.kill_watches()
    else:
        proxy.on_event = lambda request, event: (
            expired_event() if proxy.count("watch") < 2 else None
        )
    controller.write(released=2)
    await_released(channel, 2)
    assert proxy.count("get") == 2


def test_an_old_answer_does_not_take_back_what_is_known(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    old: list[Response] = []
    proxy.after = lambda request, response: old.append(response) if request.verb == "get" else None
    channel = make_channel()
    controller.write(released=8)
    await_released(channel, 8)
    gets = proxy.count("get")
    proxy.after = lambda request, response: old[0] if request.verb == "get" else None
    proxy.on_event = lambda request, event: expired_event()
    proxy.kill_watches()
    controller.write(released=9)
    eventually(lambda: proxy.count("get") > gets + 1, "it has read old answers")
    spec = channel.assignment()
    assert spec is not None
    assert spec.released >= 8
    proxy.on_event = lambda request, event: None
    proxy.after = lambda request, response: None
    await_released(channel, 9)


def test_while_the_server_is_away_reports_are_kept_and_the_newest_is_delivered_afterwards(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create(released=5)
    channel = make_channel()
    with proxy.away():
        for committed in range(1, 6):
            channel.report(progress(committed))
            time.sleep(0.05)
        spec = channel.assignment()
        assert spec is not None
        assert (spec.released, channel.controller_alive()) == (5, True)
        controller.write(released=6)
    await_released(channel, 6)
    await_committed(controller, 5)
    delivered = [request for request in proxy.requests if request.verb == "patch"]
    assert len(delivered) <= 2, "one that was under way, and the newest"


def test_a_run_that_ends_while_the_server_is_away_waits_with_its_last_report(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    with proxy.away():
        channel.report(progress(100, phase="Finished"))
        ended = threading.Thread(target=channel.close)
        ended.start()
        ended.join(0.5)
        assert ended.is_alive()
    ended.join(PATIENCE_SECONDS)
    assert not ended.is_alive()
    assert controller.status["phase"] == "Finished"


def test_it_does_not_wait_for_ever_with_its_last_report(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel(timing=QUICK)
    with proxy.away():
        channel.report(progress(100, phase="Finished"))
        begun = time.monotonic()
        channel.close()
        assert QUICK.patience <= time.monotonic() - begun < PATIENCE_SECONDS


def test_a_driver_that_starts_while_the_server_is_away_waits_for_it(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    opened = threading.Event()
    channel = make_channel(opened=False)

    def start() -> None:
        channel.open()
        opened.set()

    with proxy.away():
        threading.Thread(target=start, daemon=True).start()
        assert not opened.wait(0.5)
    assert opened.wait(PATIENCE_SECONDS)
    assert channel.assignment() is not None
    channel.close()


@pytest.mark.parametrize("seed", range(4))
def test_with_all_of_it_at_once_nothing_is_lost_and_nothing_goes_back(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy, seed: int
) -> None:
    """The driver commits what is released; the controller releases two steps beyond what it hears
    of.
    """
    steps, chance = 40, random.Random(seed)
    refusals = [
        refusal(409, "Conflict"),
        refusal(429, "TooManyRequests"),
        refusal(500, "InternalError"),
        refusal(410, "Expired"),
    ]
    controller.create(released=2)
    channel = make_channel(timing=replace(PATIENT, between_reports=0.005))

    def before(request: Request) -> Response | Cut | None:
        time.sleep(chance.random() * 0.02)
        return chance.choice([CUT, *refusals]) if chance.random() < 0.4 else None

    def after(request: Request, response: Response) -> Response | Cut | None:
        return CUT if chance.random() < 0.2 else None

    def on_event(request: Request, event: Manifest) -> Manifest | Cut | None:
        return chance.choice([CUT, expired_event()]) if chance.random() < 0.3 else None

    proxy.before, proxy.after, proxy.on_event = before, after, on_event
    heard, committed, deadline = [0], 0, time.monotonic() + PATIENCE_SECONDS
    while committed < steps:
        assert time.monotonic() < deadline, (
            f"{committed} steps committed, {heard[-1]} heard of, {channel.assignment()}"
        )
        spec = channel.assignment()
        assert spec is not None
        if committed < spec.released:
            committed += 1
            channel.report(progress(committed))
        if chance.random() < 0.02:
            proxy.kill_watches()
        heard.append(committed_in(controller.status) or 0)
        if heard[-1] > heard[-2]:
            controller.write(released=min(heard[-1] + 2, steps))
        time.sleep(0.002)
    channel.report(progress(steps, phase="Finished"))
    channel.close()
    assert heard == sorted(heard)
    assert (committed_in(controller.status), controller.status["phase"]) == (steps, "Finished")


def test_a_restarted_api_server_is_nothing_but_a_pause(crds: None, tmp_path: Path) -> None:
    """Servers of its own, so that no other test is disturbed; the driver has all permissions
    here.
    """
    if not (assets := os.environ.get("KUBEBUILDER_ASSETS")):
        pytest.skip("a given cluster is not restarted")
    with running_servers(Path(assets), tmp_path) as servers:
        admin = Rest(servers.admin_kubeconfig)
        for manifest in definitions():
            if manifest["spec"]["group"] == "backfill.dev":
                admin.apply(f"{DEFINITIONS}/{manifest['metadata']['name']}", manifest).expect()
        eventually(
            lambda: admin.get("apis/backfill.dev/v1alpha1/splitassignments").ok,
            "assignments are served",
        )
        controller = PlayedController(admin, "default")
        controller.create()
        channel = driver_channel(
            driver_connection(servers.admin_kubeconfig, tmp_path / "account"), controller
        )
        channel.open()
        channel.report(progress(1))
        await_committed(controller, 1)
        servers.stop_api_server()
        channel.report(progress(2))
        servers.start_api_server()
        await_committed(controller, 2)
        controller.write(released=3)
        await_released(channel, 3)
        assert channel.controller_alive()
        channel.close()


def _own(request: Request) -> dict[str, str]:
    return {
        name: value
        for name, value in request.headers.items()
        if name in ("Authorization", "Content-Type")
    }
