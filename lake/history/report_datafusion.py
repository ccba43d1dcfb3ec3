# SPDX-License-Identifier: Apache-2.0
"""A report's SQL in DataFusion, which deltalake has in it: a gateway has neither DuckDB nor Spark.

The text is the same; what DataFusion says otherwise is put in its own words here. It knows no JSON. That of
routeChangeTable is ours and compact, and a quote within a text is escaped there, so no text can look like a member.
Where nothing is nested, a member is found by its name alone; else by an expression that reads all members before it.

DataFusion cannot be stopped while it sorts or groups. So a gateway has a report computed in a process of its own, which
can be killed: `rows_in_process`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import msgspec
from deltalake import DeltaTable

from lake.delta.query import current_interrupt, select
from lake.history.sql_views import VIEWS
from runtime.children import SERVED, give_way, spawn
from schemas.errors import UnavailableError, one_line

Row = tuple[Any, ...]

MAX_TOPICS: Final = 300_000
"""3 s of a processor, and 120 MB."""
_SETTINGS: Final = {
    "datafusion.sql_parser.enable_ident_normalization": "false",  # names of columns as they are written
    "datafusion.execution.target_partitions": "1",  # the other processors are for who wants a route
    "datafusion.runtime.memory_limit": "512M",
}
_FROM_JSON: Final = frozenset({"address", "brokerAddr", "clusterName", "userName"})
"""Columns of reports whose texts come out of JSON, as they stand there."""


class Cut(NamedTuple):
    """A part of a report: of the changes up to ``epoch``, ``limit`` rows after ``skip`` others."""

    epoch: int
    limit: int
    skip: int = 0


class TooManyTopicsError(Exception):
    """Of so many topics a report would have to tell."""

    def __init__(self, topics: int) -> None:
        super().__init__(topics)
        self.topics = topics


_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_SCALAR: Final = rf'(?:{_STRING}|[^"\[\]{{}},]+)'


def _nested(levels: int) -> str:
    """The expression of an object or array that is so deep at most."""
    inner = f"|{_nested(levels - 1)}" if levels > 1 else ""
    return rf'[\[{{](?:[^"\[\]{{}}]|{_STRING}{inner})*[\]}}]'


_VALUE: Final = f"(?:{_SCALAR}|{_nested(8)})"


def _member(json: str, path: str) -> str:
    """A member as text: a text as JSON writes it (see `_decoded`), a number; null where it is null or not there."""
    name = path.removeprefix("'$.").removesuffix("'")
    value = rf"""regexp_match({json}, '^\{{(?:{_STRING}:{_VALUE},)*"{name}":({_VALUE})')[1]"""
    of_nested = f"CASE WHEN starts_with({value}, '\"') THEN substr({value}, 2, length({value}) - 2) "
    of_nested += f"ELSE nullif({value}, 'null') END"
    text = f"split_part(split_part({json}, '\"{name}\":\"', 2), '\"', 1)"
    number = f"split_part(split_part(split_part({json}, '\"{name}\":', 2), ',', 1), '}}', 1)"
    return (
        f"CASE WHEN strpos({json}, ':{{') > 0 OR strpos({json}, ':[') > 0 THEN {of_nested} "
        f'WHEN strpos({json}, \'"{name}":"\') > 0 THEN '
        rf"""CASE WHEN strpos({json}, '\') > 0 THEN regexp_match({json}, '"{name}":"((?:[^"\\]|\\.)*)"')[1] """
        f"ELSE {text} END "
        f"WHEN strpos({json}, '\"{name}\":') > 0 THEN nullif({number}, 'null') END"
    )


def _max_by(value: str, place: str) -> str:
    places = _arguments(place.removeprefix("struct("))[0] if place.startswith("struct(") else [place]
    return f"first_value({value} ORDER BY {', '.join(f'{each} DESC' for each in places)})"


_FUNCTIONS: Final[dict[str, Callable[..., str]]] = {
    "get_json_object": _member,
    "unix_millis": lambda time: f"CAST(arrow_cast({time}, 'Timestamp(Millisecond, None)') AS BIGINT)",
    "max_by": _max_by,
}
_CALL: Final = re.compile(rf"\b({'|'.join(_FUNCTIONS)})\(")
_VIEW: Final = re.compile(rf"\bFROM ({'|'.join(view.name for view in VIEWS)})\b")
_CHANGES: Final = re.compile(r"\bFROM routeChangeTable\b")


