# SPDX-License-Identifier: Apache-2.0
"""Large registrations are decoded in a process of their own, with equal results. A dead process delays no request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import msgspec
import pytest

from api.gateway import large_registrations as module
from api.gateway.large_registrations import LargeRegistrations, Turns, becomes_large, is_large
from dev.histories.steps import Send
from dev.model import codes
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.peers.procfs import is_alive
from dev.support.local import LocalLake
from remoting.codec.commands import RefusedError, RequestContext, to_event
from remoting.codec.frame import RemotingCommand
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import UnavailableError
from schemas.events import Actor, Channel, RegisterBroker, decode
from security.quotas import Quotas, Rate
from tests.examples.parts import ADDR1, T1, A, config, register, route, version

MANY = 1_500
SAID = RequestContext(Actor("g", "remoting", "10.0.0.1:5"), Channel("g", "x-1"), 77)


def large(queues: int = 4, counter: int = 1) -> Send:
    """A registration of some 200 KB; T1 has so many queues."""
    topics = [config(f"a-topic-with-a-long-name-{number}") for number in range(MANY)]
    return register(A, ADDR1, topics=[config(T1, queues=queues), *topics], at=version(counter=counter))


def command(send: Send, **ext: str) -> RemotingCommand:
    request = send.request()
    found = RemotingCommand(RequestCode.REGISTER_BROKER, {**request.ext, **ext}, request.body, version=request.version)
    assert is_large(found)
    return found


@pytest.fixture
def registrations() -> Iterator[LargeRegistrations]:
    registrations = LargeRegistrations()
    yield registrations
    registrations.close()


def process_of(registrations: LargeRegistrations) -> subprocess.Popen[bytes]:
    assert registrations._child is not None
    return registrations._child.process


@pytest.mark.parametrize("delete_absent", [False, True])
def test_the_process_decodes_like_the_gateway(registrations: LargeRegistrations, delete_absent: bool) -> None:
    said = msgspec.structs.replace(SAID, delete_absent_topics=delete_absent)
    read = registrations.read(command(large()), said)
    whole = to_event(command(large()), said)
    assert read is not None
    assert isinstance(whole, RegisterBroker)
    assert whole.topic_config_table is not None
    assert len(whole.topic_config_table) == MANY + 1
    assert decode(read.payload) == whole
    assert read.event.topic_config_table is None
    assert read.event.topic_config_digest == whole.topic_config_digest
    assert read.event.delete_absent_topics is delete_absent


def test_nothing_is_nothing(registrations: LargeRegistrations) -> None:
    nobody = command(large())
    assert nobody.ext_fields is not None
    del nobody.ext_fields["clusterName"]
    assert registrations.read(nobody, SAID) is None


def test_a_refusal_is_that_of_a_small_one(registrations: LargeRegistrations) -> None:
    wrong = command(large(), bodyCrc32=str((zlib.crc32(large().request().body) + 1) & 0x7FFFFFFF))
    with pytest.raises(RefusedError) as here:
        to_event(wrong, SAID)
    with pytest.raises(RefusedError) as there:
        registrations.read(wrong, SAID)
    assert (str(there.value), there.value.code, there.value.ext_fields) == (
        str(here.value),
        here.value.code,
        here.value.ext_fields,
    )
    assert there.value.ext_fields == {}
    assert registrations.read(command(large()), SAID) is not None


def test_an_idle_process_that_died_is_replaced_without_an_error(registrations: LargeRegistrations) -> None:
    registrations.read(command(large()), SAID)
    died = process_of(registrations)
    died.kill()
    died.wait()
    assert registrations.read(command(large()), SAID) is not None
    assert process_of(registrations).pid != died.pid


def test_a_process_that_dies_while_it_decodes_is_started_again(registrations: LargeRegistrations) -> None:
    registrations.read(command(large()), SAID)
    reader, errors = reading_from_a_stopped_process(registrations)
    process_of(registrations).kill()
    reader.join(30)
    assert "The next registration starts it again" in str(*errors)
    assert registrations.read(command(large()), SAID) is not None


def test_a_process_that_hangs_is_started_again(
    registrations: LargeRegistrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    registrations.read(command(large()), SAID)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_LIMIT_S", 0.1)
        reader, errors = reading_from_a_stopped_process(registrations)
        reader.join(30)
    assert "took too long" in str(*errors)
    assert registrations.read(command(large()), SAID) is not None


def test_no_answer_is_left_for_the_next_one(registrations: LargeRegistrations, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that ends between question and answer."""

    def no_memory(_self: object) -> None:
        raise MemoryError

    registrations.read(command(large()), SAID)
    with monkeypatch.context() as patch:
        patch.setattr("multiprocessing.connection.Connection.recv", no_memory)
        with pytest.raises(MemoryError):
            registrations.read(command(large(counter=2)), SAID)
    read = registrations.read(command(large(counter=3)), SAID)
    assert read is not None
    assert read.event.data_version.counter == 3


