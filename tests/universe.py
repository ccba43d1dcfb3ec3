"""Which names, addresses and topics the brokers of a generated history may take."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from tests.histories import ADDRESSES, BROKERS, CLUSTERS, NAMESPACES, NOWHERE, TOPICS

T = TypeVar("T")

# Names and topics in play. The narrow universes make histories in which one group goes through a great deal.
UNIVERSES = (
    (BROKERS[:1], (TOPICS[0], TOPICS[5])),
    (BROKERS[:2], TOPICS[:3]),
    (BROKERS, TOPICS),
)


def often(usual: T, *rare: T) -> st.SearchStrategy[T]:
    """Mostly the first value."""
    return st.sampled_from([usual] * (3 * len(rare)) + list(rare))


def channel_of(identity: dict[str, str]) -> str:
    """The connection a broker keeps to the NameServer."""
    return f"{identity['clusterName']}/{identity['brokerAddr']}"


class Universe:
    """The brokers of one history.

    A broker usually keeps to its own: name decides cluster, name and id decide the address. Now and then it strays.

    Attributes:
        topics: In play.
        any_broker: A name, sometimes one that never registers; likewise the others.
    """

    def __init__(
        self, names: tuple[str, ...], topics: tuple[str, ...], *, shared_addresses: bool, shared_names: bool
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
        self.any_topic = st.sampled_from((*topics, *topics, NOWHERE[2]))
        self.any_broker = st.sampled_from((*names, *names, NOWHERE[1]))
        self.any_cluster = st.sampled_from((*CLUSTERS, *CLUSTERS, NOWHERE[0]))
        self.any_namespace = st.sampled_from((*NAMESPACES, *NAMESPACES, NOWHERE[3]))
        self.any_key = st.sampled_from((*topics[:2], NOWHERE[2]))

    def identity(self) -> st.SearchStrategy[dict[str, str]]:
        """The four header fields that say who a broker is."""
        return _identities(self.names, self._shared_addresses, self._shared_names)

    def member(self, name: str, broker_id: int) -> dict[str, str]:
        """The four header fields of a broker that keeps to its own."""
        address = _address(name, broker_id, self._shared_addresses)
        return {"clusterName": _home(name), "brokerName": name, "brokerAddr": address, "brokerId": str(broker_id)}


def _home(name: str) -> str:
    """The cluster a broker name belongs to."""
    return CLUSTERS[0] if name in BROKERS[:2] else CLUSTERS[1]


def _address(name: str, machine: int, shared: bool) -> str:
    """The address of a broker name's machine."""
    if shared:
        return ADDRESSES[(BROKERS.index(name) * 3 + machine) % len(ADDRESSES)]
    return f"10.0.0.{10 * BROKERS.index(name) + machine + 1}:10911"


@st.composite
def _identities(draw: st.DrawFn, names: tuple[str, ...], shared_addresses: bool, shared_names: bool) -> dict[str, str]:
    name = draw(st.sampled_from(names))
    broker_id = draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3)))
    cluster = _home(name)
    if shared_names:
        cluster = draw(often(cluster, cluster, *CLUSTERS))
    address = _address(name, draw(often(broker_id, 0, 1, 2)), shared_addresses)
    if shared_addresses:
        address = draw(often(address, *ADDRESSES))
    return {"clusterName": cluster, "brokerName": name, "brokerAddr": address, "brokerId": str(broker_id)}
