# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's naming rules, as the HTTP API applies them.

The stock NameServer validates no names, but brokers and clients do. People type into the HTTP API. So it refuses names
that a broker would refuse (TopicValidator), and bounds what RocketMQ leaves open.

Each ``*_problem`` function returns None for a valid name, or else a sentence for the person who sent it.

Source: org.apache.rocketmq.common.topic.TopicValidator (5.5.0).
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

from schemas.topic_names import TOPIC_MAX_LENGTH, max_topic_length

MAX_NAME: Final = TOPIC_MAX_LENGTH
"""Longest brokerName and clusterName: a broker makes a topic of each."""

MAX_ADDRESS: Final = 262
"""A host name of 253 characters, a colon and a port, or a bracketed IPv6 address."""

_CHARACTER = re.compile(r"[%|A-Za-z0-9_-]")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9._-]{1,253})):(?P<port>[0-9]{1,5})")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def topic_problem(topic: str) -> str | None:
    """Return why a topic name is refused (TopicValidator.validateTopic), or None."""
    return _name_problem(topic, "a topic name", max_topic_length(topic))


def broker_name_problem(name: str) -> str | None:
    """Return why a brokerName is refused, or None."""
    return _name_problem(name, "a brokerName", MAX_NAME, with_dots=True)


def cluster_name_problem(name: str) -> str | None:
    """Return why a clusterName is refused, or None."""
    return _name_problem(name, "a clusterName", MAX_NAME, with_dots=True)


def address_problem(address: str) -> str | None:
    """Return why an address is refused, or None.

    An address must be ``ip:port``, ``[ipv6]:port`` or ``hostname:port``, the port 1 to 65535.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return "an address must be ip:port, for example 10.0.0.1:10911"
    port = found["port"]
    if port.startswith("0") or not 1 <= int(port) <= 65535:
        return f"the port must be 1 to 65535, not {port}"
    return _ipv6_problem(found["v6"]) if found["v6"] is not None else _host_problem(found["host"])


def text_problem(text: str) -> str | None:
    """Return why a text without a form of its own is refused, or None."""
    return "must not hold control characters" if any(ord(character) < 32 for character in text) else None


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Return whether a peer address or a host without port is this machine."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _name_problem(name: str, what: str, limit: int, *, with_dots: bool = False) -> str | None:
    if not name.strip():
        return f"{what} must not be blank"
    odd = next((one for one in name if not (_CHARACTER.match(one) or (with_dots and one == "."))), None)
    if odd is not None:
        shown = repr(odd) if odd.isascii() and odd.isprintable() else f"U+{ord(odd):04X}"
        return f"{what} may hold only letters, digits and % | _ -{' . ' if with_dots else ''}, not {shown}"
    if len(name) > limit:
        return f"{what} may have at most {limit} characters, this one has {len(name)}"
    return None


def _ipv6_problem(text: str) -> str | None:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return "the text in brackets is not an IPv6 address"
    return None


def _host_problem(host: str) -> str | None:
    labels = host.split(".")
    if labels[-1].isdigit():  # then the sender can only mean IPv4
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            return "the host is not an IPv4 address"
        return None
    if not all(map(_LABEL.fullmatch, labels)):
        return "the host is neither an IP address nor a host name"
    return None