def rows_by_datafusion(
    changes: DeltaTable, query: str, topics: str, cut: Cut, *, most_topics: int | None = None
) -> tuple[list[str], list[Row]]:
    """Some rows of a report.

    Args:
        changes: routeChangeTable.
        query: As `lake.history.reports.query_of` gives it; it orders its rows.
        topics: As `lake.history.reports.topics_of` gives it.
        cut: Which rows.
        most_topics: How many topics it may tell of; None: `MAX_TOPICS`.

    Returns:
        Names of columns, and rows, as `lake.history.report_duckdb.rows_by_duckdb`.

    Raises:
        TooManyTopicsError: It would have to tell of more topics.
    """
    told = f"SELECT * FROM t WHERE epoch <= {cut.epoch}"  # noqa: S608
    if topics:
        some = f"SELECT topic FROM ({told}) AS c WHERE tableName = 'topicQueueTable' AND ({topics}) GROUP BY topic"  # noqa: S608
        some = _in_own_words(_CHANGES.sub(f"FROM ({told})", some))
        (found,) = select(changes, f"SELECT count(*) AS n FROM ({some})", settings=_SETTINGS).to_pylist()  # noqa: S608
        if found["n"] > (MAX_TOPICS if most_topics is None else most_topics):
            raise TooManyTopicsError(found["n"])
        # The few are held in memory, the many stream by.
        told = f"SELECT c.* FROM ({some}) AS k RIGHT SEMI JOIN ({told}) AS c ON c.topic = k.topic"  # noqa: S608
    queries = {view.name: view.query for view in VIEWS}
    text = _VIEW.sub(lambda found: f"FROM ({queries[found[1]]}) AS {found[1]}", query)
    sql = f"{_in_own_words(_CHANGES.sub(f'FROM ({told})', text))} LIMIT {cut.limit} OFFSET {cut.skip}"
    found = select(changes, sql, settings=_SETTINGS)
    columns = [
        [_decoded(text) for text in column.to_pylist()] if name in _FROM_JSON else column.to_pylist()
        for name, column in zip(found.column_names, found.columns, strict=True)
    ]
    return found.column_names, list(zip(*columns, strict=True))


def rows_in_process(changes: DeltaTable, query: str, topics: str, cut: Cut) -> tuple[list[str], list[Row]]:
    """`rows_by_datafusion` in a process that ends with the work of this thread (`lake.delta.query.Interrupt`).

    Raises:
        InterruptedQueryError: The work of this thread is to end.
        UnavailableError: The process has died, or cannot be started.
    """
    interrupt = current_interrupt()
    interrupt.check()
    try:
        process, stream = spawn(__name__)
    except OSError as error:
        raise UnavailableError(f"the process that computes reports cannot be started: {error}") from error
    try:
        with Connection(stream.detach()) as pipe, interrupt.calls(process.kill):
            pipe.send((changes.table_uri, changes.version(), query, topics, cut, MAX_TOPICS))
            answer: tuple[list[str], list[Row]] | Exception = pipe.recv()
    except (OSError, EOFError) as error:
        interrupt.check()
        what = f"the process that computes reports ended with exit code {process.wait()}. Is there memory left?"
        raise UnavailableError(what) from error
    finally:
        process.kill()
        process.wait()
    if isinstance(answer, Exception):
        raise answer
    return answer


def main() -> None:
    """Compute one report."""
    give_way()
    with contextlib.suppress(EOFError, ConnectionError):
        _serve(Connection(SERVED))


def _serve(pipe: Connection) -> None:
    uri, version, query, topics, cut, most_topics = pipe.recv()
    try:
        changes = DeltaTable(uri, version=version)
        answer: object = rows_by_datafusion(changes, query, topics, cut, most_topics=most_topics)
    except TooManyTopicsError as error:
        answer = error
    except Exception as error:  # storage's own may not be picklable
        answer = UnavailableError(f"the report cannot be computed at the moment: {one_line(error)}")
    pipe.send(answer)


def _in_own_words(text: str) -> str:
    """With the functions that DataFusion has."""
    done = ""
    while (call := _CALL.search(text)) is not None:
        arguments, rest = _arguments(text[call.end() :])
        done += text[: call.start()] + _FUNCTIONS[call[1]](*map(_in_own_words, arguments))
        text = rest
    return done + text


def _arguments(text: str) -> tuple[list[str], str]:
    """The arguments of a call whose bracket was just opened, and what follows the call."""
    found, begin, depth, quoted = [], 0, 0, False
    for place, sign in enumerate(text):
        if sign == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif sign == "(":
            depth += 1
        elif depth and sign == ")":
            depth -= 1
        elif not depth and sign in ",)":
            found.append(text[begin:place].strip())
            begin = place + 1
            if sign == ")":
                return found, text[begin:]
    raise ValueError(f"a bracket is not closed: {text}")


def _decoded(text: str | None) -> str | None:
    return msgspec.json.decode(f'"{text}"', type=str) if text and "\\" in text else text
