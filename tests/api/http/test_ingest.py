# SPDX-License-Identifier: Apache-2.0
"""The ingest endpoint: what brokers say, what becomes of it, and read-your-writes."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from api.http.answers import AddAnswer, HeartbeatAnswer, ReceiptAnswer, RegistrationAnswer, WipeAnswer
from api.http.settings import HttpSettings
from api.settings.gateway import Reads
from dev.support.http_api import JSON, HttpApi, broker, parsed, problem
from dev.support.loops import until
from schemas.errors import UnavailableError
from schemas.events import Actor, PutKvConfig, RegisterBroker, decode, encode, routing_key


def identity(name: str, host: int, cluster: str = "c1") -> dict[str, Any]:
    return {"clusterName": cluster, "brokerName": name, "brokerAddr": f"10.0.0.{host}:10911"}


def test_a_registration_is_visible_in_the_next_read(api: HttpApi) -> None:
    answer = api.register(broker("ry-a", topics=("ry-1", "ry-2"), host=10))
    receipt = parsed(answer, RegistrationAnswer)
    assert (answer.status_code, receipt.outcome, receipt.visible) == (200, "applied", True)
    route = api.get("/v1/topics/ry-1/route")
    assert route.status_code == 200
    assert route.json()["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.10:10911"}
    assert int(route.headers["x-routelake-offset"]) >= receipt.offset
    assert answer.headers["x-routelake-offset"] == str(receipt.offset)


def test_the_same_again_is_unchanged_and_one_topic_later_is_applied(api: HttpApi) -> None:
    first = broker("same-a", topics=("same-1", "same-2"), host=11)
    assert api.register(first).json()["outcome"] == "applied"
    assert api.register(first).json()["outcome"] == "unchanged"
    more = broker("same-a", topics=("same-3",), host=11, counter=2)
    assert api.register(more).json()["outcome"] == "applied"
    assert api.get("/v1/topics/same-3/route").status_code == 200


def test_the_event_log_has_the_fields_of_the_request(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, delete_topic_with_broker_registration=True)
    said = broker(
        "log-a",
        brokerId=2**63 - 1,
        heartbeatTimeoutMillis=5000,
        enableActingMaster=True,
        zoneName="zone 1",
        filterServerList=["10.0.0.9:31000"],
    )
    said["topicConfigSerializeWrapper"] |= {
        "topicQueueMappingInfoMap": {
            "orders": {"bname": "log-a", "totalQueues": 4, "epoch": 7, "currIdMap": {"0": 0, "1": 3}}
        },
        "mappingDataVersion": {"timestamp": 1, "counter": 1},
        "topicQueueMappingDetailMap": {},
    }
    answer = api.register(said, headers={"user-agent": "test"})
    assert answer.status_code == 200
    record = next(record for record in api.log.read(0) if record.offset == answer.json()["offset"])
    event = decode(record.payload)
    assert isinstance(event, RegisterBroker)
    assert record.key == "b:log-a"
    assert (event.broker_id, event.heartbeat_timeout_millis, event.enable_acting_master) == (2**63 - 1, 5000, True)
    assert (event.zone_name, event.filter_server_list, event.delete_absent_topics) == (
        "zone 1",
        ["10.0.0.9:31000"],
        True,
    )
    assert event.topic_config_table is not None
    assert event.topic_config_table["orders"] == (8, 8, 6, 0)
    mapping = event.topic_queue_mapping_info_map["orders"]
    assert (mapping.topic, mapping.curr_id_map, mapping.scope) == ("orders", {0: 0, 1: 3}, "__global__")
    assert (event.actor.gateway, event.actor.via, event.actor.peer) == ("gw", "http", "127.0.0.1:50000")
    assert event.channel is None


def test_a_single_topic_may_not_create_a_broker(api: HttpApi) -> None:
    answer = api.register(broker("single", topics=("only",), host=12))
    found = problem(answer, 409, "registration-refused")
    assert (found["reason"], found["code"]) == ("SINGLE_TOPIC_REFUSED", 1)
    assert api.log.read(found["offset"])[0].key == "b:single"
    problem(api.get("/v1/topics/only/route"), 404, "topic-not-exist")


def test_a_lower_state_version_may_not_take_a_living_id(api: HttpApi) -> None:
    ahead = broker("conflict", topics=("cf-1", "cf-2"), host=13)
    ahead["topicConfigSerializeWrapper"]["dataVersion"]["stateVersion"] = 5
    assert api.register(ahead).status_code == 200
    found = problem(api.register(broker("conflict", topics=("cf-1", "cf-2"), host=14)), 409, "registration-refused")
    assert found["reason"] == "STATE_VERSION_CONFLICT"


def test_a_slave_is_told_where_its_master_is(api: HttpApi) -> None:
    api.register(broker("pair", topics=("pair-1", "pair-2"), host=15))
    slave = broker("pair", topics=(), host=16, brokerId=1, enableActingMaster=False)
    answer = parsed(api.register(slave), RegistrationAnswer)
    assert (answer.master_addr, answer.ha_server_addr) == ("10.0.0.15:10911", "10.0.0.15:10912")


def test_a_registration_brings_the_order_configuration_back(make_api: Any) -> None:
    api: HttpApi = make_api()
    assert "orderTopicConf" not in api.register(broker()).json()
    api.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"})
    assert api.register(broker()).json()["orderTopicConf"] == {"orders": "broker-a:8"}
    without: HttpApi = make_api(return_order_topic_config_to_broker=False)
    without.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"})
    assert "orderTopicConf" not in without.register(broker()).json()


def test_a_heartbeat_says_whether_the_broker_is_known(api: HttpApi) -> None:
    answer = api.post("/v1/brokers/heartbeat", identity("beat", 17))
    assert answer.status_code == 200
    assert not parsed(answer, HeartbeatAnswer).known
    api.register(broker("beat", topics=("beat-1", "beat-2"), host=17))
    before = api.get("/v1/brokers/beat").json()["live"][0]["lastUpdateTimestamp"]
    answer = api.post("/v1/brokers/heartbeat", identity("beat", 17))
    assert parsed(answer, HeartbeatAnswer).known
    api.settled()
    # Heartbeats alone are committed every few seconds; another epoch brings them along.
    receipt = api.put("/v1/kv/ns/beat", {"value": "x"}).json()
    after = api.get(f"/v1/brokers/beat?wait_for={receipt['offset']}").json()["live"][0]["lastUpdateTimestamp"]
    assert after >= before


def test_unregistering_takes_the_topics_along(api: HttpApi) -> None:
    api.register(broker("gone", topics=("gone-1", "gone-2"), host=18))
    bye = {**identity("gone", 18), "brokerId": 0}
    receipt = parsed(api.post("/v1/brokers/unregister", bye), ReceiptAnswer)
    assert receipt.outcome == "applied"
    problem(api.get("/v1/topics/gone-1/route"), 404, "topic-not-exist")
    problem(api.get("/v1/brokers/gone"), 404, "not-found")
    assert api.post("/v1/brokers/unregister", bye).json()["outcome"] == "unchanged"


KV = PutKvConfig(actor=Actor(gateway="other", via="http"), namespace="n", key="k", value="v")


def unreadable(*_: Any) -> Any:
    raise UnavailableError("a disk")


@pytest.mark.parametrize("reads", Reads)
def test_a_write_is_seen_at_the_head_at_once_and_in_the_tables_when_they_have_it(make_api: Any, reads: Reads) -> None:
    api: HttpApi = make_api(reads=reads)
    api.fold.pause()
    answer = api.register(broker())
    receipt = parsed(answer, RegistrationAnswer)
    assert (answer.status_code, receipt.visible, receipt.outcome) == (200, True, "applied")
    route = "/v1/topics/orders/route?reads="
    assert api.get("/v1/topics/orders/route").status_code == (200 if reads is Reads.LIVE else 404)
    seen = api.get(f"{route}live")
    assert (seen.status_code, seen.headers["x-routelake-epoch"]) == (200, "0")
    assert int(seen.headers["x-routelake-offset"]) >= receipt.offset
    assert api.get(f"{route}committed").status_code == 404
    waiting = f"{route}committed&wait_for={receipt.offset}"
    found = problem(api.get(f"{waiting}&wait_timeout=20"), 503, "system-busy")
    assert found["offset"] == receipt.offset
    assert found["code"] == 2
    later = api.begin("GET", f"{waiting}&wait_timeout=30000")
    api.fold.resume()
    committed = later.result(30)
    assert committed.content == seen.content
    assert int(committed.headers["x-routelake-epoch"]) > 0


def test_what_the_head_cannot_tell_is_202(make_api: Any) -> None:
    """A record of another writer comes before, and cannot be read."""
    api: HttpApi = make_api(fold=False, clock_interval_s=3600.0, live_view_wait_s=0.05)
    reader = api.gateway.replica._reader
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "read", unreadable)
        until(lambda: api.gateway.replica.failing)  # or it may be about to read what comes now
        api.log.append([(routing_key(KV), encode(KV))])
        answer = api.register(broker())
        receipt = parsed(answer, RegistrationAnswer)
        assert (answer.status_code, receipt.visible, receipt.outcome) == (202, False, "accepted")
        problem(api.get("/v1/topics/orders/route"), 404, "topic-not-exist")
        assert "event log" in api.get("/readyz").json()["checks"]["view"]["reason"]
    assert api.get(f"/v1/topics/orders/route?wait_for={receipt.offset}&wait_timeout=30000").status_code == 200


def test_admin_commands(api: HttpApi) -> None:
    api.register(broker("adm", topics=("adm-1", "adm-2"), host=19))
    wiped = parsed(api.post("/v1/brokers/adm/wipe-write-perm"), WipeAnswer)
    assert (wiped.outcome, wiped.wipe_topic_count) == ("applied", 2)
    assert api.get("/v1/topics/adm-1/route").json()["queueDatas"][0]["perm"] == 4
    assert api.post("/v1/brokers/adm/wipe-write-perm").json()["outcome"] == "unchanged"
    added = parsed(api.post("/v1/brokers/adm/add-write-perm"), AddAnswer)
    assert (added.outcome, added.add_topic_count) == ("applied", 2)
    nobody = parsed(api.post("/v1/brokers/nobody/wipe-write-perm"), WipeAnswer)
    assert (nobody.outcome, nobody.wipe_topic_count) == ("unchanged", 0)


def test_deleting_a_topic(api: HttpApi) -> None:
    api.register(broker("del-a", topics=("del-1", "del-2"), host=20, cluster="del-c1"))
    api.register(broker("del-b", topics=("del-1", "del-2"), host=21, cluster="del-c2"))
    assert api.delete("/v1/topics/del-1?cluster=del-c1").json()["outcome"] == "applied"
    left = api.get("/v1/topics/del-1/route").json()["queueDatas"]
    assert [row["brokerName"] for row in left] == ["del-b"]
    assert api.delete("/v1/topics/del-1").json()["outcome"] == "applied"
    problem(api.get("/v1/topics/del-1/route"), 404, "topic-not-exist")
    assert parsed(api.delete("/v1/topics/del-1"), ReceiptAnswer).outcome == "unchanged"
    assert api.get("/v1/topics/del-2/route").status_code == 200


def test_kv(api: HttpApi) -> None:
    problem(api.get("/v1/kv/kv-ns"), 404, "not-found")
    assert api.put("/v1/kv/kv-ns/a%2Fb", {"value": "ä\n1"}).json()["outcome"] == "applied"
    assert api.put("/v1/kv/kv-ns/a%2Fb", {"value": "ä\n1"}).json()["outcome"] == "unchanged"
    assert api.get("/v1/kv/kv-ns/a/b").json() == {"namespace": "kv-ns", "key": "a/b", "value": "ä\n1"}
    assert api.get("/v1/kv/kv-ns").json() == {"namespace": "kv-ns", "table": {"a/b": "ä\n1"}}
    assert api.delete("/v1/kv/kv-ns/a/b").json()["outcome"] == "applied"
    assert problem(api.get("/v1/kv/kv-ns/a/b"), 404, "not-found")["code"] == 22
    assert api.get("/v1/kv/kv-ns").json() == {"namespace": "kv-ns", "table": {}}
    assert api.delete("/v1/kv/kv-ns/a/b").json()["outcome"] == "unchanged"


def test_a_registration_may_be_compressed_and_large(api: HttpApi) -> None:
    topics = tuple(f"large-{number}" for number in range(3000))
    data = json.dumps(broker("large", topics=topics, host=22)).encode()
    answer = api.send(
        "POST",
        "/v1/brokers/register",
        content=gzip.compress(data),
        headers={**JSON, "content-encoding": "gzip"},
    )
    assert answer.status_code == 200, answer.text
    listed = api.get(f"/v1/topics?prefix=large-&limit=10&wait_for={answer.json()['offset']}&wait_timeout=30000")
    assert listed.json()["total"] == 3000
    api.post("/v1/brokers/unregister", {**identity("large", 22), "brokerId": 0})


def test_bodies_share_a_budget(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(max_bodies_bytes=100))
    answer = api.register(broker())
    assert problem(answer, 503, "system-busy")["code"] == 2
    assert answer.headers["retry-after"] == "1"
    assert api.app.context.budget.free == 100


def test_a_log_that_cannot_be_written_is_503(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False)
    api.log.close()
    found = problem(api.register(broker()), 503, "system-busy")
    assert "log" in found["detail"]
    assert not api.get("/readyz").json()["checks"]["eventLog"]["ok"]


@pytest.mark.parametrize("path", ["register", "heartbeat", "unregister"])
def test_a_null_is_absent_where_a_field_may_be(unfolded: HttpApi, path: str) -> None:
    said = {**identity("nulls", 30), "brokerId": 0} if path == "unregister" else identity("nulls", 30)
    if path == "register":
        said |= {"brokerId": 0, "haServerAddr": None, "filterServerList": None, "topicConfigSerializeWrapper": None}
    assert unfolded.post(f"/v1/brokers/{path}", said).status_code == 200
