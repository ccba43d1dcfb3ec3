# SPDX-License-Identifier: Apache-2.0
"""Record what stock peers send to a stock NameServer and what it answers, frame by frame.

    python -m tests.remoting.record_golden [file]

starts a NameServer 5.5.0, a broker 5.5.0 and mqadmin 5.5.0 and 4.9.7 from their jars with a relay in between, and
writes two exchanges of each kind; see golden/README.md.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dev.peers.java import free_port, wait_until
from dev.support.rocketmq import StockBroker, StockNameServer, mqadmin

GOLDEN = Path(__file__).parent / "golden" / "recorded.json"
MAX_OF_A_KIND = 2
BROKER_CODES = {103, 104, 322, 904}


@dataclass
class Frame:
    """A frame and its header as far as the recorder needs it."""

    data: bytes
    code: int = 0
    opaque: int = 0

    def __post_init__(self) -> None:
        (mark,) = struct.unpack_from(">I", self.data, 4)
        header = self.data[8 : 8 + (mark & 0xFFFFFF)]
        if mark >> 24 == 0:
            fields = json.loads(header)
            self.code, self.opaque = fields["code"], fields["opaque"]
        else:
            self.code, _, _, self.opaque = struct.unpack_from(">hbhi", header)


@dataclass
class Conversation:
    """One connection: who asked, and what went each way."""

    peer: str
    requests: list[Frame] = field(default_factory=list)
    answers: dict[int, Frame] = field(default_factory=dict)


class Relay:
    """Passes bytes on in both directions and keeps a copy of each frame."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.peer = "broker-5.5.0"
        self.conversations: list[Conversation] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def seen(self, text: bytes) -> bool:
        """Whether some request holds this."""
        return any(text in frame.data for talk in self.conversations for frame in talk.requests)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._upstream)
            talk = Conversation(self.peer)
            self.conversations.append(talk)
            threading.Thread(target=self._pass, args=(client, server, talk, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, talk, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, talk: Conversation, asks: bool) -> None:
        buffer = b""
        try:
            while data := source.recv(1 << 16):
                buffer += data
                while len(buffer) >= 4 and len(buffer) >= 4 + struct.unpack_from(">i", buffer)[0]:
                    (length,) = struct.unpack_from(">i", buffer)
                    frame = Frame(buffer[: 4 + length])
                    if asks:
                        talk.requests.append(frame)
                    else:
                        talk.answers[frame.opaque] = frame
                    buffer = buffer[4 + length :]
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()


def record() -> list[Conversation]:
    """Run the peers."""
    with StockNameServer() as name_server:
        relay = Relay((name_server.host, name_server.port))

        def run(peer: str, *args: str) -> None:
            relay.peer = peer
            mqadmin(list(args), relay.address, "4.9.7" if "4.9.7" in peer else "5.5.0")

        with StockBroker(relay.address, properties={"forceRegister": "false"}) as broker:
            wait_until(lambda: relay.seen(b'"code":103'), 30, "first registration")
            for peer in ("mqadmin-5.5.0", "mqadmin-4.9.7"):
                run(peer, "updateTopic", "-c", broker.cluster, "-t", "gone")
                run(peer, "deleteTopic", "-c", broker.cluster, "-t", "gone")
                run(peer, "updateTopic", "-c", broker.cluster, "-t", "orders", "-r", "4", "-w", "4")
                run(peer, "topicRoute", "-t", "orders")
                run(peer, "topicRoute", "-t", "nowhere")
                run(peer, "clusterList")
                run(peer, "topicList")
                run(peer, "updateKvConfig", "-s", "ns", "-k", "k", "-v", "v/é")
                run(peer, "updateOrderConf", "-t", "orders", "-m", "put", "-v", "broker-a:4")
                run(peer, "updateOrderConf", "-t", "orders", "-m", "get")
                run(peer, "deleteKvConfig", "-s", "ns", "-k", "k")
                run(peer, "wipeWritePerm", "-b", broker.name)
                run(peer, "addWritePerm", "-b", broker.name)
                run(peer, "getNamesrvConfig")
            os.environ["ROCKETMQ_SERIALIZE_TYPE"] = "ROCKETMQ"
            run("mqadmin-5.5.0-binary", "topicRoute", "-t", "TBW102")
            run("mqadmin-5.5.0-binary", "wipeWritePerm", "-b", broker.name)
            run("mqadmin-4.9.7-binary", "topicRoute", "-t", "TBW102")
            del os.environ["ROCKETMQ_SERIALIZE_TYPE"]
            run("mqadmin-5.5.0-static", "updateStaticTopic", "-b", broker.name, "-t", "fixed", "-qn", "4")
            for suffix in ("before", "after"):
                for file in Path(tempfile.gettempdir()).glob(f"fixed-[0-9]*.{suffix}"):
                    file.unlink()
            wait_until(lambda: relay.seen(b'"currIdMap"'), 30, "registration of the static topic")
            run("mqadmin-5.5.0-static", "topicRoute", "-t", "fixed")
            run("mqadmin-4.9.7-static", "topicRoute", "-t", "fixed")
            broker.terminate()
        return relay.conversations


def exchanges(conversations: list[Conversation]) -> dict[str, dict[str, str]]:
    """A few exchanges of each kind; bytes as latin-1 text, so that a reader can make them out."""
    kinds: Counter[str] = Counter()
    found = {}
    for talk in conversations:
        for request in talk.requests:
            peer = "broker-5.5.0" if request.code in BROKER_CODES else talk.peer
            if request.code == 103 and b'"currIdMap"' in request.data:
                peer += "-static"
            kind = f"{request.code}-{peer}"
            kinds[kind] += 1
            if kinds[kind] <= MAX_OF_A_KIND and request.opaque in talk.answers:
                found[kind if kinds[kind] == 1 else f"{kind}-{kinds[kind]}"] = {
                    "request": request.data.decode("latin-1"),
                    "answer": talk.answers[request.opaque].data.decode("latin-1"),
                }
    return dict(sorted(found.items()))


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    target.write_text(json.dumps(exchanges(record()), indent=1) + "\n")
