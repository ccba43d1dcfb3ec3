# SPDX-License-Identifier: Apache-2.0
"""The remoting API, over fold and view, answers like the model of the NameServer, in a hundred thousand requests.

The clock is virtual, so that brokers miss heartbeats for minutes and connections are lost between two requests.
`dev.model.deliberate` has the intended differences.
"""

from __future__ import annotations

import asyncio
import copy
import random
from functools import partial

import pytest

from dev.histories.audit import audit_requests
from dev.histories.seeded import random_histories, shrunk
from dev.histories.steps import Advance, CloseChannel, Send, Step
from dev.model import codes
from dev.model.deliberate import DeliberateModel
from dev.model.settings import Settings
from dev.model.wire import Request, canonical
from dev.support.in_memory import InMemoryNameServer, InstantGateway, InstantHead
from tests.examples.all import EXAMPLES

REQUEST_CODES = frozenset(codes.ALL_CODES)
START_MS = 1_000_000
ORDINARY_STEPS, DEEP_STEPS = 1_500, 300_000
ON_PURPOSE = {"nulls_in_the_body", "start_up_gate"}
"""Examples of rows 14 and 23 of docs/reference/compatibility.md."""


class Disagreement(AssertionError):
    """An answer the model does not allow."""


async def play(history: list[Step], settings: Settings, gateway: type[InstantGateway]) -> int:
    """Play one history, and read everything after it; returns the number of answers compared."""
    model, server = DeliberateModel(copy.copy(settings)), InMemoryNameServer(settings, gateway)
    now_ms, compared = START_MS, 0

    async def compare(request: Request, channel: str, *, binary: bool = False) -> None:
        nonlocal compared
        model.tick(now_ms)
        expected = model.handle(request, now_ms, channel)
        allowed = [canonical(request, answer) for answer in (expected, *model.also_allowed)]
        actual = canonical(request, await server.handle(request, now_ms, channel, binary=binary))
        if actual not in allowed:
            raise Disagreement(f"{request}\nroutelake: {actual}\nmodel: {allowed}")
        compared += 1

    for step in history:
        now_ms += 1
        if isinstance(step, Advance):
            now_ms += step.ms
            model.tick(now_ms)
            await server.advance(now_ms)
        elif isinstance(step, CloseChannel):
            model.tick(now_ms)
            if order_matters(model, step.channel):
                continue
            model.lose_connection(step.channel)
            await server.close_channel(step.channel, now_ms)
        else:
            await compare(step.request(), step.channel, binary=step.binary)
    now_ms += 1
    await server.advance(now_ms)
    for request in audit_requests():
        if request.code in REQUEST_CODES and request.code != codes.QUERY_DATA_VERSION:
            await compare(request, "admin")
    return compared


def order_matters(model: DeliberateModel, channel: str) -> bool:
    """Whether one broker name in two clusters loses both addresses at once: RocketMQ takes them in hash order."""
    bound = [key for key, live in model.tables.broker_live_table.items() if live.channel == channel]
    names = [group.broker_name for key in bound for group, _ in model.tables.groups_of(key)]
    return len(names) > len(set(names)) or len(names) != len(bound)


def disagrees(settings: Settings, gateway: type[InstantGateway], history: list[Step]) -> bool:
    try:
        asyncio.run(play(history, settings, gateway))
    except Disagreement:
        return True
    return False


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("gateway", [InstantGateway, InstantHead], ids=["tables", "head"])
@pytest.mark.parametrize(
    ("timeouts_ms", "advances_ms", "closes"),
    [((60_000,), (), False), ((3_000, 6_000), (1_000, 3_000, 130_000), True)],
    ids=["requests", "silence and lost connections"],
)
def test_answers(
    request: pytest.FixtureRequest,
    timeouts_ms: tuple[int, ...],
    advances_ms: tuple[int, ...],
    closes: bool,
    gateway: type[InstantGateway],
) -> None:
    deep = request.config.getoption("--deep")
    seed = random.SystemRandom().randrange(1 << 32) if deep else 1
    steps = compared = 0
    for settings, history in random_histories(
        seed,
        REQUEST_CODES,
        shared_addresses=False,
        timeouts_ms=timeouts_ms,
        advances_ms=advances_ms,
        closes=closes,
    ):
        try:
            compared += asyncio.run(play(history, settings, gateway))
        except Disagreement as error:
            shorter = shrunk(history, partial(disagrees, settings, gateway))
            played = "\n".join(map(repr, shorter))
            raise AssertionError(f"{error}\nseed {seed}, {settings}, shrunk to:\n{played}") from error
        steps += len(history)
        if steps >= (DEEP_STEPS if deep else ORDINARY_STEPS):
            break
    print(f"{steps} steps agreed, {compared} answers compared")


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ON_PURPOSE))
def test_example(name: str) -> None:
    """RocketMQ and the model give the same answers (test_model_against_namesrv.py, tests/examples/test_examples.py)."""
    example = EXAMPLES[name]
    for gateway in (InstantGateway, InstantHead):
        asyncio.run(play(example.plain_steps, example.settings, gateway))


def test_a_wrong_answer_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: it finds a model that forgets one topic."""
    history: list[Step] = []
    for settings, found in random_histories(1, REQUEST_CODES, shared_addresses=False, timeouts_ms=(60_000,)):
        history, chosen = found, settings
        break
    real = DeliberateModel.get_broker_cluster_info
    monkeypatch.setattr(
        DeliberateModel,
        "get_broker_cluster_info",
        lambda self, asked: real(self, asked) if not self.tables.broker_addr_table else real(DeliberateModel(), asked),
    )
    assert any(isinstance(step, Send) for step in history)
    assert disagrees(chosen, InstantGateway, history)
