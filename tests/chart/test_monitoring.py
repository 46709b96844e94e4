"""Alerts and the dashboard speak of metrics that there are, and of runbooks that there are."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backfill.api.conditions import Reason
from backfill.api.status import Attempt
from backfill.controller.jobs.any_job import JobUsage
from backfill.controller.manager.metrics import Metrics, state_of
from helm_chart import CHART, MONITORED, one, rendered

RUNBOOKS = CHART.parents[1] / "docs" / "troubleshooting.md"
OF_A_TARGET = {"pod"}
"""Labels that Prometheus adds."""
OF_BACKFILLS = {"namespace", "name"}


def alerts() -> list[dict[str, Any]]:
    rules = one(rendered({"metrics": MONITORED}), "PrometheusRule")
    return [alert for group in rules["spec"]["groups"] for alert in group["rules"]]


def dashboard() -> dict[str, Any]:
    return dict(
        json.loads(one(rendered({"metrics": MONITORED}), "ConfigMap")["data"]["backfills.json"])
    )


def expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in alerts())
    made = dashboard()
    yield from (target["expr"] for panel in made["panels"] for target in panel.get("targets", []))
    yield from (
        each["query"]["query"]
        for each in made["templating"]["list"]
        if isinstance(each["query"], dict)
    )


def exported() -> dict[str, set[str]]:
    """Every series there can be, with the names of its labels."""
    metrics = Metrics(lambda: ["Replaying"])
    metrics.turned("done", 0.1)
    metrics.requested("get", 200)
    metrics.used(JobUsage(("streaming", "july"), "plan", "Done", 0.1, 1.0, 1))
    series = dict.fromkeys(
        re.findall(
            r"^# TYPE (\S+) gauge$", generate_latest(metrics.registry).decode(), re.MULTILINE
        ),
        OF_BACKFILLS,
    )
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            series[sample.name] = set(sample.labels)
    return series | {"backfill_attempts_total": {"outcome"}}


def test_every_series_that_is_asked_for_is_there() -> None:
    known = exported()
    asked = {
        name for expression in expressions() for name in re.findall(r"\bbackfill_\w+", expression)
    }
    assert asked - known.keys() == set()
    assert len(asked) > 15


def test_every_label_that_is_asked_for_is_there() -> None:
    known = exported()
    for expression in expressions():
        series = set(re.findall(r"\bbackfill_\w+", expression))
        labels = set().union(*(known[each] for each in series))
        named = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', expression)
        named += [
            label
            for group in re.findall(r"\bby \(([^)]*)\)", expression)
            for label in re.split(r",\s*", group)
        ]
        assert set(named) <= labels | OF_A_TARGET, expression


def test_every_value_of_a_label_that_is_asked_for_can_be() -> None:
    outcomes = set(Attempt.model_fields["outcome"].annotation.__args__)  # type: ignore[union-attr]
    known = {
        "state": {"Failed", *(reason.value for reason in Reason)},
        "outcome": outcomes | {"Done"},
        "result": {"failed"},
        "code": {"0|429|5.."},
    }
    for alert in alerts():
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', alert["expr"]):
            assert value in known[label], alert["alert"]


@pytest.mark.parametrize("state", ["Failed", "WaitingForApproval"])
def test_backfills_are_counted_in_the_states_that_alerts_ask_for(state: str) -> None:
    failed = [{"type": "Succeeded", "status": "False", "reason": "AttemptsExhausted"}]
    waits = [{"type": "Published", "status": "Unknown", "reason": "WaitingForApproval"}]
    conditions = {"Failed": failed, "WaitingForApproval": waits}[state]
    assert state_of({"metadata": {}, "status": {"conditions": conditions}}) == state


def test_every_alert_links_to_a_runbook_that_is_there() -> None:
    headings = re.findall(r"^### (Backfill\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    for alert in alerts():
        address, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert address == "https://backfill.dev/docs/troubleshooting"
        assert anchor == alert["alert"].lower()
    assert headings == [alert["alert"] for alert in alerts()]


def test_every_alert_says_what_is_wrong_and_how_bad() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert alert["annotations"]["summary"] and alert["annotations"]["description"]


def test_a_runbook_link_leads_where_the_values_say() -> None:
    given = {"enabled": True, "runbooks": "https://wiki.example.com/runbooks"}
    rules = one(rendered({"metrics": {"prometheusRule": given}}), "PrometheusRule")
    assert "RUNBOOKS" not in json.dumps(rules)
    first = rules["spec"]["groups"][0]["rules"][0]
    assert (
        first["annotations"]["runbook_url"]
        == "https://wiki.example.com/runbooks#backfilloperatorabsent"
    )


def test_what_is_no_time_is_not_shown_in_seconds() -> None:
    for panel in dashboard()["panels"]:
        timed = panel.get("fieldConfig", {}).get("defaults", {}).get("unit") == "s"
        others = [
            target["legendFormat"]
            for target in panel.get("targets", [])
            if "_seconds" not in target["expr"]
        ]
        overridden = {
            override["matcher"]["options"]
            for override in panel.get("fieldConfig", {}).get("overrides", [])
            for given in override["properties"]
            if given["id"] == "unit" and given["value"] != "s"
        }
        assert not timed or set(others) == overridden, panel["title"]


def test_panels_do_not_overlap_and_have_different_ids() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_nothing_is_made_of_monitoring_unless_it_is_asked_for() -> None:
    kinds = {each["kind"] for each in rendered({})}
    assert not kinds & {"ServiceMonitor", "PrometheusRule", "ConfigMap"}


def test_series_keep_the_namespace_of_their_backfill() -> None:
    endpoint = one(rendered({"metrics": MONITORED}), "ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["honorLabels"] is True
    assert (
        yaml.safe_load((CHART / "values.yaml").read_text())["metrics"]["serviceMonitor"]["interval"]
        == endpoint["interval"]
    )
