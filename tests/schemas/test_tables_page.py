# SPDX-License-Identifier: Apache-2.0
"""docs/reference/tables.md says what is declared, and its queries run as they stand: in DuckDB here, and in tests/pipelines/spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from dev.support.tables_page import EXPECTED, QUERIES, TEXT, Rows, write
from schemas.tables import ALL_TABLES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write(folder / "data" / "lake")
    return folder


def test_the_page_says_what_is_declared() -> None:
    for table in ALL_TABLES:
        assert f"### {table.name}\n" in TEXT
    for trap in ("tableName is null", "peer is address:port", "(perm & 2) = 2", "clusterName in", '"offset"'):
        assert trap in TEXT


def python_block() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    return block


@pytest.fixture(scope="module")
def by_duckdb(folder: Path) -> Iterator[dict[str, Rows]]:
    """Answers of the page's queries, after its Python block."""
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        patch.chdir(folder)
        patch.setattr(duckdb, "register", connection.register)
        patch.setattr(duckdb, "sql", connection.execute)
        exec(python_block(), {})  # as printed, on a connection that ends with the test
        yield {question: connection.execute(query).fetchall() for question, query in QUERIES.items()}


def chain_query() -> str:
    (block,) = re.findall(r"```duckdb\n(.*?)```", TEXT, re.DOTALL)
    return block


def test_the_chain_is_what_the_page_says(folder: Path) -> None:
    """Computed by another tool, which knows nothing of routelake: it holds, and not any more after one value has changed."""
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        patch.chdir(folder)
        patch.setattr(duckdb, "register", connection.register)
        patch.setattr(duckdb, "sql", connection.execute)
        exec(python_block(), {})  # as printed
        found = connection.execute(chain_query()).fetchall()
        assert found == [(epoch, True) for epoch in range(1, len(found) + 1)]
        assert len(found) == 12
        connection.execute(
            "CREATE TABLE changed AS SELECT * REPLACE (CASE WHEN command = 'DELETE_TOPIC_IN_NAMESRV'"
            " THEN replace(actor, '10.9.9.9', '10.9.9.8') ELSE actor END AS actor) FROM routeChangeTable"
        )
        found = connection.execute(chain_query().replace("routeChangeTable", "changed")).fetchall()
        assert [epoch for epoch, holds in found if not holds] == [8]


def test_every_question_of_the_page_is_asked() -> None:
    assert list(QUERIES) == list(EXPECTED)
    assert TEXT.count("```sql\n") == len(QUERIES)


@pytest.mark.parametrize("question", EXPECTED)
def test_in_duckdb(by_duckdb: dict[str, Rows], question: str) -> None:
    assert by_duckdb[question] == EXPECTED[question]


def test_the_columns_of_the_page_are_those_of_the_files(folder: Path) -> None:
    for table in ALL_TABLES:
        schema = DeltaTable(str(folder / "data" / "lake" / table.name)).schema()
        section = TEXT.split(f"### {table.name}\n")[1].split("### ")[0]
        rows = re.findall(r"^\| \*{0,2}(\w+)\*{0,2}(?: \(key\))? \| ([a-z<>,]+) \|", section, re.MULTILINE)
        assert rows[1:] == [(column.name, column.type) for column in table.columns]
        assert [name for name, _ in rows[1:]] == [field.name for field in schema.fields]
