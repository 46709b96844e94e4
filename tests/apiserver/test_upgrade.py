"""What was stored under earlier definitions is read, changed and deleted under today's."""

import yaml
from history import definitions_at, previous_commit
from resources import OWN, install
from rest import BACKFILLS, SPLIT_ASSIGNMENTS, Manifest, Rest
from samples import ASSIGNMENT, BACKFILL, STATUS, rich_backfill

from backfill.api.backfill import Backfill
from backfill.api.manifests.problems import read_json
from backfill.protocol.split_assignment import SplitAssignment
from manifests import changed
from waiting import eventually

REPORT = {"attempt": 2, "heartbeat": "2021-08-01T00:00:00Z", "phase": "Running", "executors": 3}
SAMPLES = {
    "little": BACKFILL,
    "rich": rich_backfill(),
    "suspended": changed(BACKFILL, {"spec.suspend": True}),
}


def test_what_was_stored_under_earlier_definitions_goes_on(own_server: Rest) -> None:
    install(own_server, definitions_at(previous_commit()))
    backfills, assignments = BACKFILLS.format("default"), SPLIT_ASSIGNMENTS.format("default")
    for name, sample in SAMPLES.items():
        own_server.create(backfills, changed(sample, {"metadata.name": name})).expect()
        own_server.patch(f"{backfills}/{name}/status", {"status": STATUS}).expect()
    own_server.create(assignments, ASSIGNMENT).expect()
    own_server.patch(f"{assignments}/july/status", {"status": REPORT}).expect()

    before = {
        path: own_server.get(path).expect()
        for path in (*(f"{backfills}/{name}" for name in SAMPLES), f"{assignments}/july")
    }
    install(own_server, [yaml.safe_load(path.read_text()) for path in OWN])

    for name in SAMPLES:
        _goes_on(own_server, f"{backfills}/{name}", before)
    report = read_json(SplitAssignment, own_server.get(f"{assignments}/july").expect())
    assert report.spec.released == 12
    own_server.patch(f"{assignments}/july", {"spec": {"released": 13}}).expect()
    own_server.patch(f"{assignments}/july/status", {"status": {"executors": 4}}).expect()


def _goes_on(server: Rest, path: str, before: dict[str, Manifest]) -> None:
    stored = server.get(path).expect()
    read = read_json(Backfill, stored)
    assert read.spec == read_json(Backfill, before[path]).spec
    assert read.status == read_json(Backfill, before[path]).status
    server.replace(path, stored).expect()
    server.patch(
        path, {"spec": {"suspend": not read.spec.suspend, "scaling": {"maxExecutors": 9}}}
    ).expect()
    server.patch(f"{path}/status", {"status": {"progress": {"committed": 13}}}).expect()
    server.delete(path).expect()
    eventually(lambda: server.get(path).status == 404, f"{path} is gone")
