# SPDX-License-Identifier: Apache-2.0
"""Generated blocks: they contain everything that the code declares, and pages name every environment variable."""

from __future__ import annotations

import ast
import re

import pytest

from api.http.problems import KINDS
from dev.docs import ROOT
from dev.reference import http, metrics, options, properties, results, source
from dev.reference.pages import BLOCKS

SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
INTERNAL = {
    "ROUTELAKE_SUPERVISED",
    "ROUTELAKE_WORKER_PYTHON",
    "ROUTELAKE_WORKER_PYTHONPATH",
    "ROUTELAKE_LIVENESS_INTERVAL_S",
}
"""Variables that one process of routelake sets for another, or that only tests set."""


@pytest.mark.parametrize("name", [name for name in BLOCKS if not name.startswith("alert-")])
def test_a_block_has_text_without_gaps(name: str) -> None:
    text = BLOCKS[name]()
    assert len(text) > 40
    assert not re.search(r"(?<!-)\bNone\b|<(class|function|object)|Sentinel|NODEFAULT", text)


def test_every_variable_has_its_row() -> None:
    named = set(re.findall(r"ROUTELAKE_[A-Z_]+", SETTINGS + COMMANDS))
    read = {name for name in source.used_names("ROUTELAKE_") if re.fullmatch(r"ROUTELAKE_[A-Z_]+[A-Z]", name)}
    assert (read | options.variables()) - named - INTERNAL - {"NAMESRV_ADDR"} == set()
    http_settings = source.module("api/http/settings.py")
    of_http = set(re.findall(r"ROUTELAKE_HTTP_[A-Z_]+[A-Z]", ast.get_docstring(http_settings) or ""))
    assert len(of_http) > 5
    assert of_http <= named


def test_every_option_of_a_command_is_on_one_of_the_two_pages() -> None:
    for name, command in options.commands():
        section = COMMANDS.split(f"### {name}\n")[1].split("### ")[0]
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                assert f"`{option.opts[-1]}`" in section + SETTINGS, (name, option.opts)


def test_metrics_are_read_from_the_source() -> None:
    found = {one.name: one for one in metrics.declared()}
    assert len(found) > 35
    assert found["rocketmq_namesrv_requests_total"].labels == ("listener", "request", "code")
    assert found["rocketmq_namesrv_route_request_latency"].type == "histogram"
    assert found["routelake_event_log_wal_bytes"].unit == "bytes"
    assert found["routelake_quota_charged_bytes_total"].unit == "bytes"


def test_every_problem_and_every_operation_is_there() -> None:
    assert all(kind.type in http.problems() for kind in KINDS)
    text = http.endpoints()
    for operation in (
        "POST /v1/brokers/register",
        "GET /v1/topics/{topic}/route",
        "GET /metrics",
        "GET /rocketmq/nsaddr",
    ):
        assert f"### {operation}\n" in text


def test_remarks_have_their_codes() -> None:
    text = results.remarks()
    assert "| `crc32 not match` | 1 SYSTEM_ERROR |" in text
    assert "| `request type {code} not supported` | 3 REQUEST_CODE_NOT_SUPPORTED |" in text


def test_defaults_of_properties_are_those_of_the_code() -> None:
    text = properties.namesrv()
    assert "| scanNotActiveBrokerInterval | int | `5000` |" in text
    assert "| returnOrderTopicConfigToBroker | boolean | `true` | live |" in text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("'plain'", "plain"),
        ("f'a {size} of {limits.most!r}'", "a {size} of {most}"),
        ("f'{len(body)} bytes, {one_line(error)}'", "{size of body} bytes, {error}"),
        ("'one ' + 'two'", "one two"),
        ("f'{a + b} {c[0]} {x if y else z}'", "{a} {c} {...}"),
        ("name", None),
    ],
)
def test_texts_with_placeholders(expression: str, text: str | None) -> None:
    assert source.template(ast.parse(expression, mode="eval").body) == text
