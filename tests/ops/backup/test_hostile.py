# SPDX-License-Identifier: Apache-2.0
"""Backups and data directories with planted links, and manifests that lead out of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dev.support.command import told
from ops.backup.manifest import manifest_digest
from ops.backup.restore import restore
from ops.backup.take import take_backup
from schemas.errors import SetupError
from tests.ops.backup.live import go_on
from tests.ops.backup.processes import refusal, routelake

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights that another user wants")
USER = 65534
SECRET = b"what only root may read\n"


def url(data_dir: Path) -> str:
    return f"sqlite://{data_dir}/events.db"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    go_on(folder / "data", 2)
    take_backup(folder / "data", url(folder / "data"), folder / "backup")
    return folder


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach."""
    folder = Path(tempfile.mkdtemp(prefix="routelake-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["reachable", "out of reach"])
def service(request: pytest.FixtureRequest, made: Path, place: Path) -> Path:
    """A place with a data directory of the service user, a genuine backup, and a file of root's."""
    shutil.copytree(made / "data", place / "data")
    shutil.copytree(made / "backup", place / "backup")
    for path in (place / "data", *(place / "data").rglob("*")):
        os.chown(path, USER, USER)
    (place / "etc").mkdir(mode=0o755)
    (place / "etc" / "shadow").write_bytes(SECRET)
    (place / "etc" / "shadow").chmod(0o600)
    if request.param != "reachable":
        place.chmod(0o700)
    return place


@pytest.fixture(scope="module")
def as_root() -> Iterator[Callable[..., str | None]]:
    """Calls in a process of its own: root becomes another user there, and with it every thread of the process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield lambda *call: pool.submit(refusal, *call).result(120)


def assert_untouched(place: Path) -> None:
    assert sorted(path.name for path in (place / "etc").iterdir()) == ["shadow"]
    for path in (place / "etc", place / "etc" / "shadow"):
        assert path.stat().st_uid == 0
    assert (place / "etc" / "shadow").read_bytes() == SECRET
    for path in (place / "data").rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert SECRET not in path.read_bytes(), path


def name_file(backup: Path, name: str, text: bytes) -> None:
    manifest = json.loads((backup / "backup.json").read_text())
    digest = hashlib.sha256(text).hexdigest()
    manifest["files"].append({"path": name, "bytes": len(text), "sha256": digest})
    (backup / "backup.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["lnk/a", "lnk/../../../victim/keys", "lake/lnk/a", "lake/lnk"])
def test_a_manifest_writes_nothing_through_links_of_the_backup(made: Path, tmp_path: Path, name: str) -> None:
    backup = Path(shutil.copytree(made / "backup", tmp_path / "backup"))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("text")
    for link in (backup / "lnk", backup / "lake" / "lnk"):
        link.symlink_to(tmp_path / "outside" / ("a" if name == "lake/lnk" else ""))
    name_file(backup, name, b"text")
    with pytest.raises(SetupError):
        restore(backup, tmp_path / "deep" / "data", url(tmp_path / "deep" / "data"))
    assert sorted(path.name for path in tmp_path.iterdir()) in (["backup", "deep", "outside"], ["backup", "outside"])
    assert not list((tmp_path / "deep").rglob("lake")) and not list(tmp_path.rglob("victim"))


@AS_ROOT
@pytest.mark.parametrize(
    "link",
    [
        "restore.unfinished",
        "restore.json.tmp",
        "restore.json",
        "events.db-lock",
        "events.db-wal",
        "events.db-shm",
        "lake/fold.lock",
        "lake",
        "checkpoints",
        "events.db.restore.unfinished",
    ],
)
@pytest.mark.parametrize("target", ["etc", "etc/shadow", "etc/new"])
def test_links_of_the_service_user_are_not_followed_by_root(
    service: Path, as_root: Callable[..., str | None], link: str, target: str
) -> None:
    path = service / "data" / link
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(service / target)
    os.lchown(path, USER, USER)
    as_root(restore, service / "backup", service / "data", url(service / "data"))
    assert_untouched(service)


@AS_ROOT
@pytest.mark.parametrize("within", ["lake/topicQueueTable/zz.parquet", "lake/lake.json", "lake/topicQueueTable"])
def test_a_backup_takes_nothing_through_links_of_the_service_user(
    service: Path, as_root: Callable[..., str | None], within: str
) -> None:
    path = service / "data" / within
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(service / "etc" / ("" if within.endswith("Table") else "shadow"))
    assert as_root(take_backup, service / "data", url(service / "data"), service / "new") is not None
    assert not (service / "new").exists()
    assert_untouched(service)


@AS_ROOT
def test_root_backs_up_and_restores_for_the_service_user(service: Path) -> None:
    target = service / "backups"
    target.mkdir(mode=0o755)
    done = routelake("backup", target / "one", "--data-dir", service / "data")
    assert done[0] == 0, done[1]
    done = routelake("restore", target / "one", "--data-dir", service / "data")
    assert done[0] == 0, done[1]
    assert {path.lstat().st_uid for path in (service / "data" / "lake").rglob("*")} == {USER}
    assert (service / "data" / "events.db").stat().st_uid == USER


PARTS = st.sampled_from(["..", ".", "", "lake", "events.db", "lnk", "a", "a\0b", "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"), "名", "x" * 300, "dev", "null", "\n", "fifo", "LAKE", "\\..\\"])  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(
        ["/etc/passwd", "..", "lake/../x", "lnk/x", "/dev/null", "lake", "lake/", "lake//x", "", "x" * 5000]
    ),
    st.lists(PARTS, min_size=1, max_size=6).map("/".join),
    st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "lake/" + "/".join(parts)),
    st.text(max_size=20),
)


@pytest.fixture(scope="module")
def hostile(made: Path) -> Path:
    """A backup with odd files, in a place of its own."""
    folder = made / "of others"
    shutil.copytree(made / "backup", folder / "backup")
    (folder / "backup" / "lnk").symlink_to(folder)
    (folder / "backup" / "lake" / "lnk").symlink_to(folder)
    os.mkfifo(folder / "backup" / "lake" / "fifo")
    (folder / "backup" / "lake" / "a").mkdir()
    return folder


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, whose=st.sampled_from(["file", "table"]))
def test_a_hostile_name_is_refused_before_anything_is_written(hostile: Path, name: str, whose: str) -> None:
    manifest = json.loads((hostile.parent / "backup" / "backup.json").read_text())
    if whose == "file":
        if name in {file["path"] for file in manifest["files"]}:
            name = "lake/../" + name
        manifest["files"].append({"path": name, "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()})
    elif name not in manifest["lake"]["versions"]:
        manifest["lake"]["versions"][name] = 0
    (hostile / "backup" / "backup.json").write_text(json.dumps(manifest))
    with pytest.raises(SetupError) as refused:
        restore(hostile / "backup", hostile / "data", url(hostile / "data"))
    assert "Use another backup" in str(refused.value) or "cannot be re" in str(refused.value)
    assert sorted(path.name for path in hostile.iterdir()) in (["backup"], ["backup", "data"])
    left = [path for path in (hostile / "data").rglob("*") if not path.name.endswith("-lock")]
    assert not left
    shutil.rmtree(hostile / "data", ignore_errors=True)


@pytest.mark.parametrize("twice", [["lake/lake.json"], ["lake/lake.json/x"], ["events.db/x"]])
def test_a_name_that_is_there_already_is_refused(made: Path, tmp_path: Path, twice: list[str]) -> None:
    backup = Path(shutil.copytree(made / "backup", tmp_path / "backup"))
    for name in twice:
        name_file(backup, name, b"")
    with pytest.raises(SetupError, match="twice|below another file|neither"):
        restore(backup, tmp_path / "data", url(tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_only_the_expected_backup_is_restored(made: Path, tmp_path: Path) -> None:
    code, printed = told("backup", tmp_path / "backup", "--data-dir", made / "data")
    assert code == 0
    digest = manifest_digest(tmp_path / "backup")
    assert digest in printed
    for words, expected in ((("--expect", "0" * 64), 2), (("--expect", digest.upper()), 0)):
        code, printed = told("restore", tmp_path / "backup", "--data-dir", tmp_path / "data", *words)
        assert code == expected, printed
        assert (tmp_path / "data").exists() is (expected == 0)
