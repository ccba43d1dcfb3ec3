# SPDX-License-Identifier: Apache-2.0
"""The model with routelake's deliberate differences, and nothing else changed.

Each is a numbered row of docs/reference/compatibility.md. A history compared with this model agrees in everything else.

* 2: strategies give every brokerName addresses of its own (``shared_addresses=False``).
* 3: `tick` drops an expired live row if its address was superseded; RocketMQ keeps it.
* 4: `tick` runs before every request, so that a broker expires exactly at its deadline.
* 5: `lose_connection` unregisters every broker bound to the connection, not the first alone.
* Expiry closes no connection: in RocketMQ the scan closes the connection of the silent broker, which may take another
  broker on the same connection along.
* If a brokerName first appeared in another cluster, its broker is unregistered like any other when it misses its
  heartbeats or loses its connection. RocketMQ compares the group's cluster, finds nothing, and keeps the address for good.
* UPDATE_NAMESRV_CONFIG refuses what only a start can set, and all that comes with it; GET_NAMESRV_CONFIG does not show
  clusterTest, which is not here.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable

from dev.model import codes
from dev.model.namesrv import NameServerModel
from dev.model.route_tables import BrokerAddrInfo, UnRegisterBroker
from dev.model.settings import parse_properties
from dev.model.wire import Request, Response

FIXED_SETTINGS = {"clusterTest", "needWaitForService", "waitSecondsForService"}
"""Settings of the model that only a start of routelake can set."""


class DeliberateModel(NameServerModel):
    """Model of the answers that routelake should give."""

    def tick(self, now_ms: int) -> None:
        """Unregister brokers that are past their deadlines, in the order of these (RocketMQ: in hash order)."""
        deadlines = sorted(
            (live.last_update_timestamp + live.heartbeat_timeout_millis, key)
            for key, live in self.tables.broker_live_table.items()
        )
        for deadline_ms, key in deadlines:
            if deadline_ms < now_ms and not self._unregister(key):
                self.tables.broker_live_table.pop(key, None)
                self.tables.filter_server_table.pop(key, None)

    def lose_connection(self, channel: Hashable) -> None:
        """Unregister every broker bound to a connection. A broker with a superseded address only loses the binding."""
        # In the order of the gateway's events; RocketMQ takes one broker name in two clusters in hash order.
        for key, live in sorted(self.tables.broker_live_table.items(), key=lambda item: item[0]):
            if live.channel == channel:
                live.channel = None
                self._unregister(key)

    def update_config(self, request: Request) -> Response:
        """318. What is malformed or black-listed is answered before what is fixed."""
        trial = NameServerModel(copy.copy(self.settings)).update_config(request)
        if trial.code != codes.SUCCESS or FIXED_SETTINGS.isdisjoint(parse_properties(request.body.decode())):
            return super().update_config(request)
        return Response(codes.NO_PERMISSION)

    def get_config(self, request: Request) -> Response:
        """319."""
        lines = super().get_config(request).body.splitlines(keepends=True)
        return Response(codes.SUCCESS, body=b"".join(line for line in lines if not line.startswith(b"clusterTest=")))

    def _unregister(self, key: BrokerAddrInfo) -> bool:
        found = self.tables.groups_of(key)
        if not found:
            others = any(
                other != key and other.broker_addr == key.broker_addr for other in self.tables.broker_live_table
            )
            found = [
                (data, broker_id)
                for data in self.tables.broker_addr_table.values()
                for broker_id, addr in data.broker_addrs.items()
                if addr == key.broker_addr and not others
            ]
        for data, broker_id in found[:1]:
            request = UnRegisterBroker(data.broker_name, key.broker_addr, key.cluster_name, broker_id)
            self.tables.un_register_broker([request])
        return bool(found)
