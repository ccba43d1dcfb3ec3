# SPDX-License-Identifier: Apache-2.0
"""The NameServer of RocketMQ-Rust (crate ``rocketmq-namesrv``), built once from crates.io."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dev.peers.built_program import cargo_program
from dev.peers.peer import Program

VERSION: Final = "1.0.0"
_CRATE: Final = "rocketmq-namesrv"
_BINARY: Final = "rocketmq-namesrv-rust"


class RustNameServer(Program):
    """One server on a free port; `with` starts and ends it.

    Args:
        build: Build it if it is missing.

    Raises:
        NoProgramError: It is missing and cannot be built.
    """

    def __init__(self, *, build: bool = True) -> None:
        super().__init__(cargo_program(_CRATE, VERSION, _BINARY, build=build))
        self.host = "127.0.0.1"

    def arguments(self) -> Sequence[str]:
        """All of its files are in its home."""
        return [
            *("--rocketmqHome", str(self.home), "--kvConfigPath", str(self.home / "kvConfig.json")),
            *("--bindAddress", self.host, "--listenPort", str(self.port), "--log-filter", "error"),
        ]

    def variables(self) -> Mapping[str, str]:
        """It keeps files in the user's home, too."""
        return {"HOME": str(self.home)}
