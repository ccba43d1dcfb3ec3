# SPDX-License-Identifier: Apache-2.0
"""Options that commands share. Each is an environment variable, too."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer import CallbackParam
from typer.models import OptionInfo

from api.settings.gateway import Reads
from schemas.errors import SetupError

_NAMESRV_VARIABLES: Final = ("ROUTELAKE_NAMESRV", "NAMESRV_ADDR")

_USER_INFO: Final = re.compile(r"://[^/?#\s]*@")


def option(*names: str, **more: Any) -> OptionInfo:  # noqa: ANN401
    """An option, and its environment variable: that of ``--data-dir`` is ROUTELAKE_DATA_DIR.

    Args:
        names: The first one names the variable.
        more: As `typer.Option` takes it.
    """
    if more.get("metavar") in ("URL", "HOST:PORT"):
        more["callback"] = no_password
    found: OptionInfo = typer.Option(*names, envvar=variable_of(names[0]), **more)
    return found


def no_password(param: CallbackParam, value: str | None) -> str | None:
    """An address, which holds no password: `ps` shows a command line, and messages and logs show addresses.

    Raises:
        SetupError: It holds one.
    """
    if value and _USER_INFO.search(value):
        raise SetupError(
            f"{param.opts[0]}: the address holds a user or a password before its '@', and `ps` shows a command line to "
            "everybody. Leave it out; docs/reference/settings.md says where passwords are read from."
        )
    return value


def usable_folder(param: CallbackParam, value: Path | None) -> Path | None:
    """A folder that tables, event log and Spark can be in. Raises SetupError when it is none."""
    if value is not None:
        from cli.folder_names import check_path

        check_path(value, param.opts[0] if param.opts[0].startswith("-") else str(param.metavar))
    return value


def variable_of(name: str) -> str:
    """The environment variable of an option: ROUTELAKE_DATA_DIR of ``--data-dir``."""
    return f"ROUTELAKE_{name.partition('/')[0].removeprefix('--').replace('-', '_').upper()}"


def _namesrv(text: str) -> OptionInfo:
    found: OptionInfo = typer.Option(
        "-n",
        "--namesrv",
        "--namesrvAddr",
        envvar=list(_NAMESRV_VARIABLES),
        metavar="ADDRESSES",
        help=f"NameServers: 'host:9876;other:9876', in quotes{text}",
    )
    return found


Namesrv = Annotated[str, _namesrv(". Port 9876 may be left out.")]
NamesrvOrHttp = Annotated[str, _namesrv("; http://host:8080 asks routelake over HTTP.")]
DataDir = Annotated[
    Path,
    option("--data-dir", metavar="FOLDER", callback=usable_folder, help="Event log, tables and checkpoints."),
]
DataMode = Annotated[
    str,
    option(
        "--data-mode",
        help="Who may read what is made there, in octal: 700 the owner, 750 the group, too, 755 everybody.",
    ),
]
LogUrl = Annotated[
    str,
    option(
        "--event-log",
        metavar="URL",
        help="Event log: sqlite:///abs/path.db or kafka://host:port/topic. Default: SQLite in the data directory.",
    ),
]
LogConfig = Annotated[
    Path | None,
    option(
        "--event-log-config",
        metavar="FILE",
        help="Kafka client properties: TLS, SASL and who we are; for a log in Kafka. See docs/reference/settings.md.",
    ),
]
LakeUrl = Annotated[
    str,
    option(
        "--lake",
        metavar="URL",
        help="Where the tables are: a folder, or s3://, gs:// or az://bucket/prefix. Default: in the data directory.",
    ),
]
Standby = Annotated[
    bool,
    option("--standby", help="With --lake URL: wait while another fold holds the lake, and take over when it ends."),
]
Master = Annotated[
    str,
    option(
        "--master",
        metavar="URL",
        help="Where the fold's executors are: local, or a Spark cluster, spark://HOST:PORT or k8s://https://HOST:PORT.",
    ),
]
SharedDir = Annotated[
    Path | None,
    option(
        "--shared-dir",
        metavar="FOLDER",
        callback=usable_folder,
        help="With --master URL: checkpoint and what executors hand over; all see it so. Default: the data directory.",
        show_default=False,
    ),
]
SparkConfig = Annotated[
    Path | None,
    option(
        "--spark-config",
        metavar="FILE",
        help="With --master URL: Spark's properties for it, as spark-submit takes them. "
        "See docs/how-to/operate/scale-out.md.",
    ),
]
Http = Annotated[
    str, option("--http", metavar="HOST:PORT", help="Where HTTP listens; 0.0.0.0:PORT or :PORT: on every interface.")
]
Remoting = Annotated[
    str,
    option(
        "--remoting",
        metavar="HOST:PORT",
        help="Where the NameServer listens; 0.0.0.0:PORT or :PORT: on every interface.",
    ),
]
TriggerMs = Annotated[
    int,
    option(
        "--trigger-ms",
        min=0,
        max=3_600_000,
        help="Least time between batches, ms; 0: as soon as there is something to fold.",
    ),
]
Shards = Annotated[
    int | None,
    option(
        "--shards",
        help="Shards of the fold: 1, 2, 4, 8 or 16. Fixed by the checkpoint. Default: 2; with --master URL two a core.",
        show_default=False,
    ),
]
RetentionDays = Annotated[int, option("--history-retention-days", min=1, max=36_500, help="How long history is kept.")]
LivenessS = Annotated[
    float,
    option("--liveness-interval-s", min=0.1, max=3_600, help="How often heartbeat times alone are committed, at most."),
]
LogRetentionH = Annotated[
    float, option("--event-log-retention-hours", min=0, max=876_000, help="Age at which folded events may go.")
]
DriverMemory = Annotated[str, option("--driver-memory", help="Heap of the Spark driver.")]
FoldNiceness = Annotated[
    int,
    option(
        "--fold-niceness",
        min=0,
        max=19,
        help="By how much the fold gives way to others once it folds; 0 where it lags behind on a busy machine.",
    ),
]
Config = Annotated[
    Path | None,
    option("--config", help="A RocketMQ namesrv.properties. Options and variables given explicitly win over it."),
]


ReadsFrom = Annotated[
    Reads,
    option(
        "--reads",
        help="head: answers show the latest epoch and what the log holds beyond it; committed: the latest epoch alone.",
    ),
]
AllowConfigUpdate = Annotated[
    bool,
    option(
        "--allow-config-update",
        help="Let mqadmin updateNamesrvConfig change the live switches, for all gateways of the log.",
    ),
]
MaxClockLeapS = Annotated[
    float,
    option(
        "--max-clock-leap-s",
        min=0,
        max=31_536_000,
        help="How far this machine's clock may leap ahead, in seconds. Beyond it, writes to a SQLite log are refused. "
        "0: any leap is taken.",
    ),
]
FrameLimitMib = Annotated[
    int,
    option(
        "--frame-limit-mib",
        min=1,
        max=512,
        help="Largest remoting frame, MiB. RocketMQ's is 16; 100,000 topics in one registration need about 20.",
    ),
]
GatewayId = Annotated[
    str,
    option("--gateway-id", help="Name of this gateway in the history; HOST:PORT tells /rocketmq/nsaddr where it is."),
]
Workers = Annotated[
    int,
    option(
        "--workers",
        min=1,
        max=64,
        help="Gateway processes on the same ports (SO_REUSEPORT); the kernel spreads connections over them.",
    ),
]
TlsConfig = Annotated[
    Path | None,
    option(
        "--tls-config",
        metavar="FILE",
        help="A RocketMQ tls.properties, for both ports. Options and variables given explicitly win over it.",
    ),
]
TlsCert = Annotated[str, option("--tls-cert", metavar="FILE", help="PEM: the server's certificate, then its chain.")]
TlsKey = Annotated[str, option("--tls-key", metavar="FILE", help="PEM: the certificate's key.")]
TlsKeyPassword = Annotated[
    str, option("--tls-key-password", metavar="REFERENCE", help="Where the key's password is: file:PATH or env:NAME.")
]
TlsClientCa = Annotated[
    str,
    option(
        "--tls-client-ca",
        metavar="FILE",
        help="PEM: who signs clients' certificates. With it, clients have to show one.",
    ),
]
TlsClientAuth = Annotated[
    str,
    option("--tls-client-auth", metavar="WHETHER", help="Whether clients show a certificate: none, optional, require."),
]
TlsModeText = Annotated[
    str,
    option(
        "--tls-mode",
        metavar="MODE",
        help="permissive: plain connections are taken, too (the default, as RocketMQ's); enforcing: none; disabled.",
    ),
]
Quota = Annotated[
    list[str] | None,
    option(
        "--quota",
        metavar="NAME=VALUE",
        help="How much one peer may do: connections=500, brokers=off, new-names-per-min=600:10000 (rate:burst). "
        "Again for another, or with commas. See docs/reference/settings.md.",
    ),
]


def namesrv_source(text: str, option: str = "-n") -> str:
    """Where addresses of NameServers come from, for messages: the option, or the variable that holds them."""
    return next((name for name in _NAMESRV_VARIABLES if text and os.environ.get(name) == text), option)


class LakePlace(NamedTuple):
    """Where the tables are.

    Attributes:
        folder: Their own; at a URL a gateway's data directory.
        url: Of an object store; empty for a folder.
    """

    folder: Path
    url: str

    @property
    def copy_folder(self) -> Path:
        """Where a fold writes: the tables, or its copy of them."""
        return self.folder / COPY_FOLDER if self.url else self.folder


def lake_place(data_dir: Path, lake: str) -> LakePlace:
    """The lake to use: the one that --lake names, else in the data directory. Raises SetupError for an odd name."""
    if "://" in lake:
        return LakePlace(data_dir.resolve(), lake.rstrip("/"))
    if lake:
        from cli.folder_names import check_path

        check_path(Path(lake), "--lake")
    return LakePlace((Path(lake) if lake else data_dir / "lake").resolve(), "")


COPY_FOLDER: Final = "lake-copy"
"""In the data directory of a fold whose lake is at a URL. It can be deleted while the fold is stopped, and needs no
place in a backup."""


def check_there(lake_dir: Path, data_dir: Path) -> None:
    """Raises SetupError where the data directory that was named has no lake."""
    if not lake_dir.is_dir():
        raise SetupError(f"there is no lake in {data_dir}. Name the data directory of a routelake.")


def log_url(data_dir: Path, url: str) -> str:
    """The event log to use: the one that --event-log names, else SQLite in the data directory."""
    return url or f"sqlite://{data_dir.resolve()}/events.db"
