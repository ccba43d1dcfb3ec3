# SPDX-License-Identifier: Apache-2.0
"""Process that forks Spark's Python workers: pyspark.daemon with less memory.

pandas is hidden from the workers. Otherwise pyarrow and pyspark import it, which takes 25 MB and 0.3 s in each worker.
"""

from __future__ import annotations

from pyspark.daemon import manager

from runtime.no_pandas import without_pandas


def main() -> None:
    """Fork workers until Spark ends."""
    with without_pandas():
        manager()


if __name__ == "__main__":
    main()
