# SPDX-License-Identifier: Apache-2.0
"""Record of requests and answers: one file of JSON lines, written during the run, read by the judge afterwards.

A line is an operation with its answer (`Entry`), a fault (`Injected`), what a follower heard (`Heard`), or a rest
(`Record.rests`). Times are the monotonic clock's, in seconds: an answer
before the sending of another request precedes that request, whatever a wall clock says.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dev.fault_injection.operations import WRITES, Broker, Operation

_KEPT_EVERY: Final = 50


@dataclass(frozen=True)
class Entry:
    """One operation and its answer.

    Attributes:
        worker: who sent it.
        via: "remoting" or "http".
        peer: host:port that it was sent from, as the event's actor names it; "" if there was no connection.
        operation: what was asked.
        sent_s: when it was handed to the socket.
        done_s: when its answer was here, or it was given up.
        code: the response code, or the HTTP status; None without an answer.
        body: as it came.
        ext: header fields of an answer over remoting.
        offset: X-Routelake-Offset of a read, or the write's place on the log, where the answer names it.
        epoch: X-Routelake-Epoch.
        visible: what a write over HTTP says of itself.
        asked: what the worker added: wait_for, as_of; if_none_match, the ETag of a long poll.
        tag: ETag.
        gateway: which one was asked, where there are two.
        error: why there is no answer.
    """

    worker: str
    via: str
    peer: str
    operation: Operation
    sent_s: float
    done_s: float
    code: int | None = None
    body: str = ""
    ext: dict[str, str] | None = None
    offset: int | None = None
    epoch: int | None = None
    visible: bool = False
    asked: dict[str, str] = field(default_factory=dict)
    tag: str = ""
    gateway: int = 0
    error: str = ""

    @property
    def acknowledged(self) -> bool:
        """Return whether the request was answered as done, or as durable."""
        return self.code == 0 if self.via == "remoting" else self.code in (200, 202)

    @property
    def is_write(self) -> bool:
        """Return whether the request is to change something."""
        return self.operation.kind in WRITES

    def line(self) -> dict[str, Any]:
        """The fields with a value, for the file."""
        said = {
            name: value
            for name, value in vars(self).items()
            if value is not None
            and value is not False
            and value != ""
            and value != {}
            and (name, value) != ("gateway", 0)
        }
        return {**said, "operation": self.operation.plain()}


@dataclass(frozen=True)
class Injected:
    """A fault that happened.

    Attributes:
        kind: see `dev.fault_injection.plan`.
        begun_s: when it began.
        ended_s: when the fault itself was over; not when routelake was well again.
        detail: process ids, exit codes.
        hit: whether it found a target, and did something.
        wrong: what a fault itself has shown to be wrong, as a second fold that goes on; "" for nothing.
        waited_s: how long it looked for a target.
    """

    kind: str
    begun_s: float
    ended_s: float
    detail: str = ""
    hit: bool = True
    wrong: str = ""
    waited_s: float = 0.0


@dataclass(frozen=True)
class Ended:
    """A connection to port 9876 that is no more.

    Attributes:
        worker: name of the client.
        gateway: to which one.
        peer: as in `Entry`.
        time_s: when its client closed it, or found that it was closed.
        why: "asked", "over" at the end of the run, or an error.
    """

    worker: str
    gateway: int
    peer: str
    time_s: float
    why: str


@dataclass(frozen=True)
class Heard:
    """Event or answer that a follower got, or step that it took: see `dev.fault_injection.followers`.

    Attributes:
        worker: name of the follower.
        gateway: number of the gateway that it follows.
        topic: the topic to get epochs of; "" for all.
        stream: number of its connection.
        kind: "begin" and "end" of a connection; "epoch", "reset", or "id" for an id alone; "diff", "refused" or
            "unanswered" for what it asked meanwhile.
        time_s: time of the step.
        epoch: epoch of the event; of a diff the later one.
        after: last epoch known at a begin, None for none; of a diff the earlier one.
        data: data as received; of an end the reason.
        asked_s: time since which it had not listened, because it asked for a diff.
    """

    worker: str
    gateway: int
    topic: str
    stream: int
    kind: str
    time_s: float
    epoch: int | None = None
    after: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    asked_s: float | None = None

    def line(self) -> dict[str, Any]:
        """For the file: what says something."""
        return {name: value for name, value in vars(self).items() if value not in (None, "", {})}


@dataclass
class Record:
    """A whole run.

    Attributes:
        about: seed, seconds, log, plants; how often the plan has each kind of fault, and how often it rests.
        entries: in the order in which they were done.
        faults: in order.
        heard: by followers, by follower and in order.
        ended: connections, in order.
        folded: the offset up to which the fold said, at the end, that the tables go.
        rests: of each time without faults, seconds from the last one until everything was well by itself; None if it
            never was.
    """

    about: dict[str, Any] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    faults: list[Injected] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    folded: int | None = None
    rests: list[float | None] = field(default_factory=list)


class Recorder:
    """Writes a record; for any number of threads."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self.answers = 0
        self.newest_offset = -1
        """Greatest offset of the acknowledged writes so far."""
        self._times: deque[tuple[int, str]] = deque(maxlen=200)
        """Offset and event time of such writes."""
        self._old_times: list[tuple[int, str]] = []
        """Some of them, for as long as the run lasts."""
        self._committed = -1
        """Up to where an epoch was seen to go."""
        self._write({"about": about})

    def entry(self, entry: Entry) -> None:
        """An operation is done."""
        self.answers += entry.code is not None
        if entry.acknowledged and entry.offset is not None and entry.operation.kind in WRITES:
            self.newest_offset = max(self.newest_offset, entry.offset)
            with suppress(ValueError), self._lock:
                self._times.append((entry.offset, json.loads(entry.body)["eventTime"]))
                if entry.offset % _KEPT_EVERY == 0:
                    self._old_times.append(self._times[-1])
        if entry.asked.get("reads") == "committed" and entry.offset is not None:
            self._committed = max(self._committed, entry.offset)
        self._write(entry.line())

    def past_times(self, of_old: bool) -> list[str]:
        """Event times that are over (an epoch holds a later one): the newest ones, or some of the whole run."""
        with self._lock:
            recent = sorted(time for offset, time in self._times if offset <= self._committed)
            old = [time for offset, time in self._old_times if offset <= self._committed]
        return [time for time in (old if of_old else recent) if recent and time < recent[-1]]

    def fault(self, fault: Injected) -> None:
        """A fault is over."""
        self._write({"fault": asdict(fault)})

    def heard(self, heard: Heard) -> None:
        """Record what a follower received or did."""
        self._write({"heard": heard.line()})

    def ended(self, ended: Ended) -> None:
        """A connection is no more."""
        self._write({"ended": asdict(ended)})

    def folded(self, offset: int) -> None:
        """The fold says that the tables go up to there."""
        self._write({"folded": offset})

    def rest(self, well_s: float | None) -> None:
        """Record the time until everything was healthy."""
        self._write({"well_s": well_s})

    def close(self) -> None:
        """Nothing more comes."""
        with self._lock:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)
                self._file.flush()


def read_record(path: Path) -> Record:
    """A record back from its file, without a truncated last line."""
    record = Record()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            break
        if "about" in said:
            record.about = said["about"]
        elif "fault" in said:
            record.faults.append(Injected(**said["fault"]))
        elif "heard" in said:
            record.heard.append(Heard(**{"topic": "", **said["heard"]}))
        elif "ended" in said:
            record.ended.append(Ended(**said["ended"]))
        elif "folded" in said:
            record.folded = said["folded"]
        elif "well_s" in said:
            record.rests.append(said["well_s"])
        else:
            record.entries.append(_entry(said))
    record.heard.sort(key=lambda heard: heard.worker)  # and in the order of the file
    return record


def _entry(said: dict[str, Any]) -> Entry:
    operation = said.pop("operation")
    if "broker" in operation:
        operation["broker"] = Broker(**operation["broker"])
    if "topics" in operation:
        operation["topics"] = {name: tuple(queues) for name, queues in operation["topics"].items()}
    return Entry(operation=Operation(**operation), **{"peer": "", **said})
