# SPDX-License-Identifier: Apache-2.0
"""A command is answered as visible only when everything before it on the log is folded, whoever it names.

It is tempting to answer at once what the view says can change nothing. But rules reach further than names: a master
nobody knows takes the write permission of its slaves' topics with it when it is unregistered. Deep runs of the
differential test met that answer, and the old permission behind it, by chance; here the fold stands still.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.events import (
    Actor,
    AddWritePerm,
    AnyEvent,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    UnregisterBroker,
    WipeWritePerm,
)
from tests.examples.parts import ADDR1, ADDR2, ADDR3, C1, T1, A, register, unregister
from tests.histories.steps import Send
from tests.model import codes
from tests.model.client import RemotingClient
from tests.model.wire import Response
from tests.support.local import LocalGateway, LocalLake

ACTOR = Actor(gateway="local", via="remoting")
ROUTE = Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1}).request()


def unregistration(name: str, addr: str) -> UnregisterBroker:
    return UnregisterBroker(actor=ACTOR, cluster_name=C1, broker_name=name, broker_addr=addr, broker_id=0)


COMMANDS: dict[str, AnyEvent] = {
    "unregister": unregistration(A, ADDR2),
    "unregister-the-master-nobody-knows": unregistration(A, ADDR1),
    "unregister-nobody": unregistration("nobody", ADDR1),
    "delete-topic": DeleteTopic(actor=ACTOR, topic=T1),
    "delete-no-topic": DeleteTopic(actor=ACTOR, topic="none"),
    "wipe-nobody": WipeWritePerm(actor=ACTOR, broker_name="nobody"),
    "add-to-nobody": AddWritePerm(actor=ACTOR, broker_name="nobody"),
    "put": PutKvConfig(actor=ACTOR, namespace="n", key="k", value="v"),
    "delete-no-key": DeleteKvConfig(actor=ACTOR, namespace="n", key="none"),
}


def register_slaves(slaves: RemotingClient) -> None:
    """A group without a master, whose first slave brought topics that may still be written to."""
    slaves.call(register(A, ADDR2, 1, acting=False).request())
    slaves.call(register(A, ADDR3, 2, acting=True).request())


def is_visible(local: LocalGateway, event: AnyEvent) -> bool:
    return local.loop.run(local.gateway.command(event)).visible


def perm(answer: Response) -> int:
    return int(json.loads(answer.body)["queueDatas"][0]["perm"])


@pytest.mark.parametrize("event", COMMANDS.values(), ids=COMMANDS)
def test_nothing_is_visible_before_the_fold_has_passed_it(tmp_path: Path, event: AnyEvent) -> None:
    with LocalLake(tmp_path) as lake:
        with lake.gateway(visible_wait_s=0.05) as local, local.connect() as slaves:
            register_slaves(slaves)
            lake.fold.wait_for(lake.log.end().next_offset - 1)
            lake.fold.pause()
            assert not is_visible(local, event)
            lake.fold.resume()
        with lake.gateway() as local:
            assert is_visible(local, event)


def test_the_unregistration_of_an_unknown_master_is_seen_at_once(tmp_path: Path) -> None:
    with LocalLake(tmp_path) as lake, lake.gateway() as local, local.connect() as slaves:
        register_slaves(slaves)
        assert perm(slaves.call(ROUTE)) == 6
        slaves.call(unregister(A, ADDR1).request())
        assert perm(slaves.call(ROUTE)) == 4
