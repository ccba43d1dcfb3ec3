# SPDX-License-Identifier: Apache-2.0
"""The release checklist."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import tarfile
from pathlib import Path

import cyclonedx.schema
import jsonschema_rs
import pytest
from packageurl import PackageURL

from dev.release import checklist
from dev.release.build import LOCKS, build
from dev.release.checklist import Step, main
from dev.release.components import INSTALLERS, JAR_SETS, ROOT, Component, check_license
from dev.support.command import command
from runtime.jars import LOCK_FILE, read_lock
from schemas.errors import SetupError


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "release-check.json"
    monkeypatch.setattr(checklist, "RECORD", path)
    return path


def test_all_steps_run_though_one_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    steps = (
        Step("first", lambda: None), Step("second", lambda: "it is wrong"), Step("third", lambda: None),
        Step("absent", lambda: "not reached", needs="no-such-program-here"),
    )  # fmt: skip
    monkeypatch.setattr(checklist, "STEPS", steps)
    assert main([]) == 1
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines() if line.startswith(("ok", "FAILED"))] == [
        "first", "second", "third",
    ]  # fmt: skip
    assert "it is wrong" in said and "skipped: absent (there is no no-such-program-here on this machine)" in said
    assert main(["third"]) == 0


def test_a_long_step_that_succeeded_runs_again_only_by_name_or_with_other_content(
    monkeypatch: pytest.MonkeyPatch, record: Path
) -> None:
    ran: list[str] = []

    def step(name: str, fault: str | None, *, short: bool = False) -> Step:
        def run() -> str | None:
            ran.append(name)
            return fault

        return Step(name, run, short=short)

    short, good, bad = step("short", None, short=True), step("good", None), step("bad", "it is wrong")
    content: list[str | None] = ["a"]
    monkeypatch.setattr(checklist, "STEPS", (short, good, bad))
    monkeypatch.setattr(checklist, "_content", lambda tests: content[0])

    def runs(*names: str) -> list[str]:
        ran.clear()
        assert main(names) == ("bad" in ran)
        return list(ran)

    assert runs() == ["short", "good", "bad"]
    assert runs() == ["short", "bad"]
    assert runs("good") == ["good"]
    monkeypatch.setattr(checklist, "STEPS", (short, good._replace(run=lambda: "now it is wrong"), bad))
    assert main(["good"]) == 1
    monkeypatch.setattr(checklist, "STEPS", (short, good, bad))
    assert runs() == ["short", "good", "bad"], "a failure takes back an earlier success"
    content[0] = "b"
    assert runs() == ["short", "good", "bad"]
    content[0] = None  # with changes that are not committed nothing is recorded
    written = record.read_text()
    assert runs() == runs() == ["short", "good", "bad"]
    assert record.read_text() == written


def test_the_content_is_all_files_but_texts_and_other_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a step that has succeeded counts after its figures were written down, and no longer after a change of code."""
    tests = ("tests/conftest.py", "tests/lake/")
    monkeypatch.setattr("dev.release.build.ROOT", tmp_path)

    def commit() -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        for words in (("add", "--all"), (*who, "commit", "--quiet", "-m", "a change")):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)

    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "reports").mkdir()
    (tmp_path / "code.py").write_text("1")
    commit()
    first = checklist._content(tests)
    assert first is not None
    (tmp_path / "reports" / "release-check.json").write_text("{}")
    (tmp_path / "README.md").write_text("text")
    (tmp_path / "tests" / "api").mkdir(parents=True)
    (tmp_path / "tests" / "api" / "test_routes.py").write_text("1")
    assert checklist._content(tests) == first
    commit()
    assert checklist._content(tests) == first
    for name in ("code.py", "tests/lake/test_read.py", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("2")
        assert checklist._content(tests) is None
        assert name == "code.py" or checklist._content(()) is not None
        commit()
        assert checklist._content(tests) not in (None, first)
        first = checklist._content(tests)


def test_a_group_of_steps_is_chosen_by_the_part_before_the_slash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = tuple(Step(name, lambda: None, short=True) for name in ("deep-api", "deep-e2e/one", "deep-e2e/two"))
    monkeypatch.setattr(checklist, "STEPS", steps)

    def ran(*names: str) -> list[str]:
        assert main(names) == 0
        return [line.split()[1] for line in capsys.readouterr().out.splitlines()]

    assert ran("deep-e2e") == ["deep-e2e/one", "deep-e2e/two"]
    assert ran("deep-e2e/two", "deep-api") == ["deep-api", "deep-e2e/two"]
    assert main(["e2e"]) == 2


def test_each_file_of_deep_tests_belongs_to_a_step() -> None:
    """If a step is named like a file, a change of another file does not affect it."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    by_step = {step.name: step.tests for step in checklist.STEPS if step.name.startswith("deep-")}
    migration = next(step for step in checklist.STEPS if step.name == "migration")
    without = [file for file in files if not file.startswith((*itertools.chain(*by_step.values()), *migration.tests))]
    assert without == []
    failover = by_step["deep-e2e/test_failover"]
    assert "tests/e2e/failover.py".startswith(failover) and not "tests/e2e/test_kill.py".startswith(failover)


def test_an_unknown_step_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "no step 'nothing'; there are version, files, platforms, check" in capsys.readouterr().err


def test_steps_need_check() -> None:
    done = command("release", "files")
    assert done.returncode == 2 and "./routelake release --check files" in done.stderr


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = command("release", "--out", str(tmp_path))
    assert done.returncode == 2 and f"rm -r {tmp_path}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_version_is_complete_when_no_page_calls_it_unreleased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step names the next thing that a release lacks, until nothing is lacking."""
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "+one.added.md").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    for name, text in {"CHANGELOG.md": "", "SECURITY.md": "0.1.x", "README.md": "Status: not yet released."}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(checklist, "ROOT", tmp_path)

    def lacks(words: str) -> None:
        assert main(["version"]) == 1
        assert words in capsys.readouterr().out

    lacks("CHANGELOG.md has no heading of 0.2.0")
    (tmp_path / "CHANGELOG.md").write_text("## 0.2.0 (2026-12-01)\n")
    lacks("1 change fragments are left")
    (tmp_path / "changes" / "+one.added.md").unlink()
    lacks("there are no golden copies")
    (tmp_path / "tests" / "schemas" / "golden" / "0.2.0").mkdir(parents=True)
    lacks("SECURITY.md does not list 0.2.0")
    (tmp_path / "SECURITY.md").write_text("0.2.x")
    lacks('README.md says "not yet released"')
    (tmp_path / "README.md").write_text("A NameServer.")
    assert main(["version"]) == 0


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release of this commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("a release is built in a clone")
    out = tmp_path_factory.mktemp("release") / "dist"
    build(out)
    return out


