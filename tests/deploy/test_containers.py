# SPDX-License-Identifier: Apache-2.0
"""Container files, compose file and units name what is there: files, commands, options, ports."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cli.main import app
from dev.peers.routelake import ROOT
from dev.release.build import LOCKS

DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.glob("*.Containerfile"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())


def variables_of(command: str) -> set[str]:
    """Environment variables of a command's options."""
    click = typer.main.get_command(app)
    parameters = click.commands[command].params  # type: ignore[attr-defined]
    found: set[str] = set()
    for parameter in parameters:
        names = parameter.envvar or ()
        found |= {names} if isinstance(names, str) else set(names)
    return found


BESIDE = {"ROUTELAKE_CACHE", "ROUTELAKE_LOG_FORMAT", "ROUTELAKE_LOG_LEVEL"}


def ours(names: Any) -> set[str]:
    return {name for name in names if name.startswith("ROUTELAKE_")} - BESIDE


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_an_image_installs_the_wheel_of_a_release(file: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+)$", file.read_text(), re.MULTILINE)
    lock = "requirements-gateway.lock" if file.stem == "gateway" else "requirements.lock"
    assert copied == [f"{lock} routelake-*.whl ./"], "and no source"
    assert lock in LOCKS


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_an_image_runs_one_command_as_nobody_special(file: Path) -> None:
    text = file.read_text()
    command = file.stem.split(".")[0]
    assert re.findall(r"^(?:USER|ENTRYPOINT|CMD) (.+)$", text, re.MULTILINE) == [
        "9876",
        '["routelake"]',
        f'["{command}"]',
    ]
    assert ours(re.findall(r"\b(ROUTELAKE_\w+)=", text)) <= variables_of(command)
    assert not re.search(r"^ADD |curl|wget", text, re.MULTILINE), "nothing is fetched but by lock files"


def test_no_java_and_no_spark_in_the_gateway() -> None:
    packages = re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements-gateway.lock").read_text(), re.MULTILINE)
    assert not {"pyspark", "py4j", "delta-spark", "pandas", "numpy"} & set(packages)
    assert "jre" not in (DEPLOY / "gateway.Containerfile").read_text()


def test_compose_names_files_that_are_there_and_options_that_we_have() -> None:
    for name, service in COMPOSE["services"].items():
        assert "build" not in service, "docs/how-to/operate/containers.md builds the images, from the wheel"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).exists(), source
            else:
                assert source in COMPOSE["volumes"], source
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), (name, port)
        command = "fold" if name == "fold" else "gateway"
        assert ours(service.get("environment", {})) <= variables_of(command), name
        assert service["logging"]["options"] == {"max-size": "50m", "max-file": "5"}, "or logs grow for ever"


CLUSTER = yaml.safe_load((DEPLOY / "compose" / "cluster.yaml").read_text())


def test_a_cluster_is_laid_over_the_compose_file() -> None:
    services = CLUSTER["services"]
    fold = services["fold"]["environment"]
    assert set(fold) == {"ROUTELAKE_MASTER", "ROUTELAKE_SHARED_DIR", "ROUTELAKE_SPARK_CONFIG"} <= variables_of("fold")
    (config,) = services["fold"]["volumes"]
    assert config.split(":")[-2] == fold["ROUTELAKE_SPARK_CONFIG"]
    for name in ("spark-master", "spark-worker"):
        assert services[name]["image"] == COMPOSE["services"]["fold"]["image"]
        assert set(services[name]["volumes"]) == {*COMPOSE["services"]["fold"]["volumes"], config}, "of one checkpoint"
        assert services[name]["command"][services[name]["command"].index("--properties-file") + 1] in config
        assert services[name]["logging"]["options"] == {"max-size": "50m", "max-file": "5"}
        assert services[name]["tmpfs"] == ["/tmp:exec"], "a tmpfs is noexec, and executors load RocksDB from /tmp"
    assert services["spark-worker"]["command"][-1] in fold["ROUTELAKE_MASTER"]


def test_what_starts_a_master_finds_sparks_own_script(tmp_path: Path) -> None:
    service = CLUSTER["services"]["spark-master"]
    words = [word.replace("$$", "$") for word in service["entrypoint"]]  # as Compose reads it
    done = subprocess.run(
        [*words, service["command"][0], "--help"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: Master" in done.stderr + done.stdout


def test_two_gateways_are_scraped_under_their_own_ids() -> None:
    gateways = {name for name in COMPOSE["services"] if name.startswith("gateway")}
    assert len(gateways) == 2
    for name in gateways:
        assert COMPOSE["services"][name]["environment"]["ROUTELAKE_GATEWAY_ID"] == f"{name}:9876"
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    (config,) = scraped[0]["static_configs"]
    assert set(config["targets"]) == {f"{name}:8080" for name in gateways}


def unit(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(path)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_systemd_unit_starts_its_command_and_knows_its_variables(path: Path) -> None:
    service = unit(path)["Service"]
    command = path.stem.removeprefix("routelake-")
    assert service["ExecStart"].split()[-1] == command
    assert service["Type"] == "notify" and service["Restart"] == "always"
    assert service["StateDirectoryMode"] == "0700", "as --data-mode has it, or each start warns"
    assert service["RestartPreventExitStatus"] == "2", "who cannot start as things are would only say it again"
    assert ("MemoryDenyWriteExecute" in service) == (command == "gateway"), "a JVM compiles"
    settings = (path.parent / f"{command}.env").read_text()
    assert ours(re.findall(r"^(?:# )?(ROUTELAKE_\w+)=", settings, re.MULTILINE)) <= variables_of(command)


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_a_unit_and_finds_little_exposed(path: Path, tmp_path: Path) -> None:
    here = tmp_path / path.name
    here.write_text(path.read_text().replace("/opt/routelake/bin/routelake", "/bin/true"))
    taken = subprocess.run([str(ANALYZE), "verify", str(here)], capture_output=True, text=True)
    assert taken.returncode == 0 and path.name not in taken.stderr, taken.stderr
    command = [str(ANALYZE), "security", "--offline=true", "--threshold=20", str(here)]
    exposed = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in exposed.stderr:
        pytest.skip("systemd before 250")
    assert exposed.returncode == 0, exposed.stdout[-300:]
