# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: values, their schema and the templates agree; with a helm, it lints and renders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.peers.built_program import NoProgramError, go_program
from dev.peers.routelake import ROOT

CHART = ROOT / "deploy" / "helm" / "routelake"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
HELM, HELM_VERSION = "helm.sh/helm/v3/cmd/helm", "3.19.0"
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


def test_readiness_asks_for_routes_alone() -> None:
    """/readyz?strict or the fold's health would take all gateways away at once."""
    paths = set(re.findall(r"path: (/\w[\w/?]*), port", TEMPLATES["nameserver.yaml"]))
    assert paths == {"/healthz", "/readyz"}
    assert "Probe:" not in TEMPLATES["fold.yaml"]


LEAST = ["--set", "eventLog=kafka://kafka:9092/events", "--set", "insecure=true"]

Template = Callable[..., subprocess.CompletedProcess[str]]


pytestmark = pytest.mark.timeout(1_800)  # the first test of a deep run may build helm


@pytest.fixture(scope="session")
def helm(is_deep: bool) -> Path:
    """The one of this machine; else the one that a deep run has built, as this one may."""
    found = shutil.which("helm")
    try:
        return Path(found) if found else go_program(HELM, HELM_VERSION, build=is_deep)
    except NoProgramError as error:
        pytest.skip(f"helm is not here: {error}")


@pytest.fixture
def template(helm: Path) -> Template:
    """For a cluster of its least version: a helm that `go install` built takes a cluster for an older one."""

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [str(helm), "template", "rl", str(CHART), "--kube-version", "1.25.0", *options]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def said(options: Iterable[str]) -> list[str]:
    return [part for option in options for part in ("--set", option)]


