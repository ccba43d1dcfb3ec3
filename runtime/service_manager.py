# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd for a unit with ``Type=notify``. Source: sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from runtime.children import SUPERVISED


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """This unit does from now on what it is for.

    Nothing where nobody asks (no NOTIFY_SOCKET), and nothing from a child of `runtime.supervisor`, which tells it for
    all of them. Who cannot be told goes without: a NameServer answers all the same.
    """
    path = environ.get("NOTIFY_SOCKET", "")
    if not path or SUPERVISED in environ:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # the abstract namespace, unix(7)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(b"READY=1", address)
