# SPDX-License-Identifier: Apache-2.0
"""namesrv.properties as a whole: what takes effect, what is warned of, what is refused, and the command line's answer."""

from __future__ import annotations

import math
import re
import sys
import zipfile
from pathlib import Path

import pytest

from api.settings.gateway import GatewaySettings
from api.settings.keys import KEYS, LIVE_KEYS, Use, nearest
from api.settings.namesrv import NamesrvProperties, check, gateway_settings, listen_address, read, remoting_settings
from cli import main as cli
from dev.peers.java import classpath
from schemas.errors import SetupError
from schemas.properties import parse

DEFAULT = ("127.0.0.1", 9876)
CONFIG_CLASSES = (
    "org/apache/rocketmq/common/namesrv/NamesrvConfig",
    "org/apache/rocketmq/remoting/netty/NettyServerConfig",
    "org/apache/rocketmq/remoting/netty/NettyClientConfig",
    "org/apache/rocketmq/common/ControllerConfig",
    "org/apache/rocketmq/common/JraftConfig",
)


def checked(text: str) -> NamesrvProperties:
    return check(parse(text), "namesrv.properties")


def refusal(text: str) -> str:
    with pytest.raises(SetupError) as caught:
        checked(text)
    return str(caught.value)


# --- keys ---


def test_every_setter_of_the_five_configuration_classes_is_a_known_key() -> None:
    """Read from the 5.5.0 jars, so a new release shows what is missing here."""
    setters: set[str] = set()
    for jar in classpath("rocketmq").split(":"):
        with zipfile.ZipFile(jar) as archive:
            for name in CONFIG_CLASSES:
                if f"{name}.class" in archive.namelist():
                    setters |= _setters(archive.read(f"{name}.class"))
    assert setters == KEYS.keys()


def _setters(data: bytes) -> set[str]:
    """Keys by MixAll.properties2Object: setX in the constant pool of a class file is key x."""
    names = set()
    for found in re.finditer(rb"\x01(..)set", data, re.DOTALL):
        name = data[found.start() + 3 : found.start() + 3 + int.from_bytes(found[1])].decode("ascii", "replace")
        if re.fullmatch(r"set\w+", name):
            names.add(name[3].lower() + name[4:])
    return names


def test_live_and_start_keys_have_a_place_to_take_effect() -> None:
    properties = checked(
        "\n".join(f"{key.name}={'1' if key.kind == 'int' else 'true'}" for key in KEYS.values() if key.use is Use.LIVE)
    )
    settings = gateway_settings(
        GatewaySettings(gateway_id="g", lake_dir=Path()), properties, remoting_settings(properties), DEFAULT
    )
    assert all(getattr(settings, key.field) is True for key in LIVE_KEYS.values())


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("enableTopiclist", "enableTopicList"),
        ("supportactingmaster", "supportActingMaster"),
        ("listenport", "listenPort"),
        ("notifyMinBrokerIdChange", "notifyMinBrokerIdChanged"),
        ("xyz", None),
    ],
)
def test_nearest(wrong: str, meant: str | None) -> None:
    assert nearest(wrong) == meant


# --- a file ---


def test_what_takes_effect() -> None:
    properties = checked(
        "listenPort = 19876\nbindAddress=10.0.0.1 \nserverChannelMaxIdleTimeSeconds=30\nserverSocketBacklog=7\n"
        "supportActingMaster=TRUE\nenableTopicList=false\nneedWaitForService=true\nwaitSecondsForService=+5\n"
        "configBlackList=enableTopicList;orderMessageEnable\nclusterTest=false\n"
        "scanNotActiveBrokerInterval=20000\n"
    )
    assert properties.warnings == ()
    bounds = remoting_settings(properties)
    listen = listen_address(properties, DEFAULT)
    assert listen == ("10.0.0.1", 19876)
    assert (bounds.idle_timeout_s, bounds.backlog, bounds.frame_limit_bytes) == (30.0, 7, 64 * 1024 * 1024)
    settings = gateway_settings(GatewaySettings(gateway_id="g", lake_dir=Path()), properties, bounds, listen)
    assert settings.support_acting_master
    assert not settings.enable_topic_list
    assert (settings.need_wait_for_service, settings.wait_seconds_for_service) == (True, 5)
    assert settings.config_black_list == "enableTopicList;orderMessageEnable"
    assert (settings.clock_interval_s, settings.gap_s) == (20.0, 40.0)
    assert settings.shown_properties["listenPort"] == "19876"


