# SPDX-License-Identifier: Apache-2.0
"""Resources that a process takes from the machine and its parent: open files, file modes, environment."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from runtime.children import SUPERVISED
from runtime.disk import advice, at_start, sync_folder
from schemas.errors import SetupError

log = structlog.get_logger("routelake")

_MOST_FILES: Final = 1_048_576
"""Maximum number of open files (Linux: fs.nr_open). With a hard limit of a thousand times that, some programs hang."""

_OTHER_FILES: Final = 256
"""Number of open files of a gateway without connections: libraries, tables, pipes, the event log."""

_MODE: Final = re.compile(r"7[0-7]{2}")


def guard_data(data_dir: Path, mode: str) -> None:
    """Create the data directory, and limit all files of this process and its children to its mode.

    An existing directory keeps its mode, because an operator may have set it. If it allows more than ``mode``, a
    warning is logged.

    Args:
        data_dir: The data directory.
        mode: Octal mode: ``700``, ``750`` for readers in the group, or ``755``. Files get it without execute rights.

    Raises:
        SetupError: The mode is not valid, or the directory cannot be written.
        UnavailableError: The disk is full or failing.
    """
    allowed = mask_files(mode)
    try:
        made = [folder for folder in (data_dir, *data_dir.absolute().parents) if not folder.exists()]
        data_dir.mkdir(parents=True, exist_ok=True)
        for folder in made:
            sync_folder(folder.absolute().parent)  # SQLite syncs only the folder of the log
        with tempfile.TemporaryFile(dir=data_dir):
            pass  # a file without a name, as other processes may do the same check
        found = stat.S_IMODE(data_dir.stat().st_mode)
    except OSError as error:
        raise at_start(error)(
            f"cannot write to the data directory {data_dir}: {error.strerror}. {advice(error, '--data-dir')}"
        ) from error
    if found & 0o777 & ~allowed and SUPERVISED not in os.environ:
        log.warning(
            "data directory is accessible to other users",
            mode=f"{found:o}",
            advice=f"run chmod -R go= {data_dir}, or set --data-mode {found & 0o777:o} to allow it",
        )


def mask_files(mode: str) -> int:
    """Limit all files that this process and its children create to a mode. Returns the mode as a number.

    Args:
        mode: Octal mode, as for `guard_data`.

    Raises:
        SetupError: The mode is not valid.
    """
    if not _MODE.fullmatch(mode):
        raise SetupError(f"--data-mode {mode!r}: expected an octal mode such as 700, or 750 for readers in the group.")
    allowed = int(mode, 8)
    os.umask(0o777 & ~allowed)
    return allowed


def raise_file_limit() -> int:
    """Raise the limit of open files as far as allowed, and return it. Children have the same limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else _MOST_FILES


def check_file_limit(connections: int) -> None:
    """Log a warning if the limit of open files is too low for the allowed number of connections."""
    limit, needed = raise_file_limit(), connections + _OTHER_FILES
    if limit < needed:
        log.warning(
            "open file limit is below the allowed connections: new ones may wait or be refused",
            limit=limit,
            needed=needed,
            advice=f"set ulimit -Hn {needed}, or LimitNOFILE={needed} in the systemd unit",
        )


@contextlib.contextmanager
def acting_as_owner(folder: Path) -> Iterator[None]:
    """Run the block with the rights of a folder's owner, if this process is root.

    The owner may have put links into the folder. Nothing changes if the folder is missing, belongs to root, or cannot
    be reached by its owner. Nothing changes for users other than root.

    Args:
        folder: A data directory.
    """
    found = _foreign_owner(folder)
    if found is None:
        yield
        return
    uid, gid, groups = found
    before = os.getegid(), os.getgroups()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        if _is_reachable(folder):
            yield
            return
    finally:
        os.seteuid(0)
        os.setegid(before[0])
        os.setgroups(before[1])
    yield


@contextlib.contextmanager
def acting_as_root() -> Iterator[None]:
    """Run the block with root's rights again, inside `acting_as_owner`. Without effect if the process is not root's."""
    euid = os.geteuid()
    if os.getuid() != 0 or euid == 0:
        yield
        return
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(euid)


def _foreign_owner(folder: Path) -> tuple[int, int, list[int]] | None:
    """User, group and further groups of a folder's owner, or None if this process keeps its own rights."""
    if os.geteuid() != 0:
        return None
    try:
        found = next(one for one in (folder.lstat(), folder.stat()) if one.st_uid != 0)
    except (OSError, StopIteration):
        return None
    try:
        entry = pwd.getpwuid(found.st_uid)
    except KeyError:  # an unknown user; never take root's group, even if the folder has it
        gid = found.st_gid or found.st_uid
        return found.st_uid, gid, [gid]
    return found.st_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)


def _is_reachable(folder: Path) -> bool:
    try:
        folder.absolute().stat()
    except PermissionError:
        return False
    except OSError:
        return True
    return True
