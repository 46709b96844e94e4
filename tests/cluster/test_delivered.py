"""Rows for a sink of the application's own are delivered by another driver, once a person has
approved them, and by the next one where that is killed.
"""

import json
from collections import Counter
from collections.abc import Callable

import pytest
from live_cluster import until
from replays import Replay
from teams import PROGRAM, production

pytestmark = pytest.mark.timeout(1800)
APPLICATION = "telling"
TELLS = '''
import json
import time


def tell(batch: DataFrame, number: int) -> None:
    """Writes the rows of a batch into a file. The second call does not end."""
    rows = [
        [int(row.window_start.timestamp()), row.title, row.plays, row.watched]
        for row in batch.collect()
    ]
    with open("PLACE/told", "a") as file:
        print(json.dumps([number, rows]), file=file)
    with open("PLACE/told") as file:
        second = sum(1 for _ in file) == 2
    while second:  # until it is killed
        time.sleep(0.2)


summary.writeStream.foreachBatch(tell).start().awaitTermination()
'''


def test_another_driver_delivers_what_was_approved(replay: Callable[..., Replay]) -> None:
    telling = replay("telling")
    team, storage = telling.team, telling.team.storage
    assert storage.directory is not None
    place = storage.directory / "told"
    place.mkdir()
    place.chmod(0o777)
    program = PROGRAM.read_text().partition("query = (")[0] + TELLS.replace("PLACE", str(place))
    application = production(storage)
    application["metadata"]["name"] = APPLICATION
    application["spec"]["volumes"][0]["configMap"] = {"name": APPLICATION}
    config_map = {"metadata": {"name": APPLICATION}, "data": {"main.py": program}}
    team.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map}, application)
    output = {"name": "tell", "table": "lake.staged.tell", "timestampColumn": "window_start"}
    telling.begin(
        applicationRef={"name": APPLICATION},
        outputs=[{**output, "publish": {"mode": "Deliver"}}],
    )

    def told() -> list[tuple[int, list[list[int]]]]:
        file = place / "told"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    waits = telling.until("waits for approval", "WaitingForApproval", "Published")
    assert "which cannot be undone" in waits["message"]
    assert not told()
    telling.approve()
    until(lambda: len(told()) == 2, "two batches are told")
    (driver,) = telling.drivers
    team.cluster.kill_pod(driver)
    ended = telling.until_ended(attempts=3)

    numbers = [number for number, _ in told()]
    assert sorted(numbers) == numbers
    assert [number for number, calls in Counter(numbers).items() if calls > 1] == numbers[1:2]
    rows = {tuple(row) for _, rows in told() for row in rows}
    right = set(telling.summary.fixed) - set(telling.summary.wrong)
    assert rows == {(int(began.timestamp()), *others) for began, *others in right}
    (delivery,) = (each["delivery"] for each in ended["status"]["outputs"])
    assert delivery["delivered"] == delivery["batches"] == len(set(numbers))
    telling.delete()
    until(lambda: telling.gone, "it is gone")
    assert not telling.summary.catalog.table_exists("staged.tell")
