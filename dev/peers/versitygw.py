# SPDX-License-Identifier: Apache-2.0
"""versitygw: a real S3 server over a folder, with conditional PUT; built once from the Go module proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dev.peers.built_program import NoProgramError, go_program
from dev.peers.peer import Program

VERSION: Final = "1.8.0"
_PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"
_ACCESS_KEY: Final = "test"
_SECRET_KEY: Final = "testtest"  # noqa: S105 (of a server on loopback)


NoVersityGwError = NoProgramError
"""Error for a versitygw that is not there, and cannot be built."""


class VersityGw(Program):
    """One server with one bucket, ``lake``, in a folder that goes away with it; `with` starts and ends it.

    Attributes:
        environment: Variables by which obstore, delta-rs and the AWS tools find it.
    """

    def __init__(self) -> None:
        super().__init__(go_program(_PACKAGE, VERSION))
        (self.home / "objects" / "lake").mkdir(parents=True)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def arguments(self) -> Sequence[str]:
        """Objects are files below its home."""
        return ["--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.home / "objects")]

    def variables(self) -> Mapping[str, str]:
        """Keys of its only user."""
        return {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY}
