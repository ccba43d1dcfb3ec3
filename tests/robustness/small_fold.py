# SPDX-License-Identifier: Apache-2.0
"""The fold process without Spark, for runs that are about the rest: `tests.support.minifold` in the place of the query.

Rules, row changes, tables, commits, maintenance, lock and supervision are the product's own.
"""

from __future__ import annotations

import traceback
from typing import Any, Final

from lake.ddl import open_lake
from pipelines.log.base import EventLog
from pipelines.log.open import open_log
from pipelines.tables.maintenance import Maintenance
from pipelines.tables.writer import rewind
from tests.support.minifold import MiniFold

_BATCH_S: Final = 0.4
"""A batch begins at most this often."""


class _Kept(MiniFold):
    """One that keeps house between batches."""

    def __init__(self, log: EventLog, settings: Any) -> None:  # noqa: ANN401 - FoldSettings, whose module imports Spark
        super().__init__(
            log,
            settings.lake_dir,
            liveness_interval_s=settings.liveness_interval_s,
            retention_days=settings.retention_days,
        )
        self._maintenance = Maintenance(
            self.writer.tables, log, settings.retention_days, settings.log_retention_hours
        )

    def _batch(self) -> bool:
        self._stop.wait(_BATCH_S)
        found = super()._batch()
        self._maintenance.step(self.writer)
        self._write_status()
        return found


def fold(spark: None, settings: Any, stop: Any) -> int:  # noqa: ANN401 - as above
    """In the place of `pipelines.main._fold`: a batch that fails ends the one, and another goes on from the tables."""
    while not stop.wait(0.5):
        log = open_log(settings.log_url)
        try:
            rewind(settings.lake_dir, open_lake(settings.lake_dir, retention_days=settings.retention_days))
            with _Kept(log, settings) as running:
                while running.error is None and not stop.wait(0.1):
                    pass
        except Exception as error:
            traceback.print_exception(error)
        finally:
            log.close()
    return 0
