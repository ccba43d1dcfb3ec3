# SPDX-License-Identifier: Apache-2.0
"""What a disk that does not take a write is at a start."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from dev.support.patches import in_this_thread
from lake.delta.ddl import lock_lake, open_lake
from lake.write import staging
from runtime.disk import at_start, write_synced
from schemas.errors import RoutelakeError, SetupError, UnavailableError


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("met", "kind"),
    [
        (error(errno.ENOSPC), UnavailableError),
        (error(errno.EIO), UnavailableError),
        (error(errno.EDQUOT), UnavailableError),
        (error(errno.EACCES), SetupError),
        (DeltaError("Generic LocalFileSystem error: Unable to copy: No space left on device (os error 28)"), UnavailableError),
        (DeltaError("No such file"), SetupError),
    ],
)  # fmt: skip
def test_only_a_lasting_error_of_the_disk_is_a_setup_error(met: Exception, kind: type[RoutelakeError]) -> None:
    assert at_start(met) is kind


def test_a_fold_that_finds_a_full_disk_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = open_lake(tmp_path, retention_days=1)

    def full(*_: object, **__: object) -> None:
        raise error(errno.ENOSPC)

    with monkeypatch.context() as patched:
        patched.setattr("lake.write.staging.os.link", in_this_thread(full, os.link))
        with pytest.raises(UnavailableError, match="No space left"):
            staging.stage(tmp_path, tables)
    with monkeypatch.context() as patched:
        patched.setattr("lake.delta.ddl.os.open", in_this_thread(full, os.open))
        with pytest.raises(UnavailableError, match="No space left"):
            lock_lake(tmp_path)
    assert staging.stage(tmp_path, tables)


def test_a_small_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"kept")
    (tmp_path / "small.tmp").symlink_to(elsewhere)
    write_synced(tmp_path / "small.json", b"new")
    assert (tmp_path / "small.json").read_bytes() == b"new"
    assert elsewhere.read_bytes() == b"kept"
