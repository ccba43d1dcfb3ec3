# SPDX-License-Identifier: Apache-2.0
"""The flow charts of TopicConfigManager, a test for each branch."""

from __future__ import annotations

import msgspec
import pytest

from clients.broker.config import BrokerConfig
from clients.broker.topic_config import TopicConfig, TopicTable
from clients.broker.topics import Creation, TopicConfigManager, built_in_topics
from schemas.broker import DataVersion
from schemas.errors import BadRequestError

T0, T1 = 1_700_000_000_000, 1_700_000_005_000
TBW102 = "TBW102"


def manager(**settings: object) -> TopicConfigManager:
    return TopicConfigManager(BrokerConfig(**settings), T0)  # type: ignore[arg-type]


def send(topics: TopicConfigManager, topic: str, default: str = TBW102, queues: int = 4, flag: int = 0) -> Creation:
    return topics.create_topic_in_send_message(topic, default, queues, flag, T1)


def topic(name: str, queues: int = 8, perm: int = 6, **more: object) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, **more)  # type: ignore[arg-type]


def numbers(config: TopicConfig | None) -> tuple[int, int, int]:
    assert config is not None
    return config.read_queue_nums, config.write_queue_nums, config.perm


def unchanged(topics: TopicConfigManager) -> bool:
    return topics.data_version == DataVersion(0, T0, 0)


# --- built-in topics ---


def test_built_in_topics() -> None:
    table = {config.topic_name: numbers(config) for config in built_in_topics(BrokerConfig())}
    assert table == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }


def test_built_in_topics_follow_the_settings() -> None:
    config = BrokerConfig(
        broker_cluster_name="c1",
        broker_name="b1",
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
        msg_trace_topic_name="traces",
        revive_queue_num=3,
        timer_wheel_enable=False,
    )
    table = {config.topic_name: numbers(config) for config in built_in_topics(config)}
    assert TBW102 not in table
    assert "rmq_sys_wheel_timer" not in table
    assert (table["c1"], table["b1"], table["traces"]) == ((16, 16, 1), (1, 1, 1), (1, 1, 6))
    assert table["rmq_sys_REVIVE_LOG_c1"] == (3, 3, 6)
    assert TopicConfigManager(config, T0).is_system_topic("traces")


# --- create in send message ---


def test_a_known_topic_is_returned() -> None:
    topics = manager()
    created = send(topics, "orders").config
    version = topics.data_version
    assert send(topics, "orders", default="nobody") == Creation(created)
    assert topics.data_version == version


def test_created_from_the_default_topic() -> None:
    topics = manager()
    creation = send(topics, "orders")
    assert numbers(creation.config) == (4, 4, 6)
    assert creation.changed
    assert creation.created
    assert topics.table["orders"] == creation.config
    assert topics.data_version == DataVersion(0, T1, 1)


def test_no_default_topic() -> None:
    topics = manager()
    creation = send(topics, "orders", default="nobody")
    assert creation.config is None
    assert creation.refusal == "the default topic[nobody] not exist"
    assert "orders" not in topics.table
    assert unchanged(topics)


def test_a_default_topic_without_the_inherit_permission() -> None:
    topics = manager()
    creation = send(topics, "orders", default="BenchmarkTest")
    assert creation.config is None
    assert creation.refusal == "the default topic[BenchmarkTest] has no perm [6]"
    assert unchanged(topics)


@pytest.mark.parametrize("default", ["DefaultCluster", "broker-a"])
def test_any_topic_with_the_inherit_permission_will_do(default: str) -> None:
    """TBW102 is not special in that."""
    topics = manager(auto_create_topic_enable=False)
    assert numbers(send(topics, "orders", default=default).config) == (
        min(4, topics.table[default].write_queue_nums),
    ) * 2 + (6,)


def test_auto_creation_is_off_and_the_default_topic_was_never_made() -> None:
    assert send(manager(auto_create_topic_enable=False), "orders").refusal == "the default topic[TBW102] not exist"


def test_auto_creation_is_off_but_an_old_file_has_the_default_topic() -> None:
    """It loses its inherit bit for good, in memory; the version does not move for that."""
    topics = manager(auto_create_topic_enable=False)
    topics.load(TopicTable(DataVersion(0, T0, 0), {TBW102: topic(TBW102, 8, 7)}))
    assert send(topics, "orders").refusal == "the default topic[TBW102] has no perm [6]"
    assert topics.table[TBW102].perm == 6
    assert unchanged(topics)


@pytest.mark.parametrize(
    ("client", "default", "queues"), [(4, 8, 4), (16, 8, 8), (8, 8, 8), (0, 8, 0), (-1, 8, 0), (4, 0, 0)]
)
def test_queue_numbers(client: int, default: int, queues: int) -> None:
    topics = manager()
    topics.load(TopicTable(topics.data_version, {TBW102: topic(TBW102, default, 7)}))
    assert numbers(send(topics, "orders", queues=client).config) == (queues, queues, 6)


