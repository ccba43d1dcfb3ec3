# SPDX-License-Identifier: Apache-2.0
"""What cannot start is refused at once, before anything is made and before any child is started."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import preflight
from cli.main import main
from cli.preflight import Listen, exposure, listen_address
from dev.peers.java import free_port
from dev.peers.routelake import ROOT
from dev.support.certificates import Authority
from lake.delta.ddl import lock_lake
from schemas.errors import SetupError

PROGRAM = """
import sys
from cli.main import main
try:
    main()
finally:
    heavy = {"pyspark", "pandas", "fastapi", "uvicorn", "kafka", "pyarrow"} & set(sys.modules)
    if heavy:
        print("loaded", heavy)
"""


class Refused:
    """`routelake WORDS` in a folder of its own, in this process; nothing may be made."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("ROUTELAKE_") or "NAMESRV" in name]:
            monkeypatch.delenv(name)

        def made(*_: object) -> None:
            raise AssertionError("it went on")

        monkeypatch.setattr("cli.data_options.LogOptions.make", made)

    def __call__(self, *words: str) -> str:
        """The one line that it says."""
        before = self.listing()
        code, out, err = self.run(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), (code, out, err)
        assert err.startswith("routelake: ")
        assert self.listing() == before
        return err

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._monkeypatch.setattr(sys, "argv", ["routelake", *words])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = self._capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    def listing(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    return Refused(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="module")
def ports() -> tuple[str, ...]:
    return "--http", f"127.0.0.1:{free_port()}", "--remoting", f"127.0.0.1:{free_port()}"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


OPTIONS = {
    "serve gateway fold": [
        ("--event-log mysql://x", "is not an event log"),
        ("--event-log sqlite:events.db", "the absolute path of a file"),
        ("--event-log sqlite:///", "the absolute path of a file"),
        ("--event-log sqlite:///nowhere/at/all/events.db", "the folder /nowhere/at/all does not exist"),
        ("--event-log sqlite://{folder}", "is a folder"),
        ("--event-log sqlite://{folder}/text", "is not a SQLite database"),
        ("--event-log kafka://", "kafka://host:9092"),
        ("--event-log kafka://host/topic", "kafka://host:9092"),
        ("--event-log kafka://host:99999/topic", "kafka://host:9092"),
        ("--event-log kafka://host:9092/a/b", "kafka://host:9092"),
        ("--lake ftp://host/lake", "a URL that begins with s3://, gs://, az:// and names a bucket"),
        ("--lake s3://", "names a bucket"),
        ("--lake az://container/lake", "Account must be specified"),
        ("--data-dir text", "is not a folder. Choose another --data-dir, or move that file away."),
        ("--data-dir text/data", "is not a folder. Choose another --data-dir, or move that file away."),
    ],
    "serve fold": [
        ("--master yarn", "--master 'yarn': expected local, spark://HOST:PORT"),
        ("--master spark://spark-1:7077", "unless Spark requires authentication"),
        ("--master k8s://https://k:1", "set the image of the executors"),
        ("--shared-dir elsewhere", "--shared-dir elsewhere needs a cluster"),
        ("--spark-config nowhere", "nowhere needs a cluster"),
        ("--master spark://spark-1:7077 --spark-config nowhere", "nowhere cannot be read"),
        ("--shards 3", "--shards 3: choose one of 1, 2, 4, 8, 16"),
        ("--driver-memory lots", "--driver-memory 'lots'"),
        ("--driver-memory 100m", "less than 512m"),
        ("--driver-memory 1", "with a unit"),
        ("--driver-memory 1gb", "with a unit"),
        ("--trigger-ms -1", "--trigger-ms"),
        ("--history-retention-days 0", "--history-retention-days"),
        ("--history-retention-days 99999999", "--history-retention-days"),
        ("--event-log-retention-hours inf", "--event-log-retention-hours"),
        ("--event-log-retention-hours nan", "--event-log-retention-hours"),
    ],
    "serve gateway": [
        ("--http 127.0.0.1:18999 --remoting 127.0.0.1:18999", "use the same port"),
        ("--http :18999 --remoting 127.0.0.1:18999", "use the same port"),
        ("--http 192.0.2.1:18999", "this machine does not have that address"),
        ("--http no-such-host.invalid:18999", "cannot be resolved"),
        ("--http 127.0.0.1:99999", "--http '127.0.0.1:99999': expected HOST:PORT"),
        ("--remoting 9876", "--remoting '9876': expected HOST:PORT"),
        ("--remoting http://127.0.0.1:9876", "without a scheme"),
        ("--remoting ::1:9876", "in brackets"),
        ("--http=", "--http '': expected HOST:PORT"),
        ("--self-preservation 15.5%", "--self-preservation '15.5%': expected a share"),
        ("--self-preservation 100%", "expected a share, for example 15%, or off"),
        ("--self-preservation yes", "expected a share"),
        ("--tls-cert /nowhere/tls.pem", "--tls-cert and --tls-key"),
        ("--tls-cert /nowhere/tls.pem --tls-key /nowhere/tls.key", "the certificate /nowhere/tls.pem cannot be read"),
        (
            "--tls-cert server.pem --tls-key other.key",
            "the key other.key does not fit the certificate server.pem. Name the two",
        ),
        ("--config wrong-key", "wrong-key, line 1: unknown key 'listenPrt'. Did you mean listenPort?"),
        ("--config wrong-value", "listenPort='abc' is not usable: expected a number from 0 to 65535"),
        ("--config none", "--config none: No such file or directory. Name a RocketMQ namesrv.properties"),
        ("--auth none", "--auth none: cannot be read: No such file or directory. Correct the path or the file."),
        ("--quota nothing=5", "there is no quota 'nothing'"),
    ],
    "serve": [("--http 127.0.0.1:0", "Set a fixed port")],  # a child's
    "fold": [("--standby", "--standby waits for another fold of a lake at a URL")],
    "bench": [
        ("nosuch", "no benchmark 'nosuch'"),
        ("--serve '", "--serve"),
        ("--serve --wrkers", "no such option: --wrkers. Did you mean --workers"),
        ("--results text", "--results"),
        ("--results text/results", "--results"),
    ],
    "broker": [
        ("-n 127.0.0.1 --listen :10911", "Name one that clients can reach"),
        ("-n 127.0.0.1 --listen 10911", "--listen '10911': expected HOST:PORT"),
        ("-n 127.0.0.1 --listen 192.0.2.1:10911", "this machine does not have that address"),
        ("-n 127.0.0.1 --listen 127.0.0.1:{taken}", "another process listens there"),
        ("-n 127.0.0.1 --store text", "--store"),
        ("-n 127.0.0.1 --config none", "--config none: cannot be read: No such file"),
    ],
    "fleet": [("-n 127.0.0.1 --timeout-s nan", "--timeout-s")],
    "admin": [("topicList -n 127.0.0.1 --timeout-s nan", "--timeout-s")],
    "import-kv": [("none", "none: No such file")],
}
"""Options and the beginning of the error, by the commands that refuse them."""


@pytest.mark.parametrize(
    ("command", "words", "says"),
    [(command, *case) for commands, cases in OPTIONS.items() for command in commands.split() for case in cases],
)
def test_options(
    tmp_path: Path, refused: Refused, ports: tuple[str, ...], taken: int, command: str, words: str, says: str
) -> None:
    (tmp_path / "text").write_text("this is not a database, but as long as its header")
    (tmp_path / "wrong-key").write_text("listenPrt=9877\n")
    (tmp_path / "wrong-value").write_text("listenPort=abc\n")
    if "other.key" in words:
        authority = Authority(tmp_path)
        authority.issue("server").cert.rename(tmp_path / "server.pem")
        authority.issue("other").key.rename(tmp_path / "other.key")
    listen = ports if command in ("serve", "gateway") else ()
    said = refused(command, *listen, *words.format(folder=tmp_path, taken=taken).split())
    assert says in said


def words_of(command: str, ports: tuple[str, ...]) -> list[str]:
    return [command, *(() if command == "fold" else ports)]


@pytest.mark.parametrize("command", ["serve", "fold"])
def test_a_machine_that_does_not_know_its_own_name(
    refused: Refused, ports: tuple[str, ...], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def bare(host: str, *rest: Any, **more: Any) -> Any:
        if host == "localhost":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", bare)
    assert "Add the line '127.0.0.1 localhost' to /etc/hosts" in refused(*words_of(command, ports))


LOG_CONFIGS = [
    (None, "No such file or directory. Name a file of Kafka client properties"),
    ("security.protocol=TLS", "client.properties: security.protocol: 'TLS' is not one of"),
    ("bootstrap.servers=a:1", "client.properties: bootstrap.servers stands in --event-log"),
    ("security.protocol=SSL\nssl.truststore.location=/nowhere/ca.pem", "/nowhere/ca.pem cannot be read"),
    (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=file:/nowhere",
        "/nowhere",
    ),
]


@pytest.mark.parametrize("command", ["serve", "gateway", "fold"])
@pytest.mark.parametrize(("text", "says"), LOG_CONFIGS)
def test_files_of_kafka_client_properties(
    tmp_path: Path, refused: Refused, ports: tuple[str, ...], command: str, text: str | None, says: str
) -> None:
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    kafka = ["--event-log", "kafka://127.0.0.1:1/topic", "--event-log-config", str(file)]
    assert says in refused(*words_of(command, ports), *kafka)
    assert "is for an event log in Kafka" in refused(*words_of(command, ports), *kafka[2:])


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("command", ["serve", "gateway"])
@pytest.mark.parametrize("option", ["--http", "--remoting"])
def test_ports_in_use(
    tmp_path: Path, refused: Refused, ports: tuple[str, ...], taken: int, command: str, option: str, workers: str
) -> None:
    said = refused(command, *ports, option, f"127.0.0.1:{taken}", "--workers", workers)
    assert f"{option} 127.0.0.1:{taken} cannot be listened on: another process listens there" in said
    assert f"{option} 0.0.0.0:{taken} cannot" in refused(command, *ports, option, f":{taken}")


CONFIGS = [
    ("listenPrt=1", "line 1: unknown key 'listenPrt'. Did you mean listenPort?"),
    ("listenPort=1\nlistenPort=2", "is '1' in line 1 and '2' in line 2"),
    ("listenPort=many", "listenPort='many' is not usable"),
    ("listenPort=65536", "expected a number from 0 to 65535"),
    ("clusterTest=true", "clusterTest=true is not possible"),
    ("bindAddress=\\u00zz", "malformed"),
    (None, "No such file"),
    ("folder", "Is a directory"),
]


@pytest.mark.parametrize("command", ["serve", "gateway"])
@pytest.mark.parametrize(("text", "says"), CONFIGS)
def test_configuration_files(
    tmp_path: Path, refused: Refused, ports: tuple[str, ...], command: str, text: str | None, says: str
) -> None:
    """Bad inputs 43 to 50 of a configuration, also together with --remoting, which wins over the file."""
    file = tmp_path / "namesrv.properties"
    if text == "folder":
        file.mkdir()
    elif text is not None:
        file.write_text(text)
    assert says in refused(command, *ports, "--config", str(file))
    assert says in refused(command, "--config", str(file))


@pytest.mark.parametrize("command", ["serve", "gateway"])
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ROUTELAKE_HTTP_TOKENS", "alice", "ROUTELAKE_HTTP_TOKENS: entry 1 is not USER=TOKEN"),
        ("ROUTELAKE_HTTP_PROTECT_READS", "yes", "expected true or false"),
        ("ROUTELAKE_HTTP_TRUSTED_HOSTS", "a,b", "'a,b' is not a host name"),
        ("ROUTELAKE_HTTP_TRUSTED_HOSTS", "ok mq.example.com:8080", "'mq.example.com:8080' is not a host name"),
        ("ROUTELAKE_HTTP_TRUSTED_HOSTS", "mq.example.com", "ROUTELAKE_HTTP_TOKENS, or accounts with --auth FILE"),
        ("ROUTELAKE_REMOTING_CONNECTIONS", "many", "ROUTELAKE_REMOTING_CONNECTIONS"),
    ],
)
def test_variables_of_http(
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    ports: tuple[str, ...],
    command: str,
    name: str,
    value: str,
    says: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert says in refused(command, *ports)


@pytest.mark.parametrize("command", ["serve", "fold"])
def test_a_lake_that_another_fold_holds(tmp_path: Path, refused: Refused, ports: tuple[str, ...], command: str) -> None:
    with lock_lake(tmp_path / "data" / "lake"):
        assert "in use by a running fold" in refused(*words_of(command, ports))
    (tmp_path / "data" / "lake" / "fold.lock").write_text("1234")
    with pytest.raises(AssertionError, match="it went on"):
        refused(*words_of(command, ports))
    assert (tmp_path / "data" / "lake" / "fold.lock").read_text() == "1234"  # the look leaves no trace


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:8081", Listen("127.0.0.1", 8081)),
        ("localhost", Listen("localhost", 8080)),
        (" 10.0.0.1:8080/ ", Listen("10.0.0.1", 8080)),
        (":8081", Listen("0.0.0.0", 8081)),
        ("[::]:8081", Listen("::", 8081)),
        ("[::1]", Listen("::1", 8080)),
        ("http://127.0.0.1:8080/", Listen("127.0.0.1", 8080)),
    ],
)
def test_addresses_as_people_write_them(text: str, listen: Listen) -> None:
    assert listen_address(text, "--http", 8080) == listen


