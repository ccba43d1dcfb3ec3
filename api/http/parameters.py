# SPDX-License-Identifier: Apache-2.0
"""Parameters that pages of several subjects have: names in paths and queries, If-None-Match."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path
from pydantic import AfterValidator

from api.http.problems import BAD_PARAMETER, FieldError, fields_problem
from api.names import cluster_name_problem

TopicPath = Annotated[str, Path(description="The topic.", examples=["orders"])]
IfNoneMatch = Annotated[str | None, Header(description="ETag of the copy that the client has.")]


def check_name(problem: str | None, field: str) -> None:
    """Refuse a name in a path or query.

    Raises:
        Problem: 400.
    """
    if problem is not None:
        raise fields_problem(BAD_PARAMETER, [FieldError(field, problem)])


def _cluster(name: str | None) -> str | None:
    # An empty one must not mean "all": it is what an unset shell variable leaves.
    problem = None if name is None else cluster_name_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


Cluster = Annotated[str | None, AfterValidator(_cluster)]
