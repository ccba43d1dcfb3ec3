# SPDX-License-Identifier: Apache-2.0
"""Read-only Spark SQL on the tables of a lake.

Each table is an external table in the catalog of the session. So ``VERSION AS OF`` and ``table_changes`` work, which
views do not support. The fold is the only writer of the lake and ends if it finds a commit of another program. So
statements that write are refused before they run.
"""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path
from typing import Final

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lake.delta.ddl import check_format
from lake.delta.log import LOG_FOLDER
from lake.history.sql_views import VIEWS
from pipelines.session import session
from runtime.version import PROGRAM
from schemas.errors import RoutelakeError, SetupError
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES

_PIECE: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`[^`]*(?:`|\Z)"""
    r"|(?P<comment>--[^\n]*|/\*.*?\*/)|/\*.*\Z|(?P<end>;)|.",
    re.DOTALL,
)
"""Tokens that matter for the end of a statement. Quotes and comments may be unfinished."""
_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical."
_READS: Final = re.compile(
    r"\s*(show|describe|desc|explain|set|reset|use|cache|uncache|clear|refresh"
    r"|create\s+(or\s+replace\s+)?(global\s+)?temp(orary)?\s+view|drop\s+view)\b",
    re.IGNORECASE,
)
"""Commands that change at most the session."""
_TABLE_ROWS: Final = 1000


def statements(text: str) -> tuple[list[str], str]:
    """Split text at the semicolons that end statements. Comments are left out.

    Returns:
        The complete statements, and the text after the last semicolon.
    """
    done: list[str] = []
    rest: list[str] = []
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            done.append("".join(rest).strip())
            rest.clear()
        else:
            rest.append(" " if piece["comment"] else piece[0])
    return [statement for statement in done if statement], "".join(rest).strip()


class LakeSql:
    """A Spark session that reads one lake. Use as a context manager, which ends the session.

    Args:
        lake_dir: an existing lake.
        driver_memory: heap of the JVM, such as ``1g``.

    Raises:
        SetupError: the lake is missing, or Spark does not start.
    """

    def __init__(self, lake_dir: Path, *, driver_memory: str = "1g") -> None:
        if not any((lake_dir / table.name / LOG_FOLDER).is_dir() for table in ALL_TABLES):
            raise SetupError(
                f"there is no lake in {lake_dir}. Set --data-dir to the data directory of a routelake. "
                f"'{PROGRAM} serve' creates one."
            )
        check_format(lake_dir)
        self._lake_dir = lake_dir.resolve()
        self._known: set[str] = set()
        """Names of registered tables and views."""
        self._scratch = tempfile.TemporaryDirectory(prefix="routelake-sql-")
        # This logger prints each error a second time, as JSON with two stacks.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._spark: SparkSession = session(
            "routelake-sql", driver_memory=driver_memory, delta=True, scratch_dir=Path(self._scratch.name)
        )

    def __enter__(self) -> LakeSql:
        return self

    def __exit__(self, *error: object) -> None:
        self._spark.stop()
        self._scratch.cleanup()

    def rows(self, statement: str) -> DataFrame:
        """Run one statement, given without its semicolon.

        Raises:
            RoutelakeError: Spark cannot run it, or it would write.
        """
        try:
            self._register(statement)
            self._check_reads(statement)
            return self._spark.sql(statement)
        except (PySparkException, Py4JError) as error:
            raise RoutelakeError(_first_line(error)) from error

    def print(self, statement: str, *, as_json: bool, limit: int | None) -> None:
        """Run a statement and print its rows.

        Args:
            statement: one statement, as for `rows`.
            as_json: print a JSON object per line. Otherwise print a table, with a note if rows are left out.
            limit: maximum number of rows. Default: 1,000 in a table, all as JSON.

        Raises:
            RoutelakeError: see `rows`.
        """
        rows = self.rows(statement)
        if not rows.columns:
            return
        try:
            if as_json:
                lines = rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) as line")
                for line in (lines if limit is None else lines.limit(limit)).toLocalIterator():
                    print(line["line"])
            else:
                rows.show(limit or _TABLE_ROWS, truncate=False)
        except (PySparkException, Py4JError) as error:
            raise RoutelakeError(_first_line(error)) from error

    def _register(self, statement: str) -> None:
        """Register the tables and views that a statement names. To register all at the start takes seconds."""
        text = statement.lower()
        every = re.match(r"\s*show\b", text) is not None
        views = []
        for view in reversed(VIEWS):  # later ones name earlier ones
            if every or re.search(rf"\b{view.name.lower()}\b", text):
                views.append(view)
                text += view.query.lower()
        for table in (*ALL_TABLES, *INTERVAL_TABLES):
            path = self._lake_dir / table.name
            if (every or table.name.lower() in text) and table.name not in self._known and path.is_dir():
                self._spark.catalog.createTable(table.name, path=str(path), source="delta")
                self._known.add(table.name)
        for view in reversed(views):
            if view.name not in self._known:
                self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {view.query}")
                self._known.add(view.name)

    def _check_reads(self, statement: str) -> None:
        """Raises RoutelakeError for a statement that writes; PySparkException for one that cannot be parsed."""
        if _READS.match(statement):
            return
        jvm = self._spark.sparkContext._gateway
        plan = self._spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)
        while is_instance_of(jvm, plan, f"{_COMMAND}UnresolvedWith"):
            plan = plan.child()
        if is_instance_of(jvm, plan, f"{_COMMAND}Command") or is_instance_of(jvm, plan, f"{_COMMAND}ParsedStatement"):
            raise RoutelakeError(
                "this session is read-only: only the fold writes the tables. Copy data with another program, or "
                "create a temporary view."
            )


def _first_line(error: Exception) -> str:
    """Return Spark's message without the query plan and the stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java.toString())
    return next((line.strip().rstrip(";") for line in text.splitlines() if line.strip()), type(error).__name__)