@pytest.mark.parametrize("text", ["[::1", "::1]:80", "a b:80", "a/b:80", "[]:80", ":", "a:٣", "8080"])
def test_no_address(text: str) -> None:
    with pytest.raises(SetupError, match="--http.*expected HOST:PORT"):
        listen_address(text, "--http", 8080)


def test_every_interface_is_said() -> None:
    here, everywhere, six = Listen("10.0.0.1", 1), Listen("0.0.0.0", 2), Listen("::", 3)
    assert exposure(here, here) is None
    assert "HTTP on 0.0.0.0:2 listens on every interface" in (exposure(everywhere, here) or "")
    assert "NameServer on [::]:3 listens on every interface" in (exposure(here, six) or "")
    assert "NameServer on [::]:3 and HTTP on 0.0.0.0:2" in (exposure(everywhere, six) or "")
    assert (str(everywhere.local), str(six.local), str(here.local)) == ("127.0.0.1:2", "[::1]:3", "10.0.0.1:1")


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_every_interface_is_said_before_anything_is_made(
    refused: Refused, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with pytest.raises(AssertionError, match="it went on"):
        refused(command, "--http", f":{free_port()}", "--remoting", f"127.0.0.1:{free_port()}", "--insecure")
    assert capsys.readouterr().err.count("listens on every interface") == 1


@pytest.mark.parametrize("command", ["serve", "gateway", "fold"])
def test_it_takes_less_than_a_second_and_loads_nothing_heavy(tmp_path: Path, command: str) -> None:
    """In a process of its own. Its time is that of the processor, because other processes may run at the same time.

    A slow machine is allowed more: what loading three libraries that every command needs takes on it, 3.5 times. It has
    three tries, because processes that share the caches of the processor count.
    """

    def refusal() -> subprocess.CompletedProcess[str]:
        return _python(tmp_path, PROGRAM, command, "--event-log", "mysql://x")

    def in_time() -> bool:
        libraries_s = _processor_s(lambda: _python(tmp_path, "import pydantic, structlog, typer"))
        return _processor_s(refusal) < max(1, 3.5 * libraries_s)

    done = refusal()
    assert (done.returncode, done.stdout) == (2, ""), done
    assert any(in_time() for _ in range(3))
    assert list(tmp_path.iterdir()) == []


def _python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("ROUTELAKE_")}
    return subprocess.run(
        [sys.executable, "-c", *words],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _processor_s(run: Callable[[], object]) -> float:
    before = os.times()
    run()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_addresses_that_others_reach(refused: Refused, ports: tuple[str, ...], tmp_path: Path, command: str) -> None:
    accounts = tmp_path.parent / f"{tmp_path.name}.yml"
    accounts.write_text("accounts:\n  - {accessKey: a, secretKey: secret1}\n")
    assert "--remoting 0.0.0.0:" in refused(command, *ports, "--remoting", f":{free_port()}")
    assert "--http 0.0.0.0:" in refused(command, *ports, "--http", f":{free_port()}")
    said = refused(command, *ports, "--remoting", f":{free_port()}", "--auth", str(accounts), "--auth-mode", "audit")
    assert "can be reached" in said
    assert "--auth-mode audit refuses nothing. Set --auth-mode enforce-writes or enforce" in said
    for more in (("--insecure",), ("--auth", str(accounts)), ("--auth", str(accounts), "--auth-mode=enforce-writes")):
        with pytest.raises(AssertionError, match="it went on"):
            refused("serve", *ports, "--remoting", f":{free_port()}", "--http", f":{free_port()}", *more)
    assert "needs accounts. Set --auth FILE" in refused(command, *ports, "--auth-mode", "audit")
    assert "cannot be used together" in refused(
        command, *ports, "--auth", str(accounts), "--auth-require-tls", "--auth-admin-plaintext"
    )
    accounts.write_text("accounts:\n  - {accessKey: a, secretKey: secret1, adnim: true}\n")
    said = refused(command, *ports, "--auth", str(accounts))
    assert "line 2: there is no key 'adnim'" in said
    assert "secret1" not in said


def test_behind_a_proxy_who_writes_is_asked(
    refused: Refused, ports: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = tmp_path.parent / f"{tmp_path.name}.yml"
    accounts.write_text("accounts:\n  - {accessKey: a, secretKey: secret1}\n")
    monkeypatch.setenv("ROUTELAKE_HTTP_TRUSTED_HOSTS", "mq.example.com")
    auth = ("--auth", str(accounts))
    without: tuple[tuple[str, ...], ...] = ((), ("--insecure",), (*auth, "--auth-mode=audit"))
    for more in without:
        assert "no write counts as local" in refused("gateway", *ports, *more)
    for mode in ("--auth-mode=enforce", "--auth-mode=enforce-writes"):
        with pytest.raises(AssertionError, match="it went on"):
            refused("serve", *ports, *auth, mode)
    monkeypatch.setenv("ROUTELAKE_HTTP_TOKENS", "alice=0123456789abcdef")
    with pytest.raises(AssertionError, match="it went on"):
        refused("serve", *ports)


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_a_quota_of_the_environment(
    refused: Refused, ports: tuple[str, ...], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTELAKE_QUOTA", "topics=5,brokers=few")
    assert "--quota 'brokers=few': expected NAME=VALUE" in refused(*words_of(command, ports))


def test_a_data_directory_of_another_user_is_refused_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    said = (
        f"cannot write to the data directory {tmp_path / 'data'}: {tmp_path} belongs to {tmp_path.owner()} (0700), and"
    )
    with pytest.raises(
        SetupError, match=re.escape(said) + ".* Run this command as that user, or choose another --data-dir"
    ):
        preflight.check_data_dir(tmp_path / "data")


def test_a_user_without_a_name_is_named_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    preflight.check_user()
    monkeypatch.setattr(os, "geteuid", lambda: 1_000_650_123)
    with pytest.raises(SetupError, match="user id 1000650123 .* has no user name"):
        preflight.check_user()
