# SPDX-License-Identifier: Apache-2.0
"""What TopicValidator, AttributeParser and AttributeUtil let through."""

from __future__ import annotations

import pytest

from clients.broker.attributes import alter, parse_edits
from schemas.errors import BadRequestError
from schemas.topic_names import group_remark, topic_remark


@pytest.mark.parametrize("name", ["a", "%RETRY%g", "A_z-0|%", "x" * 127, "%RETRY%" + "x" * 248, "%DLQ%" + "x" * 250])
def test_good_topics(name: str) -> None:
    assert topic_remark(name) is None


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        (None, "The specified topic is blank."),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", "contains illegal characters, allowing only"),
        ("a\n", "contains illegal characters"),
        ("a/b", "contains illegal characters"),
        ("../a", "contains illegal characters"),
        ("t\u00f6pic", "contains illegal characters"),
        ("a.b", "contains illegal characters"),
        ("x" * 128, "is longer than topic max length: 127"),
        ("%RETRY%" + "x" * 249, "it's longer than topic max length: 255"),
        ("%DLQ%" + "x" * 251, "it's longer than topic max length: 255"),
    ],
)
def test_bad_topics(name: str | None, remark: str) -> None:
    assert remark in (topic_remark(name) or "")


@pytest.mark.parametrize(
    ("name", "remark"),
    [("", "group is blank"), ("a b", "illegal characters"), ("x" * 121, "longer than group max length: 120")],
)
def test_groups(name: str, remark: str) -> None:
    assert remark in (group_remark(name) or "")
    assert group_remark("x" * 120) is None


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        (None, {}),
        ("", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        ("+a=1,-b,+c=2", {"+a": "1", "-b": "", "+c": "2"}),
    ],
)
def test_edits(text: str | None, edits: dict[str, str]) -> None:
    assert parse_edits(text) == edits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1", "add/alter attribute format is wrong"),
        ("-a=1", "add/alter attribute format is wrong"),
        ("+a=", "add/alter attribute format is wrong"),
        ("a", "delete attribute format is wrong"),
        ("+a=1,,+b=2", "delete attribute format is wrong"),
        ("+a=1,+a=2", "key duplication"),
    ],
)
def test_bad_edits(text: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        parse_edits(text)


def test_altering() -> None:
    assert alter(None, {"+message.type": "FIFO", "+queue.type": "BatchCQ"}) == {
        "message.type": "FIFO",
        "queue.type": "BatchCQ",
    }
    assert alter({"message.type": "FIFO"}, {"+message.type": "DELAY"}) == {"message.type": "DELAY"}
    assert alter({"message.type": "FIFO"}, {"-message.type": ""}) == {}
    assert alter({"message.type": "FIFO"}, {"+reserve.time": "-1"}) == {"message.type": "FIFO", "reserve.time": "-1"}
    assert alter({"message.type": "FIFO"}, {}) == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("current", "edits", "message"),
    [
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic"),
        (None, {"+colour": "red"}, "unsupported key: colour"),
        (None, {"+message.type": "LOUD"}, "value is not in set"),
        (None, {"+reserve.time": "-2"}, "value is not in range"),
        (None, {"+reserve.time": "soon"}, "value is not in range"),
        (None, {"+": "1"}, "kv string format wrong"),
        (None, {"++a": "1"}, "kv string format wrong"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"message.type": "FIFO"}, "wrong format key"),
        ({}, {"+queue.type": "BatchCQ"}, "attempt to update an unchangeable attribute"),
        ({"message.type": "FIFO"}, {"+message.type": "DELAY", "-message.type": ""}, "alter duplication key"),
    ],
)
def test_edits_that_do_not_apply(current: dict[str, str] | None, edits: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        alter(current, edits)
