# SPDX-License-Identifier: Apache-2.0
"""Everything that happened between two cuts, newest first, page by page."""

from __future__ import annotations

import msgspec

from lake.history.as_of import NOW
from lake.history.as_of_resolver import AsOf, between, or_else
from lake.history.changelog import Change, ChangePosition, Page, read_page
from lake.history.cursors import cursor_of, place_of
from lake.history.filters import Filters
from lake.history.history import History, check_limit
from schemas.errors import BadRequestError


class ChangesAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A question. ``from_`` and ``to`` are cuts as `History.resolve` takes them; None: the beginning, and now."""

    from_: str | None = None
    to: str | None = None
    filters: Filters = Filters()


class Found(msgspec.Struct, frozen=True):
    """A page, and where the next one begins; None at the end."""

    changes: list[Change]
    next_cursor: str | None


def cuts(history: History, from_: str | None, to: str | None, *, needs_from: bool = False) -> tuple[AsOf | None, AsOf]:
    """The two cuts of a question.

    Args:
        history: Knows them.
        from_: The first, as `ChangesAsked` has it.
        to: The second.
        needs_from: Whether the question cannot do without the first.

    Raises:
        BadRequestError: One is none, or ``from`` is not before ``to``.
        RoutelakeError: As `History.resolve`.
    """
    after = history.resolve(NOW if to is None else to, "to")
    with or_else("the first moment is 1" if needs_from else "leave out from to begin there"):
        before = None if from_ is None else history.resolve(from_, "from")
    if before is not None and before.place > after.place:
        what = f"from must not be after to: {from_} is after {NOW if to is None else to}"
        raise BadRequestError(what, field="from", value=from_)
    return before, after


def all_changes(history: History, asked: ChangesAsked, *, limit: int = 100, cursor: str | None = None) -> Found:
    """One page.

    Raises:
        BadRequestError: A filter, a cut, the limit or the cursor is none.
        RoutelakeError: As `History.resolve`.
    """
    asked.filters.check()
    check_limit(limit)
    place = None if cursor is None else place_of(history, cursor, asked, ChangePosition)
    if history.is_empty():
        return Found([], None)
    before, after = cuts(history, asked.from_, asked.to)
    with history.reading_changes() as table:
        where = [between(before, after), asked.filters.of_rows(table), asked.filters.of_causes()]
        page = read_page(
            table,
            Page(
                newest_epoch=after.last_epoch,
                oldest_epoch=0 if before is None else before.commit.epoch,
                limit=limit,
                before=place,
            ),
            " AND ".join(f"({term})" for term in where if term is not None),
        )
    if page.before is None:
        return Found(page.changes, None)
    return Found(page.changes, cursor_of(history, asked, ChangePosition.parse(page.before, "cursor")))
