# SPDX-License-Identifier: Apache-2.0
"""The oracle: a deliberately naive transliteration of the NameServer (RocketMQ 5.5.0), one method per request code.

It is written from the reference and the Java, imports nothing from the product and is never optimised. Time is an
argument, a connection is any hashable value, and nothing happens by itself: unregistration, which the real NameServer
queues and batches, is done before `handle` returns, as a batch of one.

Where the Java leaves a choice to hash order, `also_allowed` lists the other answers that would be as right, and
`close_is_unspecified` and `scan_is_unspecified` warn of effects that depend on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from typing import Any

from dev.model import codes
from dev.model.bodies import decode_registration, parse_data_version, parse_json, parse_object
from dev.model.headers import (
    BOOLEAN,
    INT,
    LONG,
    STRING,
    JavaError,
    NullPointer,
    parse_boolean,
    read_header,
)
from dev.model.javajson import encode
from dev.model.kvconfig import ORDER_TOPIC_CONFIG, KVConfigModel
from dev.model.route_answers import (
    cluster_info_json,
    filter_by_zone_name,
    pickup_topic_route_data,
    system_topics,
    topics_by_cluster,
    unit_topic_lists,
)
from dev.model.route_tables import Notification, QueueData, RouteTables, UnRegisterBroker
from dev.model.settings import Settings, parse_properties
from dev.model.wire import Request, Response

V4_9_4 = 401

_ALWAYS_BLACK_LISTED = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")

_BROKER_HEADER = {"brokerName": STRING, "brokerAddr": STRING, "clusterName": STRING, "brokerId": LONG}


class NameServerModel:
    """NamesrvController with its processors and managers.

    Attributes:
        settings: Changed on line by 318.
        tables: The six route tables.
        kv: The KV configuration.
        also_allowed: Other answers to the last request that hash order allows.
    """

    def __init__(self, settings: Settings | None = None, started_ms: int = 0) -> None:
        """Start empty.

        Args:
            settings: NamesrvConfig switches; the defaults when None.
            started_ms: Start of the server, for the start-up gate of route queries.
        """
        self.settings = settings or Settings()
        self.tables = RouteTables(self.settings)
        self.kv = KVConfigModel()
        self.also_allowed: list[Response] = []
        self._started_ms = started_ms
        self._black_list = {*_ALWAYS_BLACK_LISTED, *self.settings.config_black_list.split(";")}
        self._now_ms = started_ms
        self._channel: Hashable = None
        self._methods = {
            codes.PUT_KV_CONFIG: self.put_kv_config,
            codes.GET_KV_CONFIG: self.get_kv_config,
            codes.DELETE_KV_CONFIG: self.delete_kv_config,
            codes.REGISTER_BROKER: self.register_broker,
            codes.UNREGISTER_BROKER: self.unregister_broker,
            codes.GET_ROUTEINFO_BY_TOPIC: self.get_route_info_by_topic,
            codes.GET_BROKER_CLUSTER_INFO: self.get_broker_cluster_info,
            codes.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm_of_broker,
            codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topic_list,
            codes.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            codes.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            codes.GET_KVLIST_BY_NAMESPACE: self.get_kv_list_by_namespace,
            codes.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            codes.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topic_list,
            codes.GET_UNIT_TOPIC_LIST: self.get_unit_topic_list,
            codes.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_has_unit_sub_topic_list,
            codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_has_unit_sub_un_unit_topic_list,
            codes.UPDATE_NAMESRV_CONFIG: self.update_config,
            codes.GET_NAMESRV_CONFIG: self.get_config,
            codes.QUERY_DATA_VERSION: self.query_data_version,
            codes.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm_of_broker,
            codes.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
            codes.BROKER_HEARTBEAT: self.broker_heartbeat,
        }

    # --- events ---

    def handle(self, request: Request, now_ms: int, channel: Hashable = None) -> Response:
        """NettyRemotingAbstract.processRequestCommand and DefaultRequestProcessor.processRequest.

        Args:
            request: Request of a peer. For a oneway request the answer is computed all the same; the peer gets none.
            now_ms: The server's clock.
            channel: The connection it came over.
        """
        self._now_ms, self._channel = now_ms, channel
        self.also_allowed = []
        method = self._methods.get(request.code)
        if method is None:
            return Response(codes.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {request.code} not supported")
        try:
            return method(request)
        except JavaError as error:
            return Response(codes.SYSTEM_ERROR, remark=repr(error))

    def close_channel(self, channel: Hashable, now_ms: int) -> None:
        """BrokerHousekeepingService.onChannelClose, onChannelException, onChannelIdle."""
        self._now_ms = now_ms
        self.tables.on_channel_destroy(channel)

    def scan(self, now_ms: int) -> None:
        """RouteInfoManager.scanNotActiveBroker; the channels it closes are then destroyed in their turn."""
        self._now_ms = now_ms
        for channel in self.tables.scan_not_active_broker(now_ms):
            self.tables.on_channel_destroy(channel)

    def close_is_unspecified(self, channel: Hashable) -> bool:
        """Return whether closing this channel has an effect that depends on hash order."""
        return self.tables.close_is_unspecified(channel)

    def scan_is_unspecified(self, now_ms: int) -> bool:
        """Return whether a scan at this time has an effect that depends on hash order."""
        return self.tables.scan_is_unspecified(now_ms)

    def take_notifications(self) -> list[Notification]:
        """The NOTIFY_MIN_BROKER_ID_CHANGE requests sent since the last call."""
        sent, self.tables.notifications = self.tables.notifications, []
        return sent

    # --- KV configuration ---

    def put_kv_config(self, request: Request) -> Response:
        """DefaultRequestProcessor.putKVConfig (100)."""
        header = read_header(request, {"namespace": STRING, "key": STRING, "value": STRING})
        if header["namespace"] is None or header["key"] is None:
            return Response(codes.SYSTEM_ERROR, remark="namespace or key is null")
        self.kv.put(header["namespace"], header["key"], header["value"])
        return Response(codes.SUCCESS)

    def get_kv_config(self, request: Request) -> Response:
        """DefaultRequestProcessor.getKVConfig (101)."""
        header = read_header(request, {"namespace": STRING, "key": STRING})
        value = self.kv.get(header["namespace"], header["key"])
        if value is None:
            return Response(codes.QUERY_NOT_FOUND, {})
        return Response(codes.SUCCESS, {"value": value})

    def delete_kv_config(self, request: Request) -> Response:
        """DefaultRequestProcessor.deleteKVConfig (102)."""
        header = read_header(request, {"namespace": STRING, "key": STRING})
        self.kv.delete(header["namespace"], header["key"])
        return Response(codes.SUCCESS)

    def get_kv_list_by_namespace(self, request: Request) -> Response:
        """DefaultRequestProcessor.getKVListByNamespace (219)."""
        table = self.kv.namespace(request.ext.get("namespace"))
        if table is None:
            return Response(codes.QUERY_NOT_FOUND)
        return Response(codes.SUCCESS, body=encode({"table": dict(table)}))

    # --- brokers ---

    def register_broker(self, request: Request) -> Response:
        """DefaultRequestProcessor.registerBroker (103)."""
        header = read_header(
            request,
            {
                **_BROKER_HEADER,
                "haServerAddr": STRING,
                "heartbeatTimeoutMillis": LONG,
                "enableActingMaster": BOOLEAN,
                "compressed": BOOLEAN,
                "bodyCrc32": INT,
            },
        )
        if header["bodyCrc32"] and header["bodyCrc32"] != _crc32(request.body):
            return Response(codes.SYSTEM_ERROR, {}, remark="crc32 not match")
        registration = decode_registration(request.body, request.version, bool(header["compressed"]), self._now_ms)
        if header["brokerId"] is None:
            raise NullPointer
        result = self.tables.register_broker(
            header["clusterName"],
            header["brokerAddr"],
            header["brokerName"],
            header["brokerId"],
            header["haServerAddr"],
            request.ext.get("__ZONE_NAME"),
            header["heartbeatTimeoutMillis"],
            header["enableActingMaster"],
            registration,
            self._channel,
            self._now_ms,
        )
        if result is None:
            return Response(codes.SYSTEM_ERROR, {}, remark="register broker failed")
        ext = {}
        if result.ha_server_addr is not None:
            ext["haServerAddr"] = result.ha_server_addr
        if result.master_addr is not None:
            ext["masterAddr"] = result.master_addr
        body = b""
        if self.settings.return_order_topic_config_to_broker:
            table = self.kv.namespace(ORDER_TOPIC_CONFIG)
            if table is not None:
                body = encode({"table": dict(table)})
        return Response(codes.SUCCESS, ext, body)

    def unregister_broker(self, request: Request) -> Response:
        """DefaultRequestProcessor.unregisterBroker (104), with BatchUnregistrationService done at once."""
        header = read_header(request, _BROKER_HEADER)
        self.tables.un_register_broker(
            [UnRegisterBroker(header["brokerName"], header["brokerAddr"], header["clusterName"], header["brokerId"])]
        )
        return Response(codes.SUCCESS)

    def broker_heartbeat(self, request: Request) -> Response:
        """DefaultRequestProcessor.brokerHeartbeat (904)."""
        self.tables.update_broker_info_update_timestamp(
            request.ext.get("clusterName"), request.ext.get("brokerAddr"), self._now_ms
        )
        return Response(codes.SUCCESS)

    def query_data_version(self, request: Request) -> Response:
        """DefaultRequestProcessor.queryBrokerTopicConfig (322)."""
        asked = None
        if request.body and parse_json(request.body) is not None:
            asked = parse_data_version(parse_object(request.body), self._now_ms)
        cluster_name, broker_addr = request.ext.get("clusterName"), request.ext.get("brokerAddr")
        changed = self.tables.is_broker_topic_config_changed(cluster_name, broker_addr, asked)
        self.tables.update_broker_info_update_timestamp(cluster_name, broker_addr, self._now_ms)
        stored = self.tables.query_broker_topic_config(cluster_name, broker_addr)
        body = b"" if stored is None else encode(stored.to_json())
        return Response(codes.SUCCESS, {"changed": str(changed).lower()}, body)

    def get_broker_member_group(self, request: Request) -> Response:
        """DefaultRequestProcessor.getBrokerMemberGroup (901)."""
        broker_name: Any = request.ext.get("brokerName")
        data = self.tables.broker_addr_table.get(broker_name)
        group = {
            "brokerAddrs": {} if data is None else dict(data.broker_addrs),
            "brokerName": broker_name,
            "cluster": request.ext.get("clusterName"),
        }
        return Response(codes.SUCCESS, body=encode({"brokerMemberGroup": group}))

    def get_broker_cluster_info(self, request: Request) -> Response:
        """DefaultRequestProcessor.getBrokerClusterInfo (106); always fastjson's numeric keys."""
        return Response(codes.SUCCESS, body=encode(cluster_info_json(self.tables)))

    def wipe_write_perm_of_broker(self, request: Request) -> Response:
        """DefaultRequestProcessor.wipeWritePermOfBroker (205)."""
        count = self.tables.operate_write_perm_of_broker(request.ext.get("brokerName"), wipe=True)
        return Response(codes.SUCCESS, {"wipeTopicCount": str(count)})

    def add_write_perm_of_broker(self, request: Request) -> Response:
        """DefaultRequestProcessor.addWritePermOfBroker (327)."""
        count = self.tables.operate_write_perm_of_broker(request.ext.get("brokerName"), wipe=False)
        return Response(codes.SUCCESS, {"addTopicCount": str(count)})

    # --- topics ---

    def register_topic(self, request: Request) -> Response:
        """DefaultRequestProcessor.registerTopicToNamesrv (217)."""
        route: dict[str, Any] = {}
        if request.body and parse_json(request.body) is not None:
            route = parse_object(request.body)
        rows = [
            QueueData(
                row.get("brokerName"),
                row.get("readQueueNums", 0),
                row.get("writeQueueNums", 0),
                row.get("perm", 0),
                row.get("topicSysFlag", 0),
            )
            for row in route.get("queueDatas") or []
        ]
        if rows:
            self.tables.register_topic(request.ext.get("topic"), rows)
        return Response(codes.SUCCESS)

    def delete_topic(self, request: Request) -> Response:
        """DefaultRequestProcessor.deleteTopicInNamesrv (216)."""
        cluster_name = request.ext.get("clusterName")
        if cluster_name:
            self.tables.delete_topic_in_cluster(request.ext.get("topic"), cluster_name)
        else:
            self.tables.delete_topic(request.ext.get("topic"))
        return Response(codes.SUCCESS)

    def get_all_topic_list(self, request: Request) -> Response:
        """DefaultRequestProcessor.getAllTopicListFromNameserver (206)."""
        if not self.settings.enable_all_topic_list:
            return _disabled()
        return _topic_list(list(self.tables.topic_queue_table))

    def get_topics_by_cluster(self, request: Request) -> Response:
        """DefaultRequestProcessor.getTopicsByCluster (224)."""
        if not self.settings.enable_topic_list:
            return _disabled()
        return _topic_list(topics_by_cluster(self.tables, request.ext.get("cluster")))

    def get_system_topic_list(self, request: Request) -> Response:
        """DefaultRequestProcessor.getSystemTopicListFromNs (304); the address is that of an arbitrary broker."""
        topics, addrs = system_topics(self.tables)
        return self._any_of([_topic_list(topics, addr) for addr in addrs or [None]])

    def get_unit_topic_list(self, request: Request) -> Response:
        """DefaultRequestProcessor.getUnitTopicList (311)."""
        return self._unit_topics(unit=True, unit_sub=None)

    def get_has_unit_sub_topic_list(self, request: Request) -> Response:
        """DefaultRequestProcessor.getHasUnitSubTopicList (312)."""
        return self._unit_topics(unit=None, unit_sub=True)

    def get_has_unit_sub_un_unit_topic_list(self, request: Request) -> Response:
        """DefaultRequestProcessor.getHasUnitSubUnUnitTopicList (313)."""
        return self._unit_topics(unit=False, unit_sub=True)

    def _unit_topics(self, *, unit: bool | None, unit_sub: bool | None) -> Response:
        if not self.settings.enable_topic_list:
            return _disabled()
        lists = unit_topic_lists(self.tables, unit=unit, unit_sub=unit_sub)
        return self._any_of([_topic_list(topics) for topics in lists])

    def get_route_info_by_topic(self, request: Request) -> Response:
        """ClientRequestProcessor.getRouteInfoByTopic (105), then ZoneRouteRPCHook.doAfterResponse."""
        topic = request.ext.get("topic")
        waited_ms = self._now_ms - self._started_ms
        if self.settings.need_wait_for_service and waited_ms < self.settings.wait_seconds_for_service * 1000:
            return Response(codes.SYSTEM_ERROR, remark="name server not ready")
        routes = pickup_topic_route_data(self.tables, topic)
        if not routes:
            return Response(codes.TOPIC_NOT_EXIST, remark=f"No topic route info in name server: {topic}")
        quoted = request.version >= V4_9_4 or parse_boolean(request.ext.get("acceptStandardJsonOnly"))
        zone_name = request.ext.get("__ZONE_NAME")
        zone_filter = parse_boolean(request.ext.get("__ZONE_MODE")) and zone_name is not None and zone_name.strip()
        for route in routes:
            if self.settings.order_message_enable:
                route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, topic)
            if zone_filter and zone_name is not None:
                filter_by_zone_name(route, zone_name)
        # The hook decodes the body and encodes it again in the default dialect.
        bodies = [encode(route.to_json(), quote_numeric_keys=quoted and not zone_filter) for route in routes]
        return self._any_of([Response(codes.SUCCESS, body=body) for body in bodies])

    # --- configuration ---

    def update_config(self, request: Request) -> Response:
        """DefaultRequestProcessor.updateConfig (318)."""
        if request.body:
            try:
                properties = parse_properties(request.body.decode("utf-8"))
            except JavaError as error:
                return Response(codes.SYSTEM_ERROR, remark=str(error))
            if self._black_list & properties.keys():
                return Response(codes.NO_PERMISSION, remark="Can not update config in black list.")
            self.settings.update(properties)
        return Response(codes.SUCCESS)

    def get_config(self, request: Request) -> Response:
        """DefaultRequestProcessor.getConfig (319); only the switches this model has."""
        lines = [f"{key}={value}\n" for key, value in sorted(self.settings.properties().items())]
        return Response(codes.SUCCESS, body="".join(lines).encode())

    def _any_of(self, allowed: list[Response]) -> Response:
        """The first of several answers that are equally right."""
        self.also_allowed = allowed[1:]
        return allowed[0]


def _topic_list(topics: Sequence[str | None], broker_addr: str | None = None) -> Response:
    """TopicList.encode."""
    return Response(codes.SUCCESS, body=encode({"brokerAddr": broker_addr, "topicList": list(topics)}))


def _disabled() -> Response:
    """The answer of a topic list that is switched off."""
    return Response(codes.SYSTEM_ERROR, remark="disable")


def _crc32(body: bytes) -> int:
    """UtilAll.crc32: masked to 31 bits; 0 for no body."""
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0
