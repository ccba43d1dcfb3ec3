# SPDX-License-Identifier: Apache-2.0
"""What came over remoting shows in /metrics, and a peer cannot make labels of its own."""

from __future__ import annotations

import socket
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from dev.histories.steps import Send
from dev.model import codes
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.support.local import LocalGateway, LocalLake
from tests.examples.parts import ADDR1, T1, A, put, register


def scraped(local: LocalGateway) -> dict[tuple[str, ...], float]:
    """(sample name, label values in order of their names) to value; what is 0 left out."""
    found = {}
    for family in text_string_to_metric_families(local.parts.metrics.text().decode()):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = sample.value
    return {key: value for key, value in found.items() if value}


def test_remoting_shows_in_the_metrics(tmp_path: Path) -> None:
    with LocalLake(tmp_path) as lake, lake.gateway() as local:
        with local.connect() as client:
            for _ in range(2):
                client.call(register(A, ADDR1).request())
            client.call(put("n", "k", "v").request())
            for topic in (T1, T1, "none"):
                client.call(Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).request())
            for invented in (31_337, 31_338):
                client.call(Request(invented, {}))
            for scrape in range(2):
                found = scraped(local)
                requests = {
                    key[1:]: value for key, value in found.items() if key[0] == "rocketmq_namesrv_requests_total"
                }
                assert requests == {  # code, api, request
                    ("0", "remoting", "REGISTER_BROKER"): 2,
                    ("0", "remoting", "PUT_KV_CONFIG"): 1,
                    ("0", "remoting", "GET_ROUTEINFO_BY_TOPIC"): 2,
                    ("17", "remoting", "GET_ROUTEINFO_BY_TOPIC"): 1,
                    ("3", "remoting", "other"): 2,
                }, f"scrape {scrape}"
            assert found["rocketmq_namesrv_route_errors_total", "17"] == 1
            assert found["rocketmq_namesrv_registration_events_total", "remoting", "applied"] == 1
            assert found["rocketmq_namesrv_registration_events_total", "remoting", "unchanged"] == 1
            assert found["rocketmq_namesrv_registration_body_bytes_count",] == 2
            assert found["rocketmq_namesrv_kv_persist_latency_count",] == 1
            assert found["rocketmq_namesrv_active_connections", "remoting"] == 1
        with socket.create_connection(("127.0.0.1", local.port)) as noise:
            noise.sendall(b"SSH-2.0-noise\r\n")
            assert noise.recv(1) == b""
        assert scraped(local)["rocketmq_namesrv_security_events_total", "protocol-error"] == 1
        gone = ("rocketmq_namesrv_active_connections", "remoting")
        wait_until(lambda: gone not in scraped(local), 60, "the connections' end")