def test_what_a_new_topic_inherits() -> None:
    topics = manager()
    stored = topic(
        "parent", 8, 5, topic_filter_type="MULTI_TAG", order=True, attributes={"message.type": "FIFO"}, topic_sys_flag=2
    )
    topics.load(TopicTable(topics.data_version, {"parent": stored}))
    created = send(topics, "child", default="parent", flag=1).config
    assert created == topic("child", 4, 4, topic_filter_type="MULTI_TAG", topic_sys_flag=1)


# --- create in send message back ---


def test_a_send_back_topic_is_created() -> None:
    topics = manager()
    creation = topics.create_topic_in_send_message_back("%RETRY%g", 1, T1, topic_sys_flag=2)
    assert creation == Creation(topic("%RETRY%g", 1, topic_sys_flag=2), changed=True, created=True)
    assert topics.data_version == DataVersion(0, T1, 1)


def test_a_send_back_topic_that_exists_is_kept() -> None:
    topics = manager()
    found = topics.create_topic_in_send_message_back("%DLQ%g", 1, T1).config
    assert topics.create_topic_in_send_message_back("%DLQ%g", 9, T1) == Creation(found)
    assert topics.data_version.counter == 1


def test_a_send_back_topic_gets_its_order_flag_corrected() -> None:
    """Persisted, not registered."""
    topics = manager()
    topics.update_topic_configs([topic("%RETRY%g", 1, attributes={"+message.type": "FIFO"})], T0)
    creation = topics.create_topic_in_send_message_back("%RETRY%g", 1, T1, is_order=True)
    assert creation == Creation(topic("%RETRY%g", 1, order=True, attributes={"message.type": "FIFO"}), changed=True)
    assert topics.data_version == DataVersion(0, T1, 2)


# --- update, order, delete ---


def test_update_replaces_and_keeps_attributes() -> None:
    topics = manager()
    topics.update_topic_configs([topic("a", attributes={"+message.type": "FIFO"})], T0)
    assert topics.update_topic_configs([topic("a", 3, 4)], T1) == [
        topic("a", 3, 4, attributes={"message.type": "FIFO"})
    ]
    assert topics.data_version == DataVersion(0, T1, 2)


def test_a_list_is_all_or_nothing_and_moves_the_version_once_for_each() -> None:
    topics = manager()
    with pytest.raises(BadRequestError, match="unsupported key: colour"):
        topics.update_topic_configs([topic("a"), topic("b", attributes={"+colour": "red"})], T1)
    assert "a" not in topics.table
    assert unchanged(topics)
    topics.update_topic_configs([topic("a"), topic("b")], T1)
    assert topics.data_version == DataVersion(0, T1, 2)


def test_order_configuration_only_sets() -> None:
    topics = manager()
    topics.update_topic_configs([topic("a"), topic("b")], T0)
    assert topics.update_order_topics(["a", "nobody"], T1)
    assert topics.is_order_topic("a")
    assert not topics.is_order_topic("b")
    assert not topics.is_order_topic("nobody")
    assert topics.data_version == DataVersion(0, T1, 3)
    assert not topics.update_order_topics(["a"], T1)
    assert not topics.update_order_topics([], T1)
    assert topics.is_order_topic("a")
    assert topics.data_version.counter == 3


def test_delete() -> None:
    topics = manager()
    topics.update_topic_configs([topic("a")], T0)
    assert topics.delete_topic("a", T1)
    assert "a" not in topics.table
    assert topics.data_version == DataVersion(0, T1, 2)
    assert not topics.delete_topic("a", T1)
    assert topics.data_version.counter == 2


def test_stored_topics_win_over_built_in_ones() -> None:
    topics = manager(default_topic_queue_nums=8)
    topics.load(TopicTable(DataVersion(2, 5, 9), {TBW102: topic(TBW102, 3, 7), "orders": topic("orders")}))
    assert topics.table[TBW102].write_queue_nums == 3
    assert "BenchmarkTest" in topics.table
    assert topics.data_version == DataVersion(2, 5, 9)
    assert not topics.is_system_topic("orders")
    assert topics.is_system_topic("rmq_sys_anything")


def test_pages() -> None:
    topics = manager()
    names = sorted(topics.table)
    version = topics.data_version
    assert list(topics.sub_table(version, 2, 3)) == names[2:5]
    assert list(topics.sub_table(version, 14, 5)) == names[14:]
    assert topics.sub_table(version, 99, 5) == {}
    assert list(topics.sub_table(None, 2, 3)) == names[:3]
    assert list(topics.sub_table(DataVersion(0, 1, 1), 2, 3)) == names[:3]


def test_a_topic_is_never_changed_in_place() -> None:
    """Snapshots share them with the table."""
    topics = manager()
    topics.update_topic_configs([topic("a")], T0)
    before = topics.snapshot()
    copy = msgspec.json.encode(before)
    topics.update_order_topics(["a"], T1)
    topics.update_topic_configs([topic("a", topic_sys_flag=1)], T1)
    topics.delete_topic("a", T1)
    assert msgspec.json.encode(before) == copy
