# SPDX-License-Identifier: Apache-2.0
"""``routelake backup`` and ``routelake restore``. See docs/how-to/operate/backup-restore.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.data_options import DataOptions, LogOptions
from cli.options import with_options
from cli.transfer import lake_folder
from runtime.machine import mask_files
from runtime.version import PROGRAM

if TYPE_CHECKING:
    from ops.backup.manifest import Manifest


@with_options
def backup(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the backup. It must not exist yet.")],
    *,
    data: DataOptions,
) -> None:
    """Back up tables and event log. routelake can run meanwhile."""
    from ops.backup.manifest import give_to_owner, manifest_digest
    from ops.backup.take import take_backup

    mask_files(data.data_mode)
    with lake_folder(data.data_dir, data.lake) as folder:
        if data.lake_place.url:
            # The backup reads the download with the rights of the owner of the data directory. A folder goes last,
            # because its new owner can replace what is in it by a link.
            for path in reversed([folder.parent, *folder.parent.rglob("*")]):
                give_to_owner(path, data.data_dir)
        manifest = take_backup(data.data_dir.absolute(), data.log_url, target.absolute(), lake_dir=folder)
        digest = manifest_digest(target.absolute())
    print(f"{target}: backup of {data.lake or data.data_dir} at {_position(manifest)}")
    _print_proof(manifest)
    print(f"  digest: {digest} (verify it with `{PROGRAM} restore {target} --expect {digest}`)")


@with_options
def restore(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the backup. It is not changed.")],
    *,
    data: LogOptions,
    keep_log: Annotated[
        bool, typer.Option("--keep-log", help="Restore only the tables. The existing event log continues after them.")
    ] = False,
    expect: Annotated[
        str, typer.Option("--expect", metavar="SHA256", help="Digest of the backup's manifest, as `backup` printed it.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Verify the backup and show what would be done. Nothing is changed.")
    ] = False,
) -> None:
    """Restore a backup into the data directory, and move its previous contents aside. Stop routelake first."""
    from ops.backup.restore import restore as run

    mask_files(data.data_mode)
    data_dir = data.data_dir
    where = source.absolute(), data_dir.absolute(), data.log_url
    done = run(*where, keep_log=keep_log, dry_run=dry_run, expect=expect)
    if dry_run:
        print(f"{source}: a complete backup at {_position(done.manifest)}; nothing was changed in {data_dir}")
    else:
        print(f"{data_dir}: restored from {source}, at {_position(done.manifest)}")
    _print_proof(done.manifest)
    for old, new in done.aside:
        print(f"  {old} {'would move' if dry_run else 'was moved'} to {new}")
    if done.cut_off:
        print(f"  an earlier restore was interrupted here; the files that it moved are in {', '.join(done.cut_off)}")
    if done.manifest.log.kind == "kafka":
        print(
            f"  the log stays in Kafka ({done.manifest.log.url}): it must have every record from offset "
            f"{done.manifest.lake.needs_from} on, and no gateway may have run during the restore"
        )


def _position(manifest: Manifest) -> str:
    lake = manifest.lake
    return f"epoch {lake.epoch} (log offset {lake.log_offset}, {lake.event_time or 'no event in the tables yet'})"


def _print_proof(manifest: Manifest) -> None:
    size_mib = sum(file.bytes for file in manifest.files) / 1024 / 1024
    print(
        f"  verified: {len(manifest.files)} files of {size_mib:.1f} MiB have their digests, "
        f"{len(manifest.lake.versions)} tables open at their versions with all files"
    )
    log = manifest.log
    if log.kind == "sqlite":
        print(f"  verified: the log has every record from offset {log.first_offset} to {log.next_offset - 1}")
    else:
        print(f"  the log is in Kafka, at offset {log.next_offset}: it is not in the backup")
