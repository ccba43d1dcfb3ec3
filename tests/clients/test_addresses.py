# SPDX-License-Identifier: Apache-2.0
"""Addresses as people write them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clients.addresses import host_port, namesrv_addresses
from dev.peers.java import free_port
from dev.support.command import command, told
from schemas.errors import SetupError

WRITTEN = [
    ("a:1", ["a:1"]),
    ("a", ["a:9876"]),
    ("10.0.0.1", ["10.0.0.1:9876"]),
    ("a:9876/", ["a:9876"]),
    (" a:1 ; b:2;", ["a:1", "b:2"]),
    ("a:9876; b", ["a:9876", "b:9876"]),
    ("a:1,b:2", ["a:1", "b:2"]),
    ("a:1;a:01", ["a:1"]),
    ("a;a:9876", ["a:9876"]),
    ("[::1]:9876", ["[::1]:9876"]),
    ("[::1]", ["[::1]:9876"]),
    ("[fe80::1%eth0]:9877", ["[fe80::1%eth0]:9877"]),
]
BAD = [
    ("", "names no NameServer"),
    (" ; ", "names no NameServer"),
    ("a:", "expected HOST:PORT"),
    ("a:0", "expected HOST:PORT"),
    ("a:65536", "expected HOST:PORT"),
    ("a:-1", "expected HOST:PORT"),
    ("a:1x", "expected HOST:PORT"),
    ("a:٣", "expected HOST:PORT"),
    (":1", "expected HOST:PORT"),
    ("9876", "expected HOST:PORT"),
    ("u@a:1", "expected HOST:PORT"),
    ("a/b", "expected HOST:PORT"),
    ("[::1", "in brackets"),
    ("[::1]x", "in brackets"),
    ("::1", r"an IPv6 address stands in brackets, \[::1\]:9876"),
    ("::1:9876", "in brackets"),
    ("a:1 b:2", "separate addresses by ';'"),
]


ODD = [
    ("a:9876\uff1bb:9876", "full-width character '\uff1b': write ';', 'a:9876;b:9876'"),
    ("a\uff1a9876", "full-width character '\uff1a': write ':', 'a:9876'"),
    ("a:9876\uff0cb:9876", "full-width character '\uff0c': write ',', 'a:9876,b:9876'"),
    ("a:9876\u3001b:9876", "write ',', 'a:9876,b:9876'"),
    ("\uff11\uff10\uff0e\uff10.0.1:9876", "write '1', '10.0.0.1:9876'"),
    ("10\u30020\u30020\u30021:9876", "write '.', '10.0.0.1:9876'"),
    ("http\uff1a//a:8080", "full-width"),
    ('"a:9876;b:9876"', "the quote \", which an env file or a compose file keeps: write 'a:9876' without"),
    ("'a:9876'", "the quote '"),
    ("\u201ca:9876\u201d", "the quote \u201c"),
    ("tcp://a:9876", "it begins with tcp://, and RocketMQ's addresses have no scheme: write 'a:9876'"),
    ("rocketmq://a:9876;b", "begins with rocketmq://"),
    ("b;TCP://a:9876", "begins with TCP://"),
    ("\ufeffa:9876", "character U\\+FEFF, which is invisible"),
    ("a:9876\u200b", "character U\\+200B"),
    ("a:1\u3000b:2", "separate addresses by"),
    ("a:1\tb:2", "separate addresses by"),
]


@pytest.mark.parametrize("http", [False, True])
@pytest.mark.parametrize(("text", "says"), ODD)
def test_mistakes_in_an_address_are_named(text: str, says: str, http: bool) -> None:
    with pytest.raises(SetupError, match=f"^NAMESRV_ADDR: .* is no address.*{says}"):
        namesrv_addresses(text, "NAMESRV_ADDR", http=http)


@pytest.mark.parametrize("text", ["a:1;", ";a:1", "a:1;;", " a:1 ,, ", "a:1,", "\ta:1\n"])
def test_separators_at_the_ends(text: str) -> None:
    assert namesrv_addresses(text) == ["a:1"]


@pytest.mark.parametrize("variable", ["NAMESRV_ADDR", "ROUTELAKE_NAMESRV"])
@pytest.mark.parametrize(
    "words", [("route", "T"), ("admin", "topicList"), ("broker",), ("fleet",), ("import-kv", "file")], ids=" ".join
)
def test_the_variable_and_the_entry_are_named(variable: str, words: tuple[str, ...]) -> None:
    code, output = told(*words, **{variable: "good:9876;bad\uff1a9876"})
    assert code == 2
    assert output.startswith(f"routelake: {variable}: 'bad\uff1a9876' is no address"), output
    code, output = told(*words, "-n", "x;tcp://y", **{variable: "good:9876"})
    assert code == 2
    assert "'tcp://y' is no address" in output
    assert variable not in output


def test_the_file_and_the_key_are_named(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=tcp://a:9876\n")
    code, output = told("broker", "--config", file)
    assert code == 2
    assert f"namesrvAddr of {file}: 'tcp://a:9876' is no address" in output


@pytest.mark.parametrize("option", ["--http", "--remoting"])
@pytest.mark.parametrize("text", ["127.0.0.1\uff1a9876", '"127.0.0.1:9876"', "tcp\uff1a//a:1"])
def test_listeners_too(tmp_path: Path, option: str, text: str) -> None:
    code, output = told("gateway", "--data-dir", tmp_path, option, text)
    assert code == 2
    assert f"routelake: {option} " in output
    assert "full-width" in output or "the quote" in output


@pytest.mark.parametrize("http", [False, True])
@pytest.mark.parametrize(("text", "addresses"), WRITTEN)
def test_lists(text: str, addresses: list[str], http: bool) -> None:
    assert namesrv_addresses(text, http=http) == addresses


@pytest.mark.parametrize("http", [False, True])
@pytest.mark.parametrize(("text", "says"), BAD)
def test_what_is_no_address(text: str, says: str, http: bool) -> None:
    with pytest.raises(SetupError, match=f"^-n.*{says}"):
        namesrv_addresses(text, http=http)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("http://a:8080", ["http://a:8080"]),
        ("http://a:8080/ ; b", ["http://a:8080", "b:9876"]),
        ("HTTP://a:8080", ["http://a:8080"]),
        (["a:9876", " http://b:8080/ "], ["a:9876", "http://b:8080"]),
        ("https://a.example,http://[::1]:80", ["https://a.example", "http://[::1]:80"]),
    ],
)
def test_over_http(text: str | list[str], addresses: list[str]) -> None:
    assert namesrv_addresses(text, http=True) == addresses


@pytest.mark.parametrize(
    "text", ["ftp://a:1", "http://", "http://a:99999", "http://a/x", "http://a?x", "http://u@a", "http://a b:1"]
)
def test_what_is_no_address_over_http(text: str) -> None:
    with pytest.raises(SetupError, match="-n"):
        namesrv_addresses(text, http=True)


def test_http_where_only_remoting_is_spoken() -> None:
    with pytest.raises(SetupError, match=r"'http://ns:8080/' is an HTTP address.*the port of the NameServer.*ns:9876$"):
        namesrv_addresses("http://ns:8080/")


def test_a_port_that_must_be_given() -> None:
    assert host_port("a:10911", "-b") == "a:10911"
    with pytest.raises(SetupError, match="-b: 'broker-a' is no address"):
        host_port("broker-a", "-b")


COMMANDS = ["route orders", "admin topicList", "admin compare", "broker --store STORE", "fleet", "import-kv FILE"]


def cli(words: str, address: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "kv.json").write_text('{"configTable":{}}')
    known = {"STORE": str(folder), "FILE": str(folder / "kv.json")}
    return command(*(known.get(word, word) for word in words.split()), "-n", address)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_reads_them_alike(words: str, tmp_path: Path) -> None:
    done = cli(words, "127.0.0.1:9876;::1", tmp_path)
    assert done.returncode == 2, done
    assert "an IPv6 address stands in brackets" in done.stderr
    assert done.stderr.startswith("routelake: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:PORT", "127.0.0.1:PORT: no connection: Connection refused"),
        ("localhost:PORT", "localhost:PORT: no connection: Connection refused"),
        ("http://127.0.0.1:PORT", "http://127.0.0.1:PORT: no connection: Connection refused"),
        ("no-such-host.invalid", "no-such-host.invalid:9876: no connection: "),
    ],
)
def test_an_unreachable_address_is_reported_in_plain_words(tmp_path: Path, address: str, says: str) -> None:
    port = str(free_port())
    done = cli("route orders", address.replace("PORT", port), tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"routelake: {says.replace('PORT', port)}")
    assert "Errno" not in done.stderr and "('" not in done.stderr
