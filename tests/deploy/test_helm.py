# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: values, their schema and the templates agree; with a helm, it lints and renders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from peers.routelake import ROOT

CHART = ROOT / "deploy" / "helm" / "routelake"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
TYPES: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def both(schema: dict[str, Any], value: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Every key of the values with its schema, outermost first."""
    yield where, schema, value
    for name, inner in schema.get("properties", {}).items():
        if (where, name) != ("", "global"):
            yield from both(inner, value[name], f"{where}.{name}".lstrip("."))


def test_every_value_is_described_and_of_its_type() -> None:
    for where, schema, value in both(SCHEMA, VALUES):
        assert isinstance(value, TYPES[schema["type"]]), where
        if "properties" in schema:
            assert schema["additionalProperties"] is False, f"{where}: a misspelt key would be ignored"
            assert set(schema["properties"]) - ({"global"} if not where else set()) == set(value), where
        if where:
            assert schema["description"], where
        if "enum" in schema:
            assert value in schema["enum"], where
        if "pattern" in schema:
            assert re.search(schema["pattern"], value), where


def test_the_keys_that_people_know() -> None:
    """Of rocketmq-docker's rocketmq-k8s-helm."""
    assert set(VALUES["nameserver"]) >= {"replicaCount", "image", "port", "heapSize", "persistence", "service"}
    assert set(VALUES["nameserver"]["service"]) == {"type", "servicePort", "enableDraining", "drainTimeout"}
    assert VALUES["nameserver"]["port"] == 9876


def test_templates_ask_for_values_that_are_there_and_for_all_of_them() -> None:
    asked = {name for text in TEMPLATES.values() for name in re.findall(r"\.Values\.([\w.]+)", text)}
    known = {where for where, _, _ in both(SCHEMA, VALUES) if where}
    assert not asked - known
    leaves = {where for where, schema, _ in both(SCHEMA, VALUES) if where and "properties" not in schema}
    assert leaves - asked == {"nameserver.heapSize"}, "a value without an effect"


def test_the_version_is_the_products() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("name", ["alerts.yaml", "rules.yaml"])
def test_the_rules_are_the_mixins(name: str) -> None:
    """A chart reads no file outside of its folder."""
    assert (CHART / "files" / name).read_text() == (ROOT / "deploy" / "mixin" / name).read_text()


def test_readiness_asks_for_routes_alone() -> None:
    """/readyz?strict or the fold's health would take all gateways away at once."""
    paths = set(re.findall(r"path: (/\w[\w/?]*), port", TEMPLATES["nameserver.yaml"]))
    assert paths == {"/healthz", "/readyz"}
    assert "Probe:" not in TEMPLATES["fold.yaml"]


HELM = shutil.which("helm")
LEAST = ["--set", "log=kafka://kafka:9092/events", "--set", "insecure=true"]
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not here")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True)


def template(*options: str) -> subprocess.CompletedProcess[str]:
    """For a cluster of its least version: a helm that `go install` built takes a cluster for an older one."""
    return helm("template", "rl", str(CHART), "--kube-version", "1.25.0", *options)


def rendered(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = template(*LEAST, *options)
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


@needs_helm
def test_it_lints() -> None:
    done = helm("lint", "--strict", str(CHART), *LEAST)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_defaults() -> None:
    found = rendered()
    gateways = found["StatefulSet", "rl-routelake-nameserver"]["spec"]
    assert gateways["replicas"] == 2
    assert found["Deployment", "rl-routelake-fold"]["spec"]["strategy"] == {"type": "Recreate"}
    assert found["Service", "rl-routelake-nameserver-headless"]["spec"]["clusterIP"] == "None"
    (container,) = gateways["template"]["spec"]["containers"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["ROUTELAKE_GATEWAY_ID"].endswith(".rl-routelake-nameserver-headless.$(POD_NAMESPACE).svc:9876")
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for spec in (gateways, found["Deployment", "rl-routelake-fold"]["spec"])
        for volume in spec["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {"rl-routelake-lake"}
    assert ("PersistentVolumeClaim", "rl-routelake-lake") in found


@needs_helm
def test_everything_switched_on() -> None:
    options = ["auth.existingSecret=accounts", "tls.existingSecret=tls", "tls.mode=enforcing", "nameserver.workers=2"]
    options += ["metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true", "auth.mode=log"]
    options += ["logConfig.existingSecret=kafka"]
    found = rendered(*(part for option in options for part in ("--set", option)))
    assert {kind for kind, _ in found} >= {"ServiceMonitor", "PrometheusRule", "PodDisruptionBudget"}
    (container,) = found["StatefulSet", "rl-routelake-nameserver"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    for place in (("StatefulSet", "rl-routelake-nameserver"), ("Deployment", "rl-routelake-fold")):
        spec = found[place]["spec"]["template"]["spec"]
        (config,) = (
            entry["value"] for entry in spec["containers"][0]["env"] if entry["name"] == "ROUTELAKE_LOG_CONFIG"
        )
        (mount,) = (one["mountPath"] for one in spec["containers"][0]["volumeMounts"] if one["name"] == "kafka")
        assert config == f"{mount}/client.properties"
        assert {"secretName": "kafka", "defaultMode": 0o440} in [one.get("secret") for one in spec["volumes"]]


@needs_helm
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "insecure=true"], "name the event log"),
        (["--set", "log=kafka://kafka:9092/events"], "name accounts"),
        ([*LEAST, "--set", "nameserver.replicas=3"], "replicas"),
        ([*LEAST, "--set", "log=sqlite:///data/events.db"], "log"),
        ([*LEAST, "--set", "nameserver.replicaCount=0"], "replicaCount"),
    ],
)
def test_what_is_refused(options: list[str], why: str) -> None:
    done = template(*options)
    assert done.returncode != 0 and why in done.stderr, done.stderr
