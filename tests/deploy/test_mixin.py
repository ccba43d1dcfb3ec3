# SPDX-License-Identifier: Apache-2.0
"""Alerts, rules and dashboard use metrics that exist, and each alert has its page in docs/how-to/operate/alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.gateway.metrics import Metrics
from dev.peers.routelake import ROOT
from dev.support.certificates import Authority
from dev.support.http_api import HttpApi, broker
from dev.support.loops import until
from schemas.tls import TlsMode
from security.tls_config import TlsSettings
from security.tls_rotation import Tls

MIXIN = ROOT / "deploy" / "mixin"
ALERTS = [rule for group in yaml.safe_load((MIXIN / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
RULES = [rule for group in yaml.safe_load((MIXIN / "rules.yaml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((MIXIN / "dashboards" / "routelake.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [
    *(rule["expr"] for rule in ALERTS + RULES),
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"),
]
METRIC = re.compile(r"\b(?:rocketmq|routelake)_\w+\b")
SELECTOR = re.compile(r"\b((?:rocketmq|routelake)_\w+)\{([^}]*)\}")
OF_PROMETHEUS = {"job", "instance"}
PATTERN = "https://routelake.example/docs/how-to/operate/alerts/%s.html"
"""Address of an alert's page, in a domain that cannot be registered (RFC 2606)."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """{sample name: its labels}, as a gateway with a broker and a certificate has them."""
    folder = tmp_path_factory.mktemp("metrics")
    api = HttpApi(folder / "lake", self_preservation_percent=15, preservation_interval_s=0.05)
    try:
        assert api.register(broker()).status_code == 200
        assert api.get("/v1/topics/orders/route").status_code in (200, 404)
        until(lambda: b"routelake_silent_brokers" in api.get("/metrics").content)
        pair = Authority(folder).issue()
        more = Metrics()
        more.follow_tls(Tls(TlsSettings(TlsMode.PERMISSIVE, pair.cert, pair.key)))
        more.follow_wal(lambda: 0)
        more.security.labels("protocol-error").inc()
        more.requests.labels("remoting", "GET_ROUTEINFO_BY_TOPIC", "1").inc()
        found: dict[str, set[str]] = {}
        for text in (api.get("/metrics").text, more.text().decode()):
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    found.setdefault(sample.name, set()).update(sample.labels)
        yield found
    finally:
        api.close()


def test_every_metric_that_is_asked_for_is_there(samples: dict[str, set[str]]) -> None:
    recorded = {name for rule in RULES for name in METRIC.findall(rule["record"])}
    wanted = {name for text in EXPRESSIONS for name in METRIC.findall(text)} - recorded
    assert len(wanted) > 20
    assert not wanted - samples.keys()


def test_every_label_that_is_chosen_by_is_there(samples: dict[str, set[str]]) -> None:
    for text in EXPRESSIONS:
        for name, chosen in SELECTOR.findall(text):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen)) - OF_PROMETHEUS
            assert labels <= samples[name], (name, labels)


def test_every_alert_has_its_page() -> None:
    pages = ROOT / "docs" / "how-to" / "operate" / "alerts"
    assert {page.stem for page in pages.glob("*.md")} == {"index"} | {rule["alert"] for rule in ALERTS}
    for rule in ALERTS:
        assert (pages / f"{rule['alert']}.md").read_text(encoding="utf-8").startswith(f"# {rule['alert']}\n\n")
        assert rule["annotations"]["runbook_url"] == PATTERN.replace("%s", rule["alert"])


def test_the_mixin_and_the_chart_have_the_address_of_the_pages_as_a_value() -> None:
    assert f"runbookURLPattern: '{PATTERN}'" in (MIXIN / "mixin.libsonnet").read_text()
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "routelake" / "values.yaml").read_text())
    assert values["metrics"]["prometheusRule"]["runbookUrlPattern"] == PATTERN


def test_alerts_say_what_is_wrong_and_how_badly() -> None:
    for rule in ALERTS:
        assert rule["alert"].startswith("Routelake")
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        summary = rule["annotations"]["summary"]
        assert summary.endswith((".", "why.", "defect."))
        kept = set(re.findall(r"by \(([^)]*)\)", rule["expr"])) or {"job, instance"}
        for names in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            assert {"instance", "namespace"} & set(names.split(", ")), "or two installations would be one"
        for label in re.findall(r"\$labels\.(\w+)", summary):
            assert any(label in names.split(", ") for names in kept), (rule["alert"], label)


def test_the_dashboard() -> None:
    assert DASHBOARD["uid"] == "routelake-overview"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    (datasource, *_) = DASHBOARD["templating"]["list"]
    assert (datasource["name"], datasource["type"]) == ("datasource", "datasource")
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}"
            assert 'job=~"$job"' in target["expr"] and 'instance=~"$instance"' in target["expr"]


