"""The driver's end of a SplitAssignment on a real API server, with the permissions that a driver
has.
"""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from driver_ends import (
    PATIENT,
    QUICK,
    ChannelMaker,
    Connection,
    PlayedController,
    await_committed,
    await_released,
    committed_in,
    driver_channel,
    driver_connection,
    hear_nothing,
    progress,
)
from identities import ServiceAccountMaker
from proxy import CUT, UnreliableProxy
from rest import Rest

from backfill.api.errors import BackfillError
from waiting import PATIENCE_SECONDS, eventually


def test_over_tls_and_without_a_proxy_both_ends_hear_of_each_other(
    controller: PlayedController, connection: Connection
) -> None:
    controller.create(released=2)
    channel = driver_channel(connection, controller)
    channel.open()
    await_released(channel, 2)
    controller.write(released=3)
    await_released(channel, 3)
    channel.report(progress(committed=1))
    await_committed(controller, 1)
    channel.close()
    assert controller.managers["backfill-driver"] == "status"


def test_a_later_attempt_is_told_what_the_one_before_reported(
    controller: PlayedController, make_channel: ChannelMaker
) -> None:
    controller.create()
    first = make_channel()
    assert first.last_status() is None
    first.report(progress(committed=7))
    first.close()
    controller.write(attempt=2)
    second = make_channel(attempt=2)
    before = second.last_status()
    assert before is not None
    assert (before.attempt, before.queries[0].sources[0].committed) == (1, 7)
    second.report(progress(committed=8, attempt=2))
    await_committed(controller, 8)


def test_close_returns_when_the_last_report_is_delivered(
    controller: PlayedController, make_channel: ChannelMaker
) -> None:
    controller.create()
    channel = make_channel()
    for committed in range(50):
        channel.report(progress(committed))
    channel.report(progress(50, phase="Finished"))
    channel.close()
    assert (committed_in(controller.status), controller.status["phase"]) == (50, "Finished")


