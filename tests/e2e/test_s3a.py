# SPDX-License-Identifier: Apache-2.0
"""An analyst's own Spark reads a lake in an object store over s3a, by the lines of docs/how-to/operate/object-store.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyspark
import pytest
from deltalake import DeltaTable

from dev.peers.routelake import ROOT
from dev.peers.versitygw import NoVersityGwError, VersityGw
from dev.support import events as make
from dev.support.fold import Fold
from dev.support.memory_log import MemoryLog
from lake.store import open_store
from runtime.jars import ensure
from schemas.events import AnyEvent, encode, routing_key
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES, TOPIC_QUEUE_TABLE

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]

URL = "s3://lake/prod/routes"
TABLES = [table.name for table in (*ALL_TABLES, *INTERVAL_TABLES)]
HISTORY: list[AnyEvent] = [
    make.register(table=make.topics("orders", "audit")),
    make.register("c:1", name="c", table=make.topics("orders")),
    make.put("n", "k", "v"),
    make.delete_topic("orders"),
    make.register("d:1", name="d", table=make.topics("more")),
]
SMALL = [
    *("--master", "local[2]", "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=1"),
    *("--conf", "spark.databricks.delta.snapshotPartitions=1"),
]
"""The tables are: fifty tasks for each of them would take minutes."""
READ = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession

folder, url, names, version = sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4]
spark = SparkSession.builder.getOrCreate()
asked = {name: f"SELECT * FROM delta.`{url}/{name}`" for name in names}
asked["then"] = f"SELECT * FROM delta.`{url}/topicQueueTable` VERSION AS OF {version}"
asked["feed"] = f"SELECT topic, _change_type FROM table_changes_by_path('{url}/topicQueueTable', 0)"
for name, query in asked.items():
    rows = spark.sql(query).toArrow()
    with pa.OSFile(f"{folder}/{name}.arrow", "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
"""


def properties() -> str:
    """What the page has a person write."""
    text = (ROOT / "docs" / "how-to" / "operate" / "object-store.md").read_text()
    found = re.search(r"\$ cat s3a\.properties\n(.*?)\n\n", text, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_every_table_is_to_spark_what_it_is_to_delta_rs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        server = VersityGw()
    except NoVersityGwError as error:
        pytest.skip(str(error))
    with server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        log = MemoryLog()
        fold = Fold(log, tmp_path / "copy", store=open_store(URL), intervals=True)
        for event in HISTORY:
            log.append([(routing_key(event), encode(event))])
            fold.fold()
        said = properties()
        assert "http://127.0.0.1:7070" in said
        file = tmp_path / "s3a.properties"
        file.write_text(said.replace("http://127.0.0.1:7070", server.environment["AWS_ENDPOINT_URL"]))
        script, result = tmp_path / "read.py", tmp_path / "result"
        script.write_text(READ)
        result.mkdir()
        done = subprocess.run(
            [
                Path(pyspark.__file__).parent / "bin" / "spark-submit", "--properties-file", file,
                "--jars", ",".join(map(str, [*ensure("delta"), *ensure("s3a")])), *SMALL,
                script, result, URL.replace("s3:", "s3a:"), ",".join(TABLES), "1",
            ],
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        for name in TABLES:
            ours = DeltaTable(f"{URL}/{name}").to_pyarrow_table()
            found = _read(result / f"{name}.arrow")
            assert found.column_names == ours.column_names
            assert _rows(found) == _rows(ours), name
        then = DeltaTable(f"{URL}/{TOPIC_QUEUE_TABLE.name}", version=1).to_pyarrow_table()
        assert _rows(_read(result / "then.arrow")) == _rows(then)
        feed = _read(result / "feed.arrow").to_pylist()
        assert {row["topic"] for row in feed if row["_change_type"] == "delete"} == {"orders"}


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


def _rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted((name, _plain(value)) for name, value in row.items())) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """Maps have no order."""
    return sorted(value) if isinstance(value, list) else value
