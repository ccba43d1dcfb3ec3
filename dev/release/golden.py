# SPDX-License-Identifier: Apache-2.0
"""Golden copies: an event log, a lake, the settings and the interfaces of a release, which later releases must take.

``python -m dev.release.golden VERSION`` writes them to tests/schemas/golden/VERSION, once for each release. They are
never written again: ``tests/schemas/test_golden.py`` opens all of them.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from api.settings.keys import KEYS
from cli.main import app
from dev.model import codes
from dev.model.wire import Request
from dev.support import any_lake, lakes
from dev.support import events as make
from dev.support.fold import Fold
from dev.support.http_api import HttpApi
from dev.support.local import LocalLake
from eventlog.sqlite.log import SqliteLog
from schemas.errors import SetupError
from schemas.events import AccessRefused, AnyEvent, encode, routing_key
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = ROOT / "tests" / "schemas" / "golden"
DATA: Final = "data.tar.gz"
TABLES: Final = (*ALL_TABLES, *INTERVAL_TABLES)
TOPICS: Final = ("T", "U", "W", "X", any_lake.ODD)
NAMESPACES: Final = ("n", "ORDER_TOPIC_CONFIG")


def write(version: str) -> None:
    """Write the golden copies of this code as those of a release that is not yet in CHANGELOG.md. Raises SetupError."""
    folder = GOLDEN / version
    if folder.exists() and f"## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise SetupError(f"{version} was released: its golden copies stay as they are.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        make_data(data)
        (folder / DATA).write_bytes(_packed(data))
        _dump(folder / "tables.json", tables(data / "lake"))
        _dump(folder / "answers.json", answers(data))
    _dump(folder / "interfaces.json", interfaces())


def make_data(data: Path) -> None:
    """Write an event log with every kind of event, and the tables that the fold makes of it, event by event."""
    data.mkdir(parents=True)
    with closing(SqliteLog(data / "events.db")) as log:
        fold = Fold(log, data / "lake", intervals=True)
        for record in any_lake.records()[:-1]:  # without the last one, which is no event
            log.append([(record.key, record.payload)])
            fold.fold()
        for event in _more_events():
            log.append([(routing_key(event), encode(event))])
            fold.fold()


def _more_events() -> list[AnyEvent]:
    """Events of the kinds that `any_lake` does not have."""
    return [
        make.put("ORDER_TOPIC_CONFIG", "T", "b:8"),
        make.register("a9:1", name="closing", connection="7", heartbeat_timeout_millis=30 * 86_400_000),
        make.closed("a9:1", "7", name="closing"),
        make.unregister("o:1", name=any_lake.ODD, cluster="d"),
        make.register("o:1", name=any_lake.ODD, cluster="d", table=make.topics("T", "ARROW:schema")),
        AccessRefused(
            actor=make.actor(),
            request="WIPE_WRITE_PERM_OF_BROKER",
            needed="admin",
            role="reader",
            reason="role",
            remark="no permission",
            is_refused=True,
            times=1,
        ),
        make.preserve(),
        make.preserve_end(),
        make.resume(after_ms=1),
        make.clock(),
    ]


def tables(lake: Path) -> dict[str, list[str]]:
    """Every row of every table as JSON, in one order."""
    return {
        table.name: sorted(json.dumps(row, sort_keys=True, default=str) for row in lakes.rows(lake, table.name))
        for table in TABLES
    }


def answers(data: Path) -> dict[str, Any]:
    """Return the answers of a gateway on a data directory: routes, clusters, topics and KV configuration."""
    with (
        LocalLake(data, log_url=f"sqlite://{data / 'events.db'}", folds=False) as lake,
        lake.gateway() as gateway,
        gateway.connect() as client,
    ):
        asked = {
            "clusters": Request(codes.GET_BROKER_CLUSTER_INFO),
            "topics": Request(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
            **{f"route {topic}": Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}) for topic in TOPICS},
            **{f"kv {name}": Request(codes.GET_KVLIST_BY_NAMESPACE, {"namespace": name}) for name in NAMESPACES},
        }
        found = {}
        for name, request in asked.items():
            answer = client.call(request)
            found[name] = [answer.code, answer.body.decode()]
        return found


def interfaces() -> dict[str, Any]:
    """Options with their variables and defaults, keys of namesrv.properties, extras of the wheel, HTTP and tables."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "options": dict(sorted(_options(typer.main.get_command(app), ()).items())),
        "namesrvProperties": sorted(KEYS),
        "extras": sorted(set(project["optional-dependencies"]) - {"dev", "setup"}),
        "http": _operations(_openapi()),
        "tables": {table.name: [f"{column.name} {column.type}" for column in table.columns] for table in TABLES},
    }


def _options(command: Any, words: tuple[str, ...]) -> dict[str, dict[str, Any]]:  # noqa: ANN401 (click's)
    """``command --option`` -> its variables and its default."""
    found: dict[str, dict[str, Any]] = {}
    for name, below in getattr(command, "commands", {}).items():
        if not (not words and name in _OF_A_CLONE):
            found |= _options(below, (*words, name))
    for one in command.params:
        for name in one.opts if one.param_type_name == "option" else ():
            variables = [one.envvar] if isinstance(one.envvar, str) else list(one.envvar or ())
            found[" ".join([*words, name])] = {"variables": variables, "default": _plain(one.default)}
    return found


_OF_A_CLONE: Final = frozenset({"bench", "check", "coverage", "docs", "fix", "release", "test", "torture"})
"""Commands for contributors, about which nothing is promised."""


def _plain(default: Any) -> Any:  # noqa: ANN401 (click's)
    return default if isinstance(default, str | int | float | bool | None) else str(default)


def _openapi() -> dict[str, Any]:
    """The description that a gateway serves."""
    with tempfile.TemporaryDirectory() as place, closing(HttpApi(Path(place))) as api:
        found: dict[str, Any] = api.get("/openapi.json").json()
        return found


def _operations(description: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """``GET /path`` -> its parameters and the fields of its answer."""
    found: dict[str, dict[str, list[str]]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            answer = operation.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
            found[f"{method.upper()} {path}"] = {
                "parameters": sorted(one["name"] for one in operation.get("parameters", [])),
                "fields": _fields(description, answer.get("schema", {})),
            }
    return dict(sorted(found.items()))


def _fields(description: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Names of an object's properties, or of those of an array's items."""
    while "$ref" in schema or "items" in schema:
        if "items" in schema:
            schema = schema["items"]
            continue
        schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return sorted(schema.get("properties", {}))


def _packed(data: Path) -> bytes:
    """A data directory as a compressed archive."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(data.rglob("*")):
            if path.is_file() and path.name not in _LEFT_OUT:
                archive.add(path, str(path.relative_to(data)))
    return packed.getvalue()


_LEFT_OUT: Final = frozenset({"events.db-shm", "events.db-wal", "fold.lock"})


def _dump(path: Path, value: Any) -> None:  # noqa: ANN401 (JSON)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


if __name__ == "__main__":
    write(sys.argv[1])