def test_a_defect_is_told_with_its_place(registrations: LargeRegistrations) -> None:
    with pytest.raises(TypeError) as caught:
        registrations.read(command(large(), brokerId=0), SAID)  # type: ignore[arg-type]
    assert "remoting/codec/commands.py" in caught.value.__notes__[0]
    assert registrations.read(command(large()), SAID) is not None


@pytest.mark.parametrize(
    ("size", "compressed", "expected"),
    [
        (128 * 1024, None, False),
        (128 * 1024 + 1, None, True),
        (8 * 1024, "true", False),
        (8 * 1024 + 1, "TRUE", True),
        (8 * 1024 + 1, "false", False),
    ],
)
def test_registrations_that_count_as_large(size: int, compressed: str | None, expected: bool) -> None:
    ext = {} if compressed is None else {"compressed": compressed}
    assert is_large(RemotingCommand(RequestCode.REGISTER_BROKER, ext, bytes(size))) is expected


def block(data: bytes) -> bytes:
    return count(len(data)) + data


def count(number: int) -> bytes:
    return number.to_bytes(4)


def bomb(mappings: bytes = bytes(4), version: bytes = b"\0\0\0\x02{}") -> bytes:
    """A compressed body that is small and becomes large."""
    return zlib.compress(version + count(0) + block(b"[]") + mappings, 9)


