# SPDX-License-Identifier: Apache-2.0
"""Blocks about alerts, from deploy/mixin/alerts.yaml: two lists, and the head of each alert's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

import yaml

from dev.docs import ROOT
from dev.reference.markdown import code, table

MIXIN: Final = ROOT / "deploy" / "mixin"
CHART_FILES: Final = ROOT / "deploy" / "helm" / "routelake" / "files"
COPIED: Final = ("alerts.yaml", "rules.yaml")
"""Files of the mixin that the chart has copies of: a chart reads no file outside of its folder."""


@cache
def rules() -> tuple[dict[str, Any], ...]:
    """The alerts in the order of the file."""
    groups = yaml.safe_load((MIXIN / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


def reference() -> str:
    """Return the alerts with their conditions."""
    return table(
        ("alert", "severity", "condition", "for"),
        ((_link(rule, "../how-to/operate/alerts/"), *_facts(rule)) for rule in rules()),
    )


def how_to() -> str:
    """Return the alerts with their messages."""
    rows = ((_link(rule, ""), rule["labels"]["severity"], rule["annotations"]["summary"]) for rule in rules())
    return table(("alert", "severity", "message"), rows)


def heads() -> Mapping[str, Callable[[], str]]:
    """Return the block of each alert's own page."""
    return {f"alert-{rule['alert']}": partial(_head, rule) for rule in rules()}


def _head(rule: Mapping[str, Any]) -> str:
    severity, condition, after = _facts(rule)
    return table(
        ("severity", "message", "condition", "for"), [(severity, rule["annotations"]["summary"], condition, after)]
    )


def _facts(rule: Mapping[str, Any]) -> tuple[str, str, str]:
    return rule["labels"]["severity"], code(rule["expr"]), rule.get("for", "at once")


def _link(rule: Mapping[str, Any], folder: str) -> str:
    return f"[{rule['alert']}]({folder}{rule['alert']}.md)"