def rendered(template: Template, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = template(*LEAST, *options)
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


def test_it_lints(helm: Path) -> None:
    done = subprocess.run([str(helm), "lint", "--strict", str(CHART), *LEAST], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_default_values_give_two_gateways_and_one_fold(template: Template) -> None:
    found = rendered(template)
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
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    assert mounts["lake"] == {"name": "lake", "mountPath": "/lake", "readOnly": True}, "the fold alone writes to it"
    assert environment["ROUTELAKE_LAKE"] == "/lake/lake"
    assert {"name": "data", "emptyDir": {}} in gateways["template"]["spec"]["volumes"]
    assert ("PersistentVolumeClaim", "rl-routelake-lake") in found


@pytest.mark.parametrize(
    "release",
    ["rl", "routelake", "production-eu-west-1-cluster-of-orders", "production-eu-west-1-cluster-of-orders-routelake"],
)
def test_every_object_has_the_product_in_its_name(release: str, helm: Path) -> None:
    """The operator names the job after the Service, and the alerts choose jobs with `routelake` in their names."""
    command = [str(helm), "template", release, str(CHART), "--kube-version", "1.25.0", *LEAST]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for document in yaml.safe_load_all(done.stdout):
        name = document["metadata"]["name"]
        assert "routelake" in name and len(name) <= 63, name


EVERYTHING = [
    *("auth.existingSecret=accounts", "tls.existingSecret=tls", "tls.mode=enforcing", "nameserver.workers=2"),
    *("metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true", "auth.mode=audit"),
    *("eventLogConfig.existingSecret=kafka", "metrics.serviceMonitor.tlsConfig.serverName=ns"),
]


def test_network_policies_admit_only_the_configured_clients(template: Template) -> None:
    found = rendered(template, "--set", "networkPolicy.from[0].namespaceSelector.matchLabels.brokers=yes")
    gateways = found["NetworkPolicy", "rl-routelake-nameserver"]["spec"]
    assert [port["port"] for port in gateways["ingress"][0]["ports"]] == [9876, 8080]
    assert gateways["ingress"][0]["from"] == [{"namespaceSelector": {"matchLabels": {"brokers": "yes"}}}]
    assert "ingress" not in found["NetworkPolicy", "rl-routelake-fold"]["spec"], "nobody"
    for kind, name in (("StatefulSet", "nameserver"), ("Deployment", "fold")):
        labels = found[kind, f"rl-routelake-{name}"]["spec"]["template"]["metadata"]["labels"]
        chosen = found["NetworkPolicy", f"rl-routelake-{name}"]["spec"]["podSelector"]["matchLabels"]
        assert chosen.items() <= labels.items()
    assert "NetworkPolicy" not in {kind for kind, _ in rendered(template, *said(["networkPolicy.enabled=false"]))}
    cluster = rendered(template, *said([*CLUSTER, "fold.cluster.master=spark://spark:7077"]))
    assert ("NetworkPolicy", "rl-routelake-fold") not in cluster, "executors outside of Kubernetes reach its driver"
    cluster = rendered(template, *said([*CLUSTER, "fold.cluster.master=k8s://https://kubernetes.default.svc"]))
    (admitted,) = cluster["NetworkPolicy", "rl-routelake-fold"]["spec"]["ingress"][0]["from"]
    assert admitted["podSelector"]["matchLabels"] == {"spark-role": "executor"}


def test_images_by_digest(template: Template) -> None:
    digest = f"sha256:{'0' * 64}"
    found = rendered(template, *said([f"nameserver.image.digest={digest}", f"fold.image.digest={digest}"]))
    for kind, name in (("StatefulSet", "nameserver"), ("Deployment", "fold")):
        (container,) = found[kind, f"rl-routelake-{name}"]["spec"]["template"]["spec"]["containers"]
        assert container["image"].endswith(f"@{digest}")


def test_runbook_addresses_are_a_value(template: Template) -> None:
    pattern = "https://docs.example.com/%s"
    options = ["metrics.prometheusRule.enabled=true", f"metrics.prometheusRule.runbookUrlPattern={pattern}"]
    groups = rendered(template, *said(options))["PrometheusRule", "rl-routelake"]["spec"]["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(rules) > 15
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == pattern.replace("%s", rule["alert"])


def test_everything_switched_on(template: Template) -> None:
    found = rendered(template, *said(EVERYTHING))
    assert {kind for kind, _ in found} >= {"ServiceMonitor", "PrometheusRule", "PodDisruptionBudget"}
    (container,) = found["StatefulSet", "rl-routelake-nameserver"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    for place in (("StatefulSet", "rl-routelake-nameserver"), ("Deployment", "rl-routelake-fold")):
        spec = found[place]["spec"]["template"]["spec"]
        (config,) = (
            entry["value"] for entry in spec["containers"][0]["env"] if entry["name"] == "ROUTELAKE_EVENT_LOG_CONFIG"
        )
        (mount,) = (one["mountPath"] for one in spec["containers"][0]["volumeMounts"] if one["name"] == "kafka")
        assert config == f"{mount}/client.properties"
        assert {"secretName": "kafka", "defaultMode": 0o440} in [one.get("secret") for one in spec["volumes"]]


MONITOR = ["metrics.serviceMonitor.enabled=true"]
ACCOUNTS = ["auth.existingSecret=accounts", "tls.plaintext=true"]
TLS_CONFIG = "metrics.serviceMonitor.tlsConfig"
TOKEN = "metrics.serviceMonitor.tokenSecret.name=scraper"


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        (MONITOR, {}),
        (
            [*MONITOR, *ACCOUNTS, TOKEN],
            {"authorization": {"credentials": {"name": "scraper", "key": "token"}}},
        ),
        ([*MONITOR, *ACCOUNTS, "auth.mode=enforce-writes"], {}),
        ([*MONITOR, "tls.existingSecret=tls"], {}),
        (  # a gateway with a certificate takes a token over TLS only
            [*MONITOR, ACCOUNTS[0], "tls.existingSecret=tls", TOKEN, f"{TLS_CONFIG}.serverName=ns"],
            {
                "scheme": "https",
                "tlsConfig": {"serverName": "ns"},
                "authorization": {"credentials": {"name": "scraper", "key": "token"}},
            },
        ),
        (
            [
                *MONITOR,
                "tls.existingSecret=tls",
                "tls.mode=enforcing",
                f"{TLS_CONFIG}.serverName=ns",
            ],
            {"scheme": "https", "tlsConfig": {"serverName": "ns"}},
        ),
    ],
)
def test_a_service_monitor_has_the_endpoint_of_its_tls_settings(
    options: list[str], endpoint: dict[str, Any], template: Template
) -> None:
    found = rendered(template, *said(options))["ServiceMonitor", "rl-routelake"]["spec"]["endpoints"]
    assert found == [{"port": "http", "path": "/metrics", "interval": "15s", **endpoint}]


CLUSTER = ["fold.cluster.existingSecret=spark", "fold.cluster.sharedClaim=routes-shared"]


@pytest.mark.parametrize("master", ["spark://spark:7077", "k8s://https://kubernetes.default.svc"])
def test_executors_on_a_cluster(master: str, template: Template) -> None:
    options = [*CLUSTER, f"fold.cluster.master={master}"]
    found = rendered(template, *said(options))
    pod = found["Deployment", "rl-routelake-fold"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["ROUTELAKE_MASTER"] == master
    assert "ROUTELAKE_SHARDS" not in environment, "it takes two for each core that there is"
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts["shared"] == environment["ROUTELAKE_SHARED_DIR"]
    assert environment["ROUTELAKE_SPARK_CONFIG"] == f"{mounts['spark']}/spark.properties"
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert volumes["shared"]["persistentVolumeClaim"] == {"claimName": "routes-shared"}
    assert volumes["spark"]["secret"]["secretName"] == "spark"
    if master.startswith("spark"):
        assert pod["automountServiceAccountToken"] is False
        assert not {kind for kind, _ in found} & {"ServiceAccount", "Role", "RoleBinding"}
    else:
        assert "automountServiceAccountToken" not in pod
        account = found["ServiceAccount", pod["serviceAccountName"]]["metadata"]["name"]
        binding = found["RoleBinding", account]
        assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("ServiceAccount", account)]
        (rule,) = found["Role", binding["roleRef"]["name"]]["rules"]
        assert {"pods", "services", "configmaps"} <= set(rule["resources"])
        assert {"create", "list", "watch", "delete"} <= set(rule["verbs"])


def test_without_a_spark_cluster_the_fold_has_no_settings_of_one(template: Template) -> None:
    found = rendered(template)
    pod = found["Deployment", "rl-routelake-fold"]["spec"]["template"]["spec"]
    names = {entry["name"] for entry in pod["containers"][0]["env"]}
    assert not names & {"ROUTELAKE_MASTER", "ROUTELAKE_SHARED_DIR", "ROUTELAKE_SPARK_CONFIG", "ROUTELAKE_SHARDS"}
    assert [volume["name"] for volume in pod["volumes"]] == ["data", "tmp"]


STORE = ["lake.url=s3://lake/routes", "lake.existingSecret=store", "fold.replicaCount=2"]


def test_an_object_store_needs_no_claim(template: Template) -> None:
    assert (
        rendered(template, *said([*STORE, "nameserver.persistence.enabled=false"])).keys()
        == rendered(template, *said(STORE)).keys()
    )


def test_tables_in_an_object_store(template: Template) -> None:
    """No pod has anything of another's, and a second fold waits for the end of the first."""
    found = rendered(template, *said(STORE))
    assert "PersistentVolumeClaim" not in {kind for kind, _ in found}
    folds = found["Deployment", "rl-routelake-fold"]["spec"]
    assert folds["replicas"] == 2
    assert "strategy" not in folds
    for spec in (folds, found["StatefulSet", "rl-routelake-nameserver"]["spec"]):
        (container,) = spec["template"]["spec"]["containers"]
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert environment["ROUTELAKE_LAKE"] == "s3://lake/routes"
        assert environment.get("ROUTELAKE_STANDBY") == ("true" if spec is folds else None)
        assert container["envFrom"] == [{"secretRef": {"name": "store"}}]
        assert {"name": "data", "emptyDir": {}} in spec["template"]["spec"]["volumes"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "insecure=true"], "name the event log"),
        (["--set", "eventLog=kafka://kafka:9092/events"], "no accounts"),
        (
            ["--set", "eventLog=kafka://kafka:9092/events", *said(ACCOUNTS), "--set", "auth.mode=audit"],
            "refuses nothing",
        ),
        ([*LEAST, "--set", "nameserver.replicas=3"], "replicas"),
        ([*LEAST, "--set", "eventLog=sqlite:///data/events.db"], "eventLog"),
        ([*LEAST, "--set", "nameserver.replicaCount=0"], "replicaCount"),
        ([*LEAST, "--set", "lake.url=/data/lake"], "url"),
        ([*LEAST, "--set", "fold.replicaCount=2"], "needs lake.url"),
        ([*LEAST, "--set", "nameserver.persistence.enabled=false"], "tables of its own"),
        ([*LEAST, "--set", "auth.existingSecret=accounts"], "accounts without TLS"),
        ([*LEAST, "--set", "fold.image.digest=latest"], "digest"),
        ([*LEAST, *said(ACCOUNTS), "--set", MONITOR[0]], "needs a reader's token"),
        ([*LEAST, *said([*MONITOR, ACCOUNTS[0], "tls.existingSecret=tls", TOKEN])], "set ca and serverName"),
        ([*LEAST, "--set", "fold.cluster.master=yarn"], "master"),
        ([*LEAST, "--set", "fold.cluster.master=spark://s:7077"], "existingSecret"),
        ([*LEAST, "--set", f"fold.cluster.master=spark://s:7077,{CLUSTER[0]}"], "sharedClaim"),
    ],
)
def test_wrong_values_are_refused_with_the_reason(options: list[str], why: str, template: Template) -> None:
    done = template(*options)
    assert done.returncode != 0 and why in done.stderr, done.stderr


