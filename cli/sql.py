# SPDX-License-Identifier: Apache-2.0
"""`routelake sql` and `routelake spark-sql`: DuckDB or Spark on the tables, for a question or a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.data_options import DataDir, LakeUrl
from cli.fold_options import DriverMemory
from cli.output import Form, Output
from cli.transfer import lake_folder
from runtime.java import use_java
from schemas.errors import SetupError


def sql(
    query: Annotated[str, typer.Argument(help="SQL statements. Default: read them from standard input.")] = "",
    data_dir: DataDir = Path("data"),
    lake: LakeUrl = "",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximum rows of each result. Default: 1,000 in a table, else all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one CSV line per row.")] = False,
) -> None:
    """Query the tables in DuckDB's SQL. Without a query, start a session at a terminal.

    It only reads. routelake can run meanwhile. All tables are at the newest epoch.
    docs/how-to/analyze/queries.md has the views and macros (route_at, changes_between, live_at),
    docs/reference/tables.md has the columns. Tables at a URL are downloaded first, with their whole history.
    """
    from runtime.no_pandas import keep_pandas_out

    if as_json and as_csv:
        raise SetupError("--json and --csv cannot be used together. Choose one")
    keep_pandas_out()
    from cli.sql_show import run_sql

    form = Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE
    with lake_folder(data_dir, lake) as folder:
        run_sql(folder, query, form, limit)


def spark_sql(
    query: Annotated[str, typer.Argument(help="SQL statements. Default: read them from standard input.")] = "",
    data_dir: DataDir = Path("data"),
    lake: LakeUrl = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximum rows of each result. Default: 1,000 in a table, all in JSON."),
    ] = None,
    driver_memory: DriverMemory = "1g",
) -> None:
    """Query the tables in Spark SQL. Without a query, start a session at a terminal.

    It only reads. routelake can run meanwhile. JSON has one object per line. docs/reference/tables.md has the
    columns. Tables at a URL are downloaded first, with their whole history.
    """
    from pipelines.spark_sql import run_spark_sql

    use_java()
    with lake_folder(data_dir, lake) as folder:
        code = run_spark_sql(folder, query, as_json=output is Output.JSON, limit=limit, driver_memory=driver_memory)
    raise typer.Exit(code)