BARE = b"{" + b"1:1," * 1_000_000 + b'"a":1}'
BOMBS = {
    "a DataVersion of bare keys": bomb(version=block(BARE)),
    "mappings that are too many": bomb(count(400_000) + block(b'{"topic":"a",1:1}') * 400_000),
    "queue ids that are too many": bomb(count(1) + block(b'{"topic":"a","bname":"b","currIdMap":' + BARE + b"}")),
    "queue ids of many mappings": bomb(
        count(40) + block(b'{"topic":"a","bname":"b","currIdMap":{' + b"1:1," * 40_000 + b"1:1}}") * 40
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_body_that_inflates_to_a_large_one_is_decoded_by_the_process(
    registrations: LargeRegistrations, name: str
) -> None:
    """By what is inflated, not by what was sent; and what it says is bounded before it is decoded."""
    bomb = RemotingCommand(
        RequestCode.REGISTER_BROKER,
        {**register(A, ADDR1).request().ext, "compressed": "true"},
        BOMBS[name],
        version=513,
    )
    assert len(bomb.body) < 40_000
    assert becomes_large(bomb)
    began_s = time.thread_time()
    with contextlib.suppress(RefusedError):
        to_event(bomb, SAID)
    assert time.thread_time() - began_s < 1.0
    with contextlib.suppress(RefusedError):
        registrations.read(bomb, SAID)


@pytest.mark.parametrize(("size", "expected"), [(128 * 1024, False), (128 * 1024 + 1, True)])
def test_compressed_bodies_that_count_as_large(size: int, expected: bool) -> None:
    body = zlib.compress(bytes(size))
    assert becomes_large(RemotingCommand(RequestCode.REGISTER_BROKER, {"compressed": "true"}, body)) is expected
    assert not becomes_large(RemotingCommand(RequestCode.REGISTER_BROKER, {}, body))
    assert not becomes_large(RemotingCommand(RequestCode.REGISTER_BROKER, {"compressed": "true"}, bytes(size)))


def test_a_read_is_given_up_after_its_share_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process lives on: the next registration is read."""

    def endless(*_: object) -> None:
        if asked.pop():
            while True:
                pass

    asked = [False, True]
    ours, theirs = Pipe()
    for _ in range(2):
        ours.send((RemotingCommand(RequestCode.REGISTER_BROKER), SAID))
        ours.send_bytes(b"")
    monkeypatch.setattr(module, "_CPU_LIMIT_S", 0.2)
    monkeypatch.setattr(module, "read_registration", endless)
    before = signal.getsignal(signal.SIGPROF)
    answers: list[object] = []

    def hear() -> None:
        if ours.poll(60):
            answers.append(ours.recv())
        ours.close()

    closer = threading.Thread(target=hear)
    closer.start()
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            module._serve(theirs)
    finally:
        signal.signal(signal.SIGPROF, before)
        closer.join()
    assert "more than 0.2 s of processor time" in str(answers[0])


def test_addresses_take_turns() -> None:
    """Of one that has many waiting, one is served between two of the others."""

    async def main() -> list[str]:
        turns, served = Turns(1), []

        async def one(address: str) -> None:
            async with turns.of(address):
                served.append(address)
                await asyncio.sleep(0)

        async with turns.of("busy"):
            waiting = [asyncio.create_task(one("busy")) for _ in range(5)]
            await asyncio.sleep(0)
            waiting += [asyncio.create_task(one(address)) for address in ("a", "b")]
            gone = asyncio.create_task(one("gone"))
            await asyncio.sleep(0)
            gone.cancel()
        await asyncio.gather(*waiting)
        await asyncio.wait_for(one("later"), 10)
        return served

    assert asyncio.run(main()) == ["busy", "a", "b", "busy", "busy", "busy", "busy", "later"]


def test_an_invalid_body_is_charged_by_its_inflated_size(tmp_path: Path) -> None:
    """So no client keeps the reader busy for nothing. Valid registrations get back what reading them counted."""
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(quotas=Quotas(broker_mb_per_h=Rate(1, 20))) as gateway,
        gateway.connect() as client,
    ):
        assert client.call(large().request()).code == codes.SUCCESS
        said = []
        for _ in range(40):
            ext = {**register(A, ADDR1).request().ext, "compressed": "true"}
            answer = client.call(Request(codes.REGISTER_BROKER, ext, BOMBS["a DataVersion of bare keys"], version=513))
            said.append(answer.code)
        assert ResponseCode.SYSTEM_BUSY in said


def test_one_that_cannot_be_started(registrations: LargeRegistrations, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(UnavailableError, match="did not start"):
            registrations.read(command(large()), SAID)
    assert registrations.read(command(large()), SAID) is not None


def test_a_stop_is_for_the_gateway_to_hear(registrations: LargeRegistrations) -> None:
    registrations.read(command(large()), SAID)
    process = process_of(registrations)
    process.terminate()
    assert registrations.read(command(large()), SAID) is not None
    assert process_of(registrations) is process


def test_closing_waits_for_nobody(registrations: LargeRegistrations) -> None:
    registrations.read(command(large()), SAID)
    process = process_of(registrations)
    reader, errors = reading_from_a_stopped_process(registrations)
    registrations.close()
    reader.join(30)
    assert len(errors) == 1
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(UnavailableError, match="the gateway stops"):
        registrations.read(command(large()), SAID)
    assert registrations._child is None


def reading_from_a_stopped_process(registrations: LargeRegistrations) -> tuple[threading.Thread, list[Exception]]:
    """A thread that waits for an answer, and what it will have raised."""
    process_of(registrations).send_signal(signal.SIGSTOP)
    errors: list[Exception] = []
    asked = threading.Event()
    assert registrations._child is not None
    pipe = registrations._child.pipe
    send_bytes = pipe.send_bytes

    def watched(data: bytes) -> None:
        asked.set()
        send_bytes(data)

    pipe.send_bytes = watched  # type: ignore[assignment]

    def read() -> None:
        try:
            registrations.read(command(large()), SAID)
        except UnavailableError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert asked.wait(30)
    return reader, errors


_OWNER = """
from tests.api.gateway.test_large_registrations import SAID, LargeRegistrations, command, large, process_of
registrations = LargeRegistrations()
registrations.read(command(large()), SAID)
print(process_of(registrations).pid, flush=True)
input()
"""


def test_the_process_ends_with_a_killed_gateway() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        owner.kill()
    wait_until(lambda: not is_alive(pid), 30, "the process to end")


def test_through_a_gateway(tmp_path: Path) -> None:
    with LocalLake(tmp_path) as lake, lake.gateway(clock_interval_s=3600.0) as gateway, gateway.connect() as client:

        def say(send: Send) -> int:
            assert client.call(send.request()).code == codes.SUCCESS
            rows = json.loads(client.call(route(T1).step.request()).body)["queueDatas"]
            queues: int = rows[0]["readQueueNums"]
            return queues

        assert say(large()) == 4
        assert say(large()) == 4
        assert say(large(queues=8, counter=2)) == 8
        process = process_of(gateway.parts.handler._registrations._large)
        on_log = [decode(record.payload) for record in lake.log.read(0, max_records=100)]
        registered = [event for event in on_log if isinstance(event, RegisterBroker)]
        brought = [None if event.topic_config_table is None else len(event.topic_config_table) for event in registered]
        assert brought == [MANY + 1, None, MANY + 1]
    assert process.poll() is not None