OWN = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator."""


@pytest.mark.deep
def test_kubernetes_own_types_know_every_key(template: Template, tmp_path: Path) -> None:
    """As an API server takes them, strictly: types of k8s.io/api, built by pinned digests."""
    if shutil.which("go") is None:
        pytest.skip("no `go` on the PATH")
    folder, program = Path(__file__).parent / "kubernetes_types", tmp_path / "kubernetes_types"
    listed = subprocess.run(["go", "list", "-mod=readonly", "-deps", "."], cwd=folder, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"Kubernetes' types cannot be had: {listed.stderr.strip()[-300:]}")
    command = ["go", "build", "-mod=readonly", "-o", str(program), "."]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr

    def known(documents: Iterable[dict[str, Any]]) -> tuple[int, str]:
        text = "\n---\n".join(yaml.safe_dump(document) for document in documents)
        done = subprocess.run([str(program)], input=text, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    for options in ([], EVERYTHING, STORE, [*CLUSTER, "fold.cluster.master=k8s://https://kubernetes.default.svc"]):
        found = [one for (kind, _), one in rendered(template, *said(options)).items() if kind not in OWN]
        code, words = known(found)
        assert code == 0 and len(words.splitlines()) == len(found), words
    found[0]["metadata"]["label"] = {}  # which it would not say of everything
    code, words = known(found)
    assert code == 1 and "label" in words, words