def test_many_reports_in_a_short_time_are_few_writes(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel(timing=replace(PATIENT, between_reports=0.2))
    begun = time.monotonic()
    for committed in range(200):
        channel.report(progress(committed))
        time.sleep(0.005)
    channel.close()
    assert proxy.count("patch") <= (time.monotonic() - begun) / 0.2 + 2
    assert committed_in(controller.status) == 199


def test_reporting_never_waits_for_the_server(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    answered = threading.Event()
    proxy.before = lambda request: None if answered.wait(PATIENCE_SECONDS) else CUT
    begun = time.monotonic()
    for committed in range(1000):
        channel.report(progress(committed))
    assert time.monotonic() - begun < PATIENCE_SECONDS / 2, "the first answer takes longer"
    answered.set()
    await_committed(controller, 999)


def test_a_deleted_assignment_means_that_nobody_reads_reports_any_more(
    controller: PlayedController, make_channel: ChannelMaker
) -> None:
    controller.create()
    channel = make_channel()
    assert channel.controller_alive()
    controller.delete()
    eventually(lambda: not channel.controller_alive(), "the driver knows")
    channel.report(progress(1))
    channel.close()


def test_an_assignment_deleted_unseen_is_noticed_by_the_next_report(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    hear_nothing(proxy)
    controller.delete()
    channel.report(progress(1))
    eventually(lambda: not channel.controller_alive(), "the driver knows")


def test_a_driver_of_an_older_attempt_never_writes_over_a_newer_one(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    old = make_channel()
    old.report(progress(1))
    await_committed(controller, 1)
    # It hears of nothing, so it does not know that it is old.
    hear_nothing(proxy)
    controller.write(attempt=2)
    patches = proxy.count("patch")
    old.report(progress(2))
    eventually(lambda: proxy.count("patch") > patches + 2, "it has tried")
    assert committed_in(controller.status) == 1
    # Once it hears of it, it stops trying.
    proxy.before = lambda request: None
    eventually(lambda: (spec := old.assignment()) is not None and spec.attempt == 2, "it knows")
    old.close()
    assert committed_in(controller.status) == 1


def test_a_driver_that_is_faster_than_its_assignment_waits_with_its_report(
    controller: PlayedController, make_channel: ChannelMaker
) -> None:
    controller.create(attempt=1)
    channel = make_channel(attempt=2)
    channel.report(progress(0, attempt=2))
    controller.write(attempt=2)
    await_committed(controller, 0)
    assert controller.status["attempt"] == 2


def test_a_driver_of_a_backfill_made_again_under_its_name_does_not_touch_the_new_one(
    admin: Rest, controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()
    hear_nothing(proxy)
    controller.delete()
    again = PlayedController(admin, controller.namespace)
    again.create()
    patches = proxy.count("patch")
    channel.report(progress(5))
    eventually(lambda: proxy.count("patch") > patches + 2, "it has tried")
    assert again.status == {}
    proxy.before = lambda request: None
    eventually(lambda: not channel.controller_alive(), "it knows that its Backfill is gone")
    with pytest.raises(BackfillError, match="belongs to another Backfill"):
        make_channel().open()


def test_a_status_that_the_server_does_not_accept_is_left_out_and_the_next_one_is_delivered(
    controller: PlayedController, make_channel: ChannelMaker
) -> None:
    controller.create()
    channel = make_channel()
    refused = progress(3).model_copy(update={"phase": "Dancing"})
    channel.report(refused)
    channel.close()
    assert controller.status == {}
    channel = make_channel()
    channel.report(refused)
    channel.report(progress(4))
    await_committed(controller, 4)


def test_a_newer_controllers_fields_are_no_reason_to_ignore_what_it_releases(
    controller: PlayedController, make_channel: ChannelMaker, proxy: UnreliableProxy
) -> None:
    controller.create()
    channel = make_channel()

    def as_a_newer_one_says_it(request: object, event: dict) -> dict:  # type: ignore[type-arg]
        event["object"]["spec"]["fieldOfTheFuture"] = 1
        return event

    proxy.on_event = as_a_newer_one_says_it
    controller.write(released=9)
    await_released(channel, 9)


def test_a_replaced_token_is_used_at_once(
    controller: PlayedController,
    connection: Connection,
    make_channel: ChannelMaker,
    proxy: UnreliableProxy,
) -> None:
    controller.create()
    token = connection.token_file.read_text()
    connection.token_file.write_text("expired")
    with pytest.raises(BackfillError, match="check the credentials"):
        make_channel(timing=QUICK)
    connection.token_file.write_text(f"{token}\n")
    channel = make_channel()
    connection.token_file.write_text("expired")
    proxy.kill_watches()
    channel.report(progress(1))
    controller.write(released=5)
    eventually(
        lambda: any(
            "expired" in request.headers["Authorization"] for request in proxy.requests[-3:]
        ),
        "it is refused",
    )
    connection.token_file.write_text(token)
    await_committed(controller, 1)
    await_released(channel, 5)


def test_a_driver_without_permission_says_which_role_it_needs(
    controller: PlayedController, service_account: ServiceAccountMaker, tmp_path: Path
) -> None:
    controller.create()
    channel = driver_channel(
        driver_connection(service_account("nobody"), tmp_path / "nobody"), controller, timing=QUICK
    )
    with pytest.raises(
        BackfillError, match="the driver's service account needs the Role backfill-driver"
    ):
        channel.open()


def test_a_driver_waits_a_while_for_an_assignment_that_is_not_there_yet(
    controller: PlayedController, make_channel: ChannelMaker
) -> None:
    threading.Timer(0.3, controller.create).start()
    assert make_channel().assignment() is not None


def test_a_driver_whose_assignment_never_comes_says_so(make_channel: ChannelMaker) -> None:
    with pytest.raises(BackfillError, match=r"there is no SplitAssignment .*/b"):
        make_channel(timing=QUICK)
