# SPDX-License-Identifier: Apache-2.0
"""Check the hash chain of epochs (`lake.write.hash_chain`), in one pass over routeCommitTable and routeChangeTable.

Each epoch is checked with the stored digest of the previous row. So one changed value makes one epoch fail and not all
later ones. If only the digest of a row was changed, the next epoch matches the digest that the row should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lake.commits import commit_rows
from lake.delta.reader import plain_text, table_at
from lake.write.hash_chain import EpochDigest, blocks, in_blocks
from lake.write.windows import ChangeWindows
from ops.verify.report import Proof
from schemas.tables import CHAIN, QUARANTINE_TABLE

_EPOCHS_AT_A_TIME: Final = 1_000
_UNREAD_AT_A_TIME: Final = 100

T = TypeVar("T")


class _Waiting(Generic[T]):
    """Iterator of values in ascending positions, with access to the next one.

    Attributes:
        next: Position and value of the next one, or None at the end.
    """

    def __init__(self, values: Iterator[tuple[int, T]]) -> None:
        self._values = values
        self.next = next(values, None)

    def up_to(self, place: int) -> Iterator[tuple[int, T]]:
        """Yield the values up to a position."""
        while self.next is not None and self.next[0] <= place:
            yield self.next
            self.next = next(self._values, None)


class ChainCheck:
    """Checks the chain up to the last epoch.

    Args:
        proof: proof that collects the results and the refuted epochs.
    """

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._report = proof.report

    def run(self, windows: ChangeWindows, see: Callable[[pa.Table], None], expected: Mapping[int, str]) -> None:
        """Check all epochs.

        Args:
            windows: windows of routeChangeTable.
            see: callback with the rows of each window.
            expected: digests that the user has stored elsewhere, by epoch.

        Raises:
            DamagedTableError, DeltaError, OSError, pyarrow.ArrowException: a table cannot be read.
        """
        changes, unread = _Waiting(self._change_digests(windows, see)), _Waiting(self._quarantine())
        previous = ""
        suspect: tuple[int, str] | None = None  # an epoch that failed, and the digest that it should have
        number, total = 0, self._proof.last.epoch
        missing = dict(expected)
        for row in self._commits():
            epoch = int(row["epoch"])
            if epoch != number + 1:
                gap = (
                    f"epochs {number + 1} to {epoch - 1} are missing"
                    if epoch > number
                    else f"epoch {epoch} is there twice"
                )
                self._report.refute(f"routeCommitTable: {gap}")
            number = epoch
            digest = EpochDigest()
            for changed, found_digest in changes.up_to(epoch):
                if changed == epoch:
                    digest = found_digest
                else:
                    self._refute_changes(changed)
            for _, unread_row in unread.up_to(row["logOffset"]):
                digest.add_quarantine(unread_row)
            found = row[CHAIN]
            should = digest.link(previous, row)
            if suspect is not None:
                alone = suspect[0] == epoch - 1 and digest.link(suspect[1], row) == found
                self._explain(suspect[0], digest_alone=alone)
                if alone:
                    should = found
            suspect = None if should == found else (epoch, should)
            wanted = missing.pop(epoch, None)
            if wanted is not None and wanted != found:
                self._report.refute(f"epoch {epoch} has the digest {found}, but the given digest is {wanted}")
            previous = found
            self._proof.at("chain, epochs", epoch, total)
        if suspect is not None:
            self._explain(suspect[0], digest_alone=False)
        if changes.next is not None:
            self._refute_changes(changes.next[0])
        self._conclude(total, missing, expected)

    def _conclude(self, total: int, missing: Mapping[int, str], expected: Mapping[int, str]) -> None:
        report = self._report
        for epoch in missing:
            report.refute(f"there is no epoch {epoch} of the given digest")
        if not report.refuted:
            report.verified.append(f"the hash chain of epochs 1 to {total} holds")
        if expected and not report.refuted:
            report.verified.append(f"the digest of {_epochs(sorted(expected))} equals the given digest")

    def _explain(self, epoch: int, *, digest_alone: bool) -> None:
        if digest_alone:
            self._refute(
                epoch, f"routeCommitTable, epoch {epoch}: column chain was changed; its other columns are correct"
            )
        else:
            self._refute(
                epoch,
                f"epoch {epoch} does not match its digest: its row of routeCommitTable was changed, or its rows of "
                "routeChangeTable or quarantineTable",
            )

    def _refute_changes(self, epoch: int) -> None:
        self._refute(epoch, f"routeChangeTable has rows of epoch {epoch}, which routeCommitTable lacks")

    def _refute(self, epoch: int, what: str) -> None:
        if epoch not in self._proof.broken:
            self._proof.broken.append(epoch)
        self._report.refute(what)

    def _commits(self) -> Iterator[dict[str, Any]]:
        proof = self._proof
        for first in range(0, proof.last.epoch + 1, _EPOCHS_AT_A_TIME):
            last = min(first + _EPOCHS_AT_A_TIME - 1, proof.last.epoch)
            yield from commit_rows(proof.lake_dir, proof.files, first=first, last=last).to_pylist()

    def _change_digests(
        self, windows: ChangeWindows, see: Callable[[pa.Table], None]
    ) -> Iterator[tuple[int, EpochDigest]]:
        epoch, digest = -1, EpochDigest()
        for rows in windows.read():
            see(rows)
            ordered = in_blocks(rows)
            epochs = ordered["epoch"]
            for block in blocks(ordered):
                of = epochs[block.row].as_py()
                if of != epoch:
                    if epoch >= 0:
                        yield epoch, digest
                    epoch, digest = of, EpochDigest()
                digest.add_digests([block.digest])
        if epoch >= 0:
            yield epoch, digest

    def _quarantine(self) -> Iterator[tuple[int, pa.Table]]:
        """(offset, row) of quarantineTable, in order."""
        table = table_at(self._proof.lake_dir, QUARANTINE_TABLE)  # it only grows
        in_it = pc.field("offset") <= self._proof.last.log_offset
        offsets = sorted(set(table.to_table(columns=["offset"], filter=in_it)["offset"].to_pylist()))
        for start in range(0, len(offsets), _UNREAD_AT_A_TIME):
            some = offsets[start : start + _UNREAD_AT_A_TIME]
            offset = pc.field("offset")
            rows = plain_text(table.to_table(filter=(offset >= some[0]) & (offset <= some[-1])).sort_by("offset"))
            for place, at in enumerate(rows["offset"].to_pylist()):
                yield at, rows.slice(place, 1)


def _epochs(epochs: list[int]) -> str:
    return f"epoch{'s' * (len(epochs) > 1)} {', '.join(map(str, epochs))}"
