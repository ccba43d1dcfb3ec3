# SPDX-License-Identifier: Apache-2.0
"""When the last RESUME was, by which two that belong to one gap are known, and since when nobody expires.

routeCommitTable says it of each epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from lake.commits import to_ms
from lake.delta.log import active, table_uri
from lake.delta.reader import dataset
from schemas.events import Resume
from schemas.route_commit import RouteCommit
from schemas.tables import ROUTE_CHANGE_TABLE

RESUME: Final = str(Resume.__struct_config__.tag)
"""The command's name."""


def resumed_ms(lake_dir: Path, commit: RouteCommit) -> int:
    """Event time of the last RESUME up to an epoch, ms; 0 if there was none.

    Of an epoch that an older routelake wrote routeChangeTable says it, which has a row for each: a search that takes as
    long as the history is.
    """
    if commit.resume_time is not None:
        return to_ms(commit.resume_time)
    if commit.rules_version is not None or not commit.epoch:
        return 0
    files = active(table_uri(str(lake_dir), ROUTE_CHANGE_TABLE), commit.versions[ROUTE_CHANGE_TABLE.name]).files
    changes = dataset(str(lake_dir), ROUTE_CHANGE_TABLE, files)
    times = changes.to_table(columns=["eventTime"], filter=pc.field("command") == RESUME)["eventTime"]
    latest = pc.max(times).as_py()
    return 0 if latest is None else to_ms(latest)


def preserved_ms(commit: RouteCommit) -> int:
    """Since when nobody expires at an epoch, ms; 0 if brokers do."""
    return 0 if commit.preserve_time is None else to_ms(commit.preserve_time)