@pytest.mark.deep
def test_it_writes_what_the_images_and_the_units_need(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    assert {"SHA256SUMS", "THIRD-PARTY-LICENSES.txt", *LOCKS} < names
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=False).returncode == 0
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(names) - 1
    (archive,) = dist.glob("*-deploy.tar.gz")
    with tarfile.open(archive) as deploy:
        found = set(deploy.getnames())
        assert {entry.mode & 0o022 for entry in deploy.getmembers()} == {0}, (
            "other users could change what root installs"
        )
    assert {
        "deploy/gateway.Containerfile",
        "deploy/systemd/routelake-fold.service",
        "deploy/helm/routelake/Chart.yaml",
    } < found


@pytest.mark.deep
def test_the_sbom_is_cyclonedx_and_has_what_the_lock_files_have(dist: Path) -> None:
    (path,) = dist.glob("*.cdx.json")
    sbom = json.loads(path.read_text())
    schemas = Path(cyclonedx.schema.__file__).parent / "_res"
    others = [
        (f"http://cyclonedx.org/schema/{name}", json.loads((schemas / name).read_text()))
        for name in ("spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json")
    ]
    schema = json.loads((schemas / "bom-1.6.SNAPSHOT.schema.json").read_text())
    validator = jsonschema_rs.validator_for(schema, registry=jsonschema_rs.Registry(others))
    assert [str(error) for error in validator.iter_errors(sbom)] == []
    found = {component["purl"]: component for component in sbom["components"]}
    locked = re.findall(r"^([\w.-]+)==([^\s;]+)(?!.*win32)", (dist / "requirements.lock").read_text(), re.MULTILINE)
    assert {f"pkg:pypi/{name}@{version}" for name, version in locked if name not in INSTALLERS} == {
        purl for purl in found if purl.startswith("pkg:pypi/")
    }
    jars = [jar for name in JAR_SETS for jar in read_lock(LOCK_FILE.read_text())[name]]
    assert {jar.sha256 for jar in jars} == {
        component["hashes"][0]["content"] for purl, component in found.items() if purl.startswith("pkg:maven/")
    }
    assert "pkg:npm/uplot@1.6.32" in found
    pyspark = next(component for purl, component in found.items() if purl.startswith("pkg:pypi/pyspark@"))
    assert len(pyspark["components"]) > 200


@pytest.mark.deep
def test_license_texts_are_those_of_the_components(dist: Path) -> None:
    text = (dist / "THIRD-PARTY-LICENSES.txt").read_text()
    assert "crc32c 2.9.post0: LGPL-2.1-or-later" in text
    for words in (
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "Copyright (c) 2022 Leon Sorokin",
        "COMMON DEVELOPMENT AND DISTRIBUTION",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("license_name", "says"),
    [("", "add it to dev/release/components.toml"), ("MIT AND GPL-3.0-only", "list `allowed`")],
)
def test_a_license_that_no_person_has_decided_on_is_an_error(license_name: str, says: str) -> None:
    unknown = Component(PackageURL("pypi", name="new", version="1"), license_name, (), ())
    with pytest.raises(SetupError, match=re.escape(says)):
        check_license(unknown, frozenset({"MIT"}))