def test_an_empty_file_changes_nothing() -> None:
    properties = checked("# nothing\n")
    assert properties == NamesrvProperties()
    assert listen_address(properties, DEFAULT) == DEFAULT


def test_a_port_without_an_address_does_not_open_the_network() -> None:
    assert listen_address(checked("listenPort=1234"), DEFAULT) == ("127.0.0.1", 1234)


def test_no_idle_limit() -> None:
    assert remoting_settings(checked("serverChannelMaxIdleTimeSeconds=0")).idle_timeout_s == math.inf


def test_what_a_stock_namesrv_dumps_into_its_file_is_accepted() -> None:
    """After a 318, a stock NameServer overwrites its file with everything it holds."""
    dump = """bindAddress=0.0.0.0
clientRequestThreadPoolNums=8
clusterTest=false
configBlackList=configBlackList;configStorePath;kvConfigPath
configStorePath=/root/namesrv/namesrv.properties
enableControllerInNamesrv=false
kvConfigPath=/root/namesrv/kvConfig.json
listenPort=9876
orderMessageEnable=true
productEnvName=center
rocketmqHome=/opt/rocketmq
scanNotActiveBrokerInterval=5000
useEpollNativeSelector=false
"""
    properties = checked(dump)
    assert properties.values["orderMessageEnable"] is True
    (warning,) = properties.warnings
    assert warning == (
        "namesrv.properties: these keys have no meaning here and are ignored: clientRequestThreadPoolNums, "
        "configStorePath, kvConfigPath, productEnvName, rocketmqHome, useEpollNativeSelector"
    )


@pytest.mark.parametrize("value", ["TRUE ", "yes", "1", "", "true;"])
def test_a_boolean_that_java_takes_for_false_is_false_and_said_so(value: str) -> None:
    properties = checked(f"\nenableTopicList={value}")
    assert properties.values["enableTopicList"] is False
    (warning,) = properties.warnings
    assert "line 2" in warning
    assert repr(value) in warning


