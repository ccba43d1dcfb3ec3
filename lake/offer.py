# SPDX-License-Identifier: Apache-2.0
"""What a reader would fetch of an epoch, sent along with the word that there is one.

A heartbeat's epoch is some objects of a few kilobytes each. Who hears of it gets them with the news and asks the store
for nothing. They are taken only by a reader who has read exactly what they come after: it names the entry of
routeCommitTable before them by version and checksum, so that an offer of another lake, or one that comes late or after
one that was lost, is only a reason to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lake.delta.actions import changed_files, entry_identity, entry_name, read_actions
from schemas.tables import ROUTE_COMMIT_TABLE, STATE_TABLES

MOST_BYTES: Final = 256 * 1024
"""Of an offer's objects. More is fetched, as side by side as ever; Kafka refuses records of more than 1 MiB."""

_FOLLOWED: Final = frozenset(table.name for table in (*STATE_TABLES, ROUTE_COMMIT_TABLE))


class Offer(msgspec.Struct, frozen=True):
    """Epochs that were published together.

    Attributes:
        version: Of routeCommitTable, now.
        after: Of routeCommitTable, before.
        identity: Of the entry of that version, as `lake.delta.actions.entry_identity`.
        objects: What a follower reads on the way from the one to the other, by path in the lake; none where it is much.
    """

    version: int
    after: int = -1
    identity: tuple[int, int] = (0, 0)
    objects: dict[str, bytes] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Offer)


def encode_offer(offer: Offer) -> bytes:
    """For who sends it."""
    return _encoder.encode(offer)


def decode_offer(data: bytes) -> Offer | None:
    """None for what is none, as an older routelake sends."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def offer_of(folder: Path, version: int, entries: Iterable[tuple[str, int, bytes]]) -> Offer:
    """The offer of what has just been published.

    Args:
        folder: The copy that it was published from.
        version: Of routeCommitTable.
        entries: Table, version and text of each commit.
    """
    followed = [entry for entry in entries if entry[0] in _FOLLOWED]
    after = min(number for name, number, _ in followed if name == ROUTE_COMMIT_TABLE.name) - 1
    try:
        identity = entry_identity((folder / ROUTE_COMMIT_TABLE.name / entry_name(after)).read_bytes())
        objects = {f"{name}/{entry_name(number)}": text for name, number, text in followed}
        files = _files(followed)
        if sum(map(len, objects.values())) + sum((folder / file).stat().st_size for file in files) > MOST_BYTES:
            return Offer(version)
        objects |= {file: (folder / file).read_bytes() for file in files}
    except OSError:  # a place without the entry before, as the first epoch's
        return Offer(version)
    return Offer(version, after, identity, objects)


def _files(entries: Sequence[tuple[str, int, bytes]]) -> list[str]:
    return [f"{name}/{file}" for name, _, text in entries for file in changed_files(read_actions(text))]


__all__ = ["MOST_BYTES", "Offer", "decode_offer", "encode_offer", "offer_of"]
