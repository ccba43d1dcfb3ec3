# SPDX-License-Identifier: Apache-2.0
"""Choice of the next NameServer. Pure: time and randomness are arguments.

The chosen server is kept while it answers, even with an error. If it is unreachable or does not answer, the next one in
the (shuffled) list is asked within the same call. The failed server is skipped for a time that doubles with each
failure. If all servers are skipped, the one that is due first is asked first, so a call never fails without a try.
Preferred servers (those that announce changes immediately) come before the others, unless they are skipped.

RocketMQ's client does not retry within a call and has no back-off. Its call fails, and its next call asks the next one.

Source (5.5.0): NettyRemotingClient.updateNameServerAddressList, getAndCreateNameserverChannelAsync.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec


class BackOff(msgspec.Struct, frozen=True):
    """Back-off of a failed server: doubling from ``initial_s`` to ``max_s``, minus a random part up to half."""

    initial_s: float = 1.0
    max_s: float = 30.0

    def delay_s(self, failures: int, choice: random.Random) -> float:
        """Return the delay after so many failures in a row, at least one, in seconds."""
        whole = min(self.max_s, self.initial_s * 2.0 ** min(failures - 1, 30))
        return whole * choice.uniform(0.5, 1.0)


class _Failing(msgspec.Struct, frozen=True):
    failures: int
    until_s: float


class NameServers:
    """The list of NameServers and their failures. Before the first answer, no server is ``chosen`` (None)."""

    def __init__(
        self,
        addresses: Sequence[str],
        choice: random.Random,
        back_off: BackOff | None = None,
        preferred: Callable[[str], bool] | None = None,
    ) -> None:
        """Shuffle the list.

        Args:
            addresses: The NameServers.
            choice: Source of randomness for the order and the back-off.
            back_off: Time for which a failing server is skipped.
            preferred: Function that selects the addresses to ask first. None: all are equal.
        """
        self._preferred = preferred or (lambda address: True)
        self.chosen: str | None = None
        self.addresses: list[str] = []
        self._choice = choice
        self._back_off = back_off or BackOff()
        self._failing: dict[str, _Failing] = {}
        self._next = 0
        self.update(addresses)

    def update(self, addresses: Sequence[str]) -> list[str]:
        """Use another list (updateNameServerAddressList). An empty list, or one with the same members, is ignored.

        Returns:
            The removed addresses. Their connections can be closed.
        """
        if not addresses or set(addresses) == set(self.addresses):
            return []
        gone = [address for address in self.addresses if address not in addresses]
        self.addresses = list(dict.fromkeys(addresses))
        self._choice.shuffle(self.addresses)
        self._next = 0
        if self.chosen not in self.addresses:
            self.chosen = None
        for address in gone:
            self._failing.pop(address, None)
        return gone

    def candidates(self, now_s: float, *, only_ready: bool = False) -> list[str]:
        """Return the servers to ask, in order, each once.

        Args:
            now_s: Current time of a monotonic clock, in seconds.
            only_ready: Whether to leave out servers that are skipped now. Then the list may be empty.
        """
        first = self._next if self.chosen is None else self.addresses.index(self.chosen)
        turn = self.addresses[first:] + self.addresses[:first]
        ready = [address for address in turn if self._rest_s(address, now_s) <= 0]
        ready.sort(key=self._preferred, reverse=True)
        if only_ready:
            return ready
        return ready + sorted(set(turn) - set(ready), key=lambda address: self._rest_s(address, now_s))

    def next_ready_s(self, now_s: float) -> float:
        """Return the time until a server may be asked again, in seconds. It is 0 if one may be asked now."""
        return max(0.0, min(self._rest_s(address, now_s) for address in self.addresses))

    def answered(self, address: str) -> None:
        """Note that a server has answered. It becomes the chosen one."""
        self._failing.pop(address, None)
        if address in self.addresses:
            self.chosen = address

    def failed(self, address: str, now_s: float) -> None:
        """Note that a server has failed. It is skipped for some time, and the next one is asked."""
        if address not in self.addresses:
            return
        known = self._failing.get(address)
        if known is not None and now_s < known.until_s:
            return  # several requests have noticed the same failure
        failures = 1 if known is None else known.failures + 1
        self._failing[address] = _Failing(failures, now_s + self._back_off.delay_s(failures, self._choice))
        if self.chosen in (None, address):
            self.chosen = None
            self._next = (self.addresses.index(address) + 1) % len(self.addresses)

    def _rest_s(self, address: str, now_s: float) -> float:
        known = self._failing.get(address)
        return 0.0 if known is None else known.until_s - now_s
