# SPDX-License-Identifier: Apache-2.0
"""Block `metrics`: every metric of a gateway, as `api.gateway.metrics` declares it."""

from __future__ import annotations

import ast
import re
from typing import Final, NamedTuple

from dev.reference.markdown import code, sentence, table
from dev.reference.source import module, template

_TYPES: Final = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "gauge": "gauge",
    "Metric": "gauge",
    "Histogram": "histogram",
    "HistogramMetricFamily": "histogram",
}
"""Function that makes a metric -> its type."""
_UNITS: Final = {
    "seconds": re.compile(r"_seconds$|_(latency|freshness)$"),
    "bytes": re.compile(r"_bytes$"),
    "ratio": re.compile(r"_ratio$"),
    "percent": re.compile(r"_percent$"),
}
_LABELS_OF: Final = {"routelake_delta_version": ("table",), "routelake_state_machine_version": ("of",)}
"""Labels of metrics with samples that are added one by one."""


class Declared(NamedTuple):
    """One metric: its name as Prometheus shows it, and what a scrape tells of it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        """The unit, which the name ends with; empty for a number of things."""
        base = self.name.removesuffix("_total")
        return next((unit for unit, ending in _UNITS.items() if ending.search(base)), "")


def declared() -> list[Declared]:
    """Every metric, sorted by name.

    Raises:
        ValueError: A metric is declared in a way that cannot be read here.
    """
    found = []
    for function in ast.walk(module("api/gateway/metrics.py")):
        if isinstance(function, ast.FunctionDef):
            texts = _local_texts(function)
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _TYPES:
                    found += [one] if (one := _declared(call, texts)) else []
    return sorted(set(found))


def block() -> str:
    """Return the metrics as a table."""
    rows = (
        (code(one.name), one.type, one.unit, ", ".join(map(code, one.labels)), sentence(one.help)) for one in declared()
    )
    return table(("metric", "type", "unit", "labels", "meaning"), rows)


def _declared(call: ast.Call, texts: dict[str, str]) -> Declared | None:
    def text(position: int) -> str | None:
        node = call.args[position] if position < len(call.args) else None
        return texts.get(node.id) if isinstance(node, ast.Name) else template(node)

    made = call.func.id if isinstance(call.func, ast.Name) else ""
    name, about = text(0), text(1)
    if name is None and made == "Gauge":
        return None  # within the function `gauge`: its calls are read
    if name is None or about is None:
        raise ValueError(f"api/gateway/metrics.py:{call.lineno}: name and help of a metric must be plain texts")
    labels = next((keyword.value for keyword in call.keywords if keyword.arg == "labels"), None)
    if labels is None and len(call.args) > 2 and made in ("Counter", "Gauge", "Histogram"):
        labels = call.args[2]
    named = tuple(ast.literal_eval(labels)) if isinstance(labels, ast.Tuple) else _LABELS_OF.get(name, ())
    type_ = _TYPES[made]
    return Declared(name + ("_total" if type_ == "counter" else ""), type_, named, about)


def _local_texts(function: ast.FunctionDef) -> dict[str, str]:
    """Texts that a function gives names to: `text = "..."`, `name, text = "...", "..."`."""
    found = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and (text := template(value)) is not None:
                    found[name.id] = text
    return found