@pytest.mark.parametrize("value", ["9876 ", "x", "", "1.5", "0x10", "99999999999", "-1", "70000"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    assert "listenPort" in refusal(f"listenPort={value}")


@pytest.mark.parametrize("value", ["0", "-1", "1.5"])
def test_a_scan_that_cannot_be_is_refused(value: str) -> None:
    assert "expected a number, 1 or more" in refusal(f"scanNotActiveBrokerInterval={value}")


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    assert refusal("a=1").endswith("unknown key 'a'. RocketMQ's NameServer knows no such key.")
    assert refusal("\n\nenableAllTopiclist=1") == (
        "namesrv.properties, line 3: unknown key 'enableAllTopiclist'. Did you mean enableAllTopicList?"
    )


def test_one_key_with_two_values_is_refused() -> None:
    assert "line 1 and '2' in line 3" in refusal("listenPort=1\n\nlistenPort=2")
    assert checked("listenPort=1\nlistenPort=1").values == {"listenPort": 1}


@pytest.mark.parametrize("key", ["clusterTest", "enableControllerInNamesrv"])
def test_what_is_not_here_is_refused(key: str) -> None:
    assert "not possible" in refusal(f"{key}=true")
    assert checked(f"{key}=false").values == {}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No such file"):
        read(tmp_path / "missing")
    with pytest.raises(SetupError, match="Is a directory"):
        read(tmp_path)
    (tmp_path / "bad").write_text("listenPort=\\u12")
    with pytest.raises(SetupError, match="line 1: malformed"):
        read(tmp_path / "bad")


# --- the command line ---


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """Exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["routelake", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_a_bad_file_is_exit_code_2(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPrt=1")
    assert run(monkeypatch, command, "--data-dir", str(tmp_path / "data"), "--config", str(file)) == 2
    assert "Did you mean listenPort?" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_missing_file_named_by_the_variable_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTELAKE_CONFIG", str(tmp_path / "none"))
    assert run(monkeypatch, "gateway", "--data-dir", str(tmp_path / "data")) == 2


@pytest.mark.parametrize(
    ("options", "variable", "port"),
    [((), None, 1111), (("--remoting", "127.0.0.1:2222"), None, 2222), ((), "127.0.0.1:3333", 3333)],
)
def test_the_command_line_and_the_variable_win_over_the_file(
    options: tuple[str, ...], variable: str | None, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import api.main

    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=1111\norderMessageEnable=true\nserverWorkerThreads=8\n")
    if variable is not None:
        monkeypatch.setenv("ROUTELAKE_REMOTING", variable)
    monkeypatch.setenv("ROUTELAKE_HTTP_PROTECT_READS", "true")
    seen: dict[str, object] = {}

    def run_gateway(settings: GatewaySettings, log_url: str, **more: object) -> int:
        seen.update(settings=settings, **more)
        return 0

    monkeypatch.setattr(api.main, "run_gateway", run_gateway)
    assert (
        run(
            monkeypatch,
            "gateway",
            "--data-dir",
            str(tmp_path),
            "--config",
            str(file),
            *options,
        )
        == 0
    )
    assert seen["remoting"] == ("127.0.0.1", port)
    settings = seen["settings"]
    assert isinstance(settings, GatewaySettings)
    assert settings.order_message_enable
    assert not settings.allow_config_update
    assert seen["remoting_settings"].frame_limit_bytes == 64 * 1024 * 1024  # type: ignore[attr-defined]
    assert seen["http_settings"].protect_reads  # type: ignore[attr-defined]


def test_what_peers_may_hold_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = checked("")
    assert remoting_settings(nothing).max_received_bytes == 128 * 1024 * 1024
    monkeypatch.setenv("ROUTELAKE_REMOTING_MEMORY_MIB", "512")
    monkeypatch.setenv("ROUTELAKE_REMOTING_CONNECTIONS", "77")
    bounds = remoting_settings(nothing)
    assert (bounds.max_received_bytes, bounds.max_unread_bytes) == (512 * 1024 * 1024, 256 * 1024 * 1024)
    assert bounds.max_connections == 77
    for text in ("many", "0", "-5", "1.5"):
        monkeypatch.setenv("ROUTELAKE_REMOTING_CONNECTIONS", text)
        with pytest.raises(SetupError, match="ROUTELAKE_REMOTING_CONNECTIONS=.*without it, it is 10000"):
            remoting_settings(nothing)


def test_all_faults_of_a_file_are_in_one_message(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_bytes(
        b"\xef\xbb\xbflistenPort=9876 \nrocketmqHome=\\u12\nlistenport=1\nclusterTest=true\nclusterTest=false\n"
        b"# \xd7\xa2\xca\xcd\nserverSocketBacklog=x\n"
    )
    with pytest.raises(SetupError) as caught:
        read(file)
    said = str(caught.value)
    assert "\n" not in said
    for words in (
        "line 2: malformed",
        "line 1: listenPort='9876 ' is not usable",
        "line 3: unknown key 'listenport'. Did you mean listenPort?",
        "clusterTest is 'true' in line 4 and 'false' in line 5",
        "line 7: serverSocketBacklog='x' is not usable",
    ):
        assert words in said


def test_a_byte_order_mark_and_comments_of_any_encoding(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_bytes(b"\xef\xbb\xbflistenPort:9877\n# \xd7\xa2\xca\xcd\n")
    assert read(file).values == {"listenPort": 9877}
