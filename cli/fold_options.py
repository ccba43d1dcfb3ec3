# SPDX-License-Identifier: Apache-2.0
"""Options of the fold, for `serve` and `fold`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

from cli import preflight
from cli.data_options import DataOptions
from cli.options import Options, option, usable_folder
from cli.output import warn
from pipelines.cluster.master import LOCAL, Cluster, read_cluster
from runtime.children import wait_for_orphans
from runtime.java import use_java
from schemas.errors import SetupError

DriverMemory = Annotated[
    str,
    option("--driver-memory", metavar="SIZE", help="Heap of the Spark driver, with a unit: 1500m, 2g. At least 512m."),
]


@dataclass(frozen=True, kw_only=True)
class FoldOptions(Options):
    """The options of the fold."""

    panel: ClassVar[str] = "Fold"

    trigger_ms: Annotated[
        int,
        option(
            min=0,
            max=3_600_000,
            help="Minimum time between batches, in milliseconds. 0: a batch begins as soon as there are events.",
        ),
    ] = 1_000
    fold_cores: Annotated[
        float,
        option(
            min=0,
            max=1_000,
            help="Average number of cores for batches. Each batch delays the next one, by at most 10 s. 0: no limit.",
        ),
    ] = 0.1
    shards: Annotated[
        int | None,
        option(
            metavar="NUMBER",
            help="Number of shards of the fold: 1, 2, 4, 8 or 16. The checkpoint fixes it. "
            "Default: 2; with --master URL two per core.",
            show_default=False,
        ),
    ] = None
    history_retention_days: Annotated[
        int,
        option(
            min=1,
            max=36_500,
            help="Retention time of old versions of the tables, in days. Changes and intervals are kept for ever.",
        ),
    ] = 30
    liveness_interval_s: Annotated[float, option(min=0.1, max=3_600, hidden=True)] = 10.0
    """Maximum delay of heartbeats without changes in brokerLiveTable, in seconds. Hidden: only tests change it."""
    event_log_retention_hours: Annotated[
        float,
        option(
            min=0,
            max=876_000,
            help="Age in hours after which events that are in the tables are deleted from the event log.",
        ),
    ] = 24.0
    driver_memory: DriverMemory = "1g"
    master: Annotated[
        str,
        option(
            metavar="URL",
            help="Location of the executors: local, or a Spark cluster, spark://HOST:PORT or k8s://https://HOST:PORT.",
        ),
    ] = LOCAL
    shared_dir: Annotated[
        Path | None,
        option(
            metavar="FOLDER",
            callback=usable_folder,
            help="With --master URL: folder of checkpoint and intermediate files, at the same path on all machines. "
            "Default: the data directory.",
            show_default=False,
        ),
    ] = None
    spark_config: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="With --master URL: file of Spark's properties, as spark-submit takes them. "
            "See docs/how-to/operate/spark-cluster.md.",
        ),
    ] = None

    def validate(self, data: DataOptions, *, standby: bool = False) -> None:
        """Check the options before a fold starts, and choose its Java. Raises SetupError, ModuleNotFoundError."""
        if find_spec("pyspark") is None:
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        if self.shards is not None:
            preflight.check_shards(self.shards)
        preflight.check_driver_memory(self.driver_memory)
        preflight.check_localhost()
        preflight.check_user()
        use_java()
        self._validate_cluster(data.data_dir)
        wait_for_orphans(data.data_dir, warn)
        preflight.check_lake(data.lake_place, fold=True, standby=standby)

    def cluster(self, data_dir: Path) -> Cluster | None:
        """Return the place of the executors. Raises SetupError."""
        shared_dir = (self.shared_dir or data_dir).resolve()
        config = None if self.spark_config is None else self.spark_config.resolve()
        return read_cluster(self.master, shared_dir, config)

    def _validate_cluster(self, data_dir: Path) -> None:
        if self.cluster(data_dir) is None:
            if self.shared_dir is not None:
                raise SetupError(
                    f"--shared-dir {self.shared_dir} needs a cluster. Set --master spark://HOST:PORT, or remove it."
                )
        elif self.shared_dir is not None:
            preflight.check_folder(self.shared_dir, "--shared-dir")
