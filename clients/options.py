"""Options that commands share. Each is an environment variable, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir", envvar="ROUTELAKE_DATA_DIR", help="Where the event log, the tables and checkpoints are."
    ),
]
LogUrl = Annotated[
    str,
    typer.Option(
        "--log",
        envvar="ROUTELAKE_LOG",
        help="Event log: sqlite:///abs/path.db or kafka://host:port/topic. Default: SQLite in the data directory.",
    ),
]
Http = Annotated[str, typer.Option("--http", envvar="ROUTELAKE_HTTP", help="HTTP address, HOST:PORT.")]
Remoting = Annotated[
    str, typer.Option("--remoting", envvar="ROUTELAKE_REMOTING", help="NameServer address, HOST:PORT.")
]
TriggerMs = Annotated[
    int,
    typer.Option("--trigger-ms", envvar="ROUTELAKE_TRIGGER_MS", min=0, help="Least time between micro-batches, ms."),
]
Shards = Annotated[
    int,
    typer.Option(
        "--shards", envvar="ROUTELAKE_SHARDS", help="Shards of the fold: 1, 2, 4, 8 or 16. Fixed by the checkpoint."
    ),
]
RetentionDays = Annotated[
    int,
    typer.Option(
        "--history-retention-days", envvar="ROUTELAKE_HISTORY_RETENTION_DAYS", min=1, help="How long history is kept."
    ),
]
LivenessS = Annotated[
    float,
    typer.Option(
        "--liveness-interval-s",
        envvar="ROUTELAKE_LIVENESS_INTERVAL_S",
        min=0.1,
        help="How often heartbeat times alone are committed, at most.",
    ),
]
LogRetentionH = Annotated[
    float,
    typer.Option(
        "--log-retention-hours",
        envvar="ROUTELAKE_LOG_RETENTION_HOURS",
        min=0,
        help="Age at which folded events may go.",
    ),
]
DriverMemory = Annotated[
    str, typer.Option("--driver-memory", envvar="ROUTELAKE_DRIVER_MEMORY", help="Heap of the Spark driver.")
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="ROUTELAKE_CONFIG",
        help="A RocketMQ namesrv.properties. Options and variables given explicitly win over it.",
    ),
]
AllowConfigUpdate = Annotated[
    bool,
    typer.Option(
        "--allow-config-update",
        envvar="ROUTELAKE_ALLOW_CONFIG_UPDATE",
        help="Let mqadmin updateNamesrvConfig change the live switches, for all gateways of the log.",
    ),
]
FrameLimitMib = Annotated[
    int,
    typer.Option(
        "--frame-limit-mib",
        envvar="ROUTELAKE_FRAME_LIMIT_MIB",
        min=1,
        max=512,
        help="Largest remoting frame, MiB. RocketMQ's is 16; 100,000 topics in one registration need about 20.",
    ),
]
GatewayId = Annotated[
    str, typer.Option("--gateway-id", envvar="ROUTELAKE_GATEWAY_ID", help="Name of this gateway in the history.")
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        envvar="ROUTELAKE_WORKERS",
        min=1,
        max=64,
        help="Gateway processes on the same ports (SO_REUSEPORT); the kernel spreads connections over them.",
    ),
]
