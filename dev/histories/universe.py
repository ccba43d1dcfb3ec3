# SPDX-License-Identifier: Apache-2.0
"""Names, addresses and topics of the brokers of a generated history.

Every choice a generator makes goes through one function, `pick`, which takes one of several options. Hypothesis can be
behind it, and then histories shrink (`dev.histories.strategies`); or a seeded generator, and then they cost next to nothing
(`dev.histories.seeded`). Weights are options that are listed more than once; the first option is the simplest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from dev.histories.steps import ADDRESSES, BROKERS, CLUSTERS, NAMESPACES, NOWHERE, TOPICS

T = TypeVar("T")

RARELY = (False, False, False, True)
EVENLY = (False, True)


class Pick(Protocol):
    """Takes one of several options."""

    def __call__(self, options: Sequence[T]) -> T:
        """One of them."""


class Universe:
    """The brokers of one history.

    A broker usually keeps to its own: name decides cluster, name and id decide the address. Now and then it strays.

    Attributes:
        names: Broker names in play.
        topics: Topics in play.
        any_broker: Names in play, and one that never registers; likewise the others.
    """

    def __init__(
        self,
        names: tuple[str, ...] = BROKERS,
        topics: tuple[str, ...] = TOPICS,
        *,
        shared_addresses: bool = True,
        shared_names: bool = True,
    ) -> None:
        """Narrow the universe.

        Args:
            names: Broker names in play.
            topics: Topics in play.
            shared_addresses: Whether an address may serve several broker names or clusters.
            shared_names: Whether a broker name may appear in several clusters.
        """
        self.names, self.topics = names, topics
        self._shared_addresses, self._shared_names = shared_addresses, shared_names
        self.any_topic = (*topics, *topics, NOWHERE[2])
        self.any_broker = (*names, *names, NOWHERE[1])
        self.any_cluster = (*CLUSTERS, *CLUSTERS, NOWHERE[0])
        self.any_namespace = (*NAMESPACES, *NAMESPACES, NOWHERE[3])
        self.any_key = (*topics[:2], NOWHERE[2])

    def member(self, name: str, broker_id: int) -> dict[str, str]:
        """The four header fields of a broker that keeps to its own."""
        cluster = CLUSTERS[0] if name in BROKERS[:2] else CLUSTERS[1]
        address = self._address(name, broker_id)
        return {"clusterName": cluster, "brokerName": name, "brokerAddr": address, "brokerId": str(broker_id)}

    def identity(self, pick: Pick) -> dict[str, str]:
        """The four header fields of any broker."""
        identity = self.member(pick(self.names), pick((0, 0, 0, 1, 1, 2, 3)))
        if pick(RARELY):
            identity["brokerAddr"] = self._address(identity["brokerName"], pick((0, 1, 2)))
        if self._shared_addresses and pick(RARELY):
            identity["brokerAddr"] = pick(ADDRESSES)
        if self._shared_names and pick(RARELY):
            identity["clusterName"] = pick(CLUSTERS)
        return identity

    def _address(self, name: str, machine: int) -> str:
        """The address of a broker name's machine."""
        if self._shared_addresses:
            return ADDRESSES[(BROKERS.index(name) * 3 + machine) % len(ADDRESSES)]
        return f"10.0.0.{10 * BROKERS.index(name) + machine + 1}:10911"


def universes(*, shared_addresses: bool = True, shared_names: bool = True) -> tuple[Universe, ...]:
    """From narrow, where one group goes through a great deal, to wide.

    Args:
        shared_addresses: Whether an address may serve several broker names or clusters.
        shared_names: Whether a broker name may appear in several clusters.
    """
    in_play = ((BROKERS[:1], (TOPICS[0], TOPICS[5])), (BROKERS[:2], TOPICS[:3]), (BROKERS, TOPICS))
    return tuple(
        Universe(names, topics, shared_addresses=shared_addresses, shared_names=shared_names)
        for names, topics in in_play
    )


def channel_of(identity: dict[str, str]) -> str:
    """The connection a broker keeps to the NameServer."""
    return f"{identity['clusterName']}/{identity['brokerAddr']}"