def test_the_mixin_imports_what_is_there() -> None:
    text = (MIXIN / "mixin.libsonnet").read_text()
    imported = re.findall(r"\bimport(?:str)? '([^']+)'", text)
    assert sorted(imported) == ["alerts.yaml", "dashboards/routelake.json", "rules.yaml"]
    assert all((MIXIN / name).is_file() for name in imported)
    assert {"_config", "grafanaDashboards", "prometheusAlerts", "prometheusRules"} <= set(
        re.findall(r"^  (\w+)\+::", text, re.MULTILINE)
    )


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Debian's package prometheus, is not here")
@pytest.mark.parametrize("name", ["alerts.yaml", "rules.yaml"])
def test_promtool_takes_them(name: str) -> None:
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(MIXIN / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Debian's package prometheus, is not here")
def test_alerts_fire(tmp_path: Path) -> None:
    """Series as a scrape every 15 s leaves them: what fires, and when."""
    given: list[dict[str, Any]] = [
        _fires("RoutelakeEventLogFailing", 'routelake_event_log_failing{job="routelake",instance="a"}', "1+0x20", "2m"),
        _fires(
            "RoutelakeEventLogFailing",
            'routelake_event_log_failing{job="routelake",instance="a",worker="2"}',
            "1+0x20",
            "2m",
        ),
        _fires(
            "RoutelakeEventTimeAhead",
            'routelake_event_time_ahead_seconds{job="routelake",instance="a"}',
            "300+0x20",
            "2m",
        ),
        _fires(
            "RoutelakeRoutesStale", 'rocketmq_namesrv_route_freshness{job="routelake",instance="a"}', "0+15x20", "5m"
        ),
        _fires(
            "RoutelakeEventLogWalGrows",
            'routelake_event_log_wal_bytes{job="routelake",instance="a"}',
            "300000000+0x40",
            "6m",
        ),
        _fires("RoutelakeNoGateway", "unrelated", "1+0x20", "2m", labels={}),
        _fires("RoutelakeNoGateway", 'up{job="routelake",instance="a"}', "0+0x20", "2m", labels={"job": "routelake"}),
        _fires("RoutelakeGatewayDown", 'up{job="routelake",instance="a"}', "0+0x20", "2m"),
        _fires("RoutelakeConnectionsNearLimit", _connections(2), "8500+0x40", "6m"),
        _silent("RoutelakeConnectionsNearLimit", {_connections(1): "7000+0x40", _connections(2): "7000+0x40"}, "6m"),
    ]
    check_rules(given, tmp_path)


def check_rules(tests: list[dict[str, Any]], folder: Path) -> None:
    """Run promtool's unit tests on the alerts."""
    file = folder / "tests.yaml"
    file.write_text(
        json.dumps({"rule_files": [str(MIXIN / "alerts.yaml")], "evaluation_interval": "15s", "tests": tests})
    )
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


INSTALLATIONS = ['namespace="a",job="rl-routelake"', 'namespace="b",job="rl-routelake"', 'job="routelake"']
"""Two releases of one name in two namespaces, and machines without Kubernetes."""


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Debian's package prometheus, is not here")
@pytest.mark.parametrize(
    ("alert", "metric", "bad", "good"),
    [
        ("RoutelakeNoGateway", "up", "0+0x20", "1+0x20"),
        ("RoutelakeFoldDown", "routelake_fold_status_age_seconds", "100+15x20", "1+0x20"),
        ("RoutelakeSelfPreservation", "routelake_self_preservation", "1+0x20", "0+0x20"),
    ],
)
@pytest.mark.parametrize("broken", INSTALLATIONS)
def test_an_alert_of_one_installation_is_not_hidden_by_another(
    alert: str, metric: str, bad: str, good: str, broken: str, tmp_path: Path
) -> None:
    series = []
    for number, one in enumerate(INSTALLATIONS):
        for instance in (1, 2):
            labels = f'{{{one},instance="{number}.{instance}"}}'
            series.append({"series": metric + labels, "values": bad if one == broken else good})
            is_up = one != broken or alert != "RoutelakeNoGateway"
            series.append({"series": "rocketmq_nameserver_up" + labels, "values": "1+0x20" if is_up else "_x20"})
    (rule,) = (rule for rule in ALERTS if rule["alert"] == alert)
    summary = rule["annotations"]["summary"].replace("{{ $value | humanizeDuration }}", "4m 40s")
    expected = {
        "exp_labels": {"severity": rule["labels"]["severity"], **dict(re.findall(r'(\w+)="([^"]+)"', broken))},
        "exp_annotations": {**rule["annotations"], "summary": summary},
    }
    test = {
        "interval": "15s",
        "input_series": series,
        "alert_rule_test": [{"eval_time": "3m", "alertname": alert, "exp_alerts": [expected]}],
    }
    check_rules([test], tmp_path)


def _fires(alert: str, series: str, values: str, at: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    (rule,) = (rule for rule in ALERTS if rule["alert"] == alert)
    named = {"job": "routelake", "instance": "a"} if labels is None else labels
    summary = rule["annotations"]["summary"].replace("{{ $labels.instance }}", "a")
    summary = summary.replace("{{ $value | humanizeDuration }}", "5m 0s").replace("{{ $value }}", values.split("+")[0])
    expected = {
        "exp_labels": {"severity": rule["labels"]["severity"], **named},
        "exp_annotations": {**rule["annotations"], "summary": summary},
    }
    return {
        "interval": "15s",
        "input_series": [{"series": series, "values": values}],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": [expected]}],
    }


def _silent(alert: str, series: dict[str, str], at: str) -> dict[str, Any]:
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": []}],
    }


def _connections(worker: int) -> str:
    """Each worker has a limit of its own."""
    labels = f'job="routelake",instance="a",worker="{worker}",listener="remoting"'
    return f"rocketmq_namesrv_active_connections{{{labels}}}"
