# SPDX-License-Identifier: Apache-2.0
"""Where routes come from: ``a:9876;b:9876`` speak remoting, ``http://a:8080`` is a routelake asked over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from clients.addresses import is_http, namesrv_addresses

__all__ = ["is_http", "route_addresses"]


def route_addresses(addresses: str | Sequence[str], option: str = "-n") -> list[str]:
    """The addresses of a list, checked, without repetitions, in order.

    Args:
        addresses: A text as `namesrvAddr` holds it (separated by ``;`` or ``,``), or the parts.
        option: What the message names.

    Raises:
        SetupError: Nothing in it, or a part that is neither HOST[:PORT] nor http(s)://HOST[:PORT].
    """
    return namesrv_addresses(addresses, option, http=True)
