# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML page with a chart, the rows, and the SQL. The page has no script and loads no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from lake.history.reports import ReportSpec

MAX_ROWS: Final = 5_000
_MAX_BARS: Final = 24
_BAR_PX: Final = 22
_LABEL_PX: Final = 260
_BARS_PX: Final = 560
_VALUE_PX: Final = 100
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --paper: #fff; --line: #d5dbe3;
  --s0: #2f6fb7; --s1: #b3541e; --s2: #7a3e9d; --s3: #2e7d4f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --dim: #9aa6b5; --paper: #14181e; --line: #333c48;
  --s0: #6ea8e6; --s1: #e89a63; --s2: #c08ae0; --s3: #6fc492; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; font: 15px/1.45 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } p { color: var(--dim); margin: .2rem 0 1rem; max-width: 55rem; }
svg { width: 100%; height: auto; } svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
div { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; } td.n, th.n { text-align: right; }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .8rem; font-size: 13px; }
""".strip()


def page(
    report: ReportSpec,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    window: str,
    query: str,
    time_text: Callable[[datetime], str],
) -> str:
    """Make the HTML page of a report.

    Args:
        report: The report.
        columns: Names of the columns.
        rows: Rows of texts, numbers, aware times and None. All are in the chart, and the first `MAX_ROWS` in the table.
        window: Text with the start, end and time zone of the window.
        query: SQL of the report.
        time_text: Function that formats a time.
    """

    def shown(value: object) -> str:
        return time_text(value) if isinstance(value, datetime) else _text(value)

    numeric = [any(isinstance(row[place], int | float) for row in rows) for place in range(len(columns))]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(report.title)}</h1><p>{escape(window)}. A row is {escape(report.comment)}.</p>",
        *_chart(report, columns, rows, shown),
        *_table(columns, numeric, rows, shown),
        f"<h2>As SQL</h2><pre>{escape(query)}</pre></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(
    columns: Sequence[str], numeric: Sequence[bool], rows: Sequence[Sequence[Any]], shown: Callable[[object], str]
) -> Iterator[str]:
    if not rows:
        yield "<p>There is nothing to report.</p>"
        return
    kinds = [' class="n"' if each else "" for each in numeric]
    titles = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True))
    yield f"<div><table><thead><tr>{titles}</tr></thead><tbody>"
    for row in rows[:MAX_ROWS]:
        cells = (f"<td{kind}>{escape(shown(value))}</td>" for value, kind in zip(row, kinds, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if len(rows) > MAX_ROWS:
        yield f"<p>There are {len(rows) - MAX_ROWS:,} more rows; CSV has all.</p>"


def _chart(
    report: ReportSpec, columns: Sequence[str], rows: Sequence[Sequence[Any]], shown: Callable[[object], str]
) -> Iterator[str]:
    """A bar for each label, with a section for each value of the report. Times are in order, other labels by size."""
    label, values = columns.index(report.label), [columns.index(name) for name in report.values]
    sums: dict[Any, list[float]] = {}
    for row in rows:
        of_label = sums.setdefault(row[label], [0] * len(values))
        for place, column in enumerate(values):
            of_label[place] += row[column] or 0
    bars = list(sums.items())
    if not all(isinstance(name, datetime) for name in sums):
        bars.sort(key=lambda bar: -sum(bar[1]))
        bars = bars[:_MAX_BARS]
    most = max((sum(each) for _, each in bars), default=0)
    if not most:
        return
    legend = 1 if len(values) > 1 else 0
    width, height = _LABEL_PX + _BARS_PX + _VALUE_PX, _BAR_PX * (len(bars) + legend)
    what = f"{', '.join(report.values)} by {report.label}"
    yield f'<svg role="img" aria-label="{escape(what)}; the table has all" viewBox="0 0 {width} {height}">'
    if legend:
        for place, name in enumerate(report.values):
            left = _LABEL_PX + place * 130
            yield f'<rect class="s{place}" x="{left}" y="5" width="12" height="12"/>'
            yield f'<text x="{left + 18}" y="16">{escape(name)}</text>'
    for number, (name, sizes) in enumerate(bars, legend):
        top, right = number * _BAR_PX, float(_LABEL_PX)
        text = shown(name) or "-"
        yield f'<text x="{_LABEL_PX - 8}" y="{top + 15}" text-anchor="end">{escape(_short(text))}</text>'
        for place, size in enumerate(sizes):
            wide = size / most * _BARS_PX
            if size:
                yield (
                    f'<rect class="s{place}" x="{right:.1f}" y="{top + 3}" width="{max(wide, 1):.1f}" '
                    f'height="{_BAR_PX - 6}">'
                    f"<title>{escape(text)}: {escape(report.values[place])} {escape(shown(size))}</title></rect>"
                )
            right += wide
        total = sum(sizes)
        yield f'<text x="{right + 6:.1f}" y="{top + 15}">{escape(shown(round(total, 3)))}</text>'
    yield "</svg>"
    if len(bars) < len(sums):
        yield f"<p>The chart has the {_MAX_BARS} largest of {len(sums):,}.</p>"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return "".join(char if char.isprintable() else "?" for char in str(value))


def _short(text: str) -> str:
    return text if len(text) <= 36 else f"{text[:35]}\N{HORIZONTAL ELLIPSIS}"
