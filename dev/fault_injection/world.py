# SPDX-License-Identifier: Apache-2.0
"""World of a run: `serve`, a second gateway, their log, and the means to break them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from dev.developer import ROOT
from dev.fault_injection.inside import has
from dev.fault_injection.network import HERE, THERE, Machine
from dev.fault_injection.plan import NEEDS
from dev.fault_injection.planted import sitecustomize
from dev.fault_injection.preload import Preload, can_preload
from dev.fault_injection.small_disk import SmallDisk
from dev.peers.kafka import Kafka
from dev.peers.routelake import Routelake

_START_S: Final = 180.0
_AGAIN_S: Final = 1.0
_LIVENESS: Final = ("--liveness-interval-s", "0.2")
_TOPIC: Final = "routelake-events"


@dataclass(frozen=True)
class Setup:
    """Set-up of a world.

    Attributes:
        log: "sqlite" or "kafka".
        gateways: 1 or 2.
        plants: names in `dev.fault_injection.planted`: defects, and maintenance at once.
        options: further options of `serve`.

    The second gateway is on a machine of its own (`dev.fault_injection.network`) where networks may be made.
    """

    log: str = "sqlite"
    gateways: int = 1
    plants: tuple[str, ...] = ("haste",)
    options: tuple[str, ...] = ()


def possible(kinds: Iterable[str], setup: Setup) -> tuple[str, ...]:
    """Those faults of ``kinds`` that this setup and this machine have the means for."""
    means = {"second": setup.gateways > 1, "kafka": setup.log == "kafka", "sqlite": setup.log == "sqlite"}
    means["spark"] = "small-fold" not in setup.plants
    means |= {"preload": can_preload(), "mount": has("mount"), "net": has("net")}
    return tuple(kind for kind in kinds if all(means[need] for need in NEEDS.get(kind, ())))


class World:
    """Context manager around everything of one run.

    Args:
        folder: gets the data, and everybody's output.
        setup: what there is.
        kinds: faults that will happen.
        seconds: of the run.

    Attributes:
        gateways: who answers: `serve`, and the second gateway.
        second_lock: held while the second gateway is started or killed.
        stopping: no process is started again.
    """

    def __init__(self, folder: Path, setup: Setup, kinds: Iterable[str], seconds: float = 60.0) -> None:
        self._folder, self._setup, self._seconds = folder, setup, seconds
        self._needs = {need for kind in kinds for need in NEEDS.get(kind, ())}
        self._cleanup = ExitStack()
        self.kafka: Kafka | None = None
        self.preload: Preload | None = None
        self.disk: SmallDisk | None = None
        self.machine: Machine | None = None
        self.log_url = ""
        self.gateways: list[Routelake] = []
        self.second_lock = threading.Lock()
        self.stopping = threading.Event()

    @property
    def server(self) -> Routelake:
        """The one that has the fold."""
        return self.gateways[0]

    def options(self) -> tuple[str, ...]:
        """Return the options that every process on this log takes."""
        return ("--event-log", self.log_url) if self.kafka is not None else ()

    def __enter__(self) -> World:
        """Start everything.

        Raises:
            TimeoutError, RuntimeError: it does not start.
        """
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def _start(self) -> None:
        data = self._folder / "data"
        environment = dict(planted(self._setup.plants))
        if "mount" in self._needs:
            self.disk = SmallDisk(data, self._seconds)
            self._cleanup.callback(self.disk.keep)
        if "preload" in self._needs:
            self.preload = Preload(self._folder)
            self._cleanup.callback(self.preload.close)
            environment |= self.preload.environment
        self.log_url = f"sqlite://{data / 'events.db'}"
        if self._setup.gateways > 1 and has("net"):
            self.machine = Machine()
            self._cleanup.enter_context(self.machine)
        if self._setup.log == "kafka":
            self.kafka = Kafka(host="127.0.0.1" if self.machine is None else HERE)
            self._cleanup.enter_context(self.kafka)
            self.log_url = f"kafka://{self.kafka.address}/{_TOPIC}"
        options = (*_LIVENESS, *self.options(), *self._setup.options)
        server = Routelake(data, options=options, environment=environment)
        self.gateways.append(server)
        self._cleanup.callback(server.kill)
        server.start(_START_S)
        if self._setup.gateways > 1:
            second = self._second(data, environment)
            self.gateways.append(second)
            self._cleanup.callback(second.kill)
            second.start(_START_S)
            threading.Thread(target=self._supervise, args=(second,), daemon=True).start()
            self._cleanup.callback(self.stopping.set)

    def _second(self, data: Path, environment: dict[str, str]) -> Routelake:
        if self.machine is None:
            return Routelake(data, "gateway", self.options(), environment)
        options = (*self.options(), "--insecure")
        environment |= {"ROUTELAKE_HTTP_ANONYMOUS_WRITES": "true"}
        return Routelake(data, "gateway", options, environment, host=THERE, through=self.machine.through)

    def _supervise(self, second: Routelake) -> None:
        """Restart the second gateway if it ended with code 1, as systemd would (deploy/systemd)."""
        while not self.stopping.wait(_AGAIN_S):
            with self.second_lock:
                if not self.stopping.is_set() and second.process is not None and second.process.poll() == 1:
                    second.start(wait_ready_s=None)

    def is_whole(self) -> bool:
        """Return whether no gateway reports a problem."""
        return all(gateway.is_whole() for gateway in self.gateways)

    def stop(self) -> list[int]:
        """Stop all gateways, in order; their exit codes."""
        with self.second_lock:
            self.stopping.set()
        return [self.stop_one(gateway) for gateway in reversed(self.gateways)]

    @staticmethod
    def stop_one(gateway: Routelake) -> int:
        """Stop one; what it says of its head is left to the judge."""
        with suppress(AssertionError):
            return gateway.stop()
        assert gateway.process is not None
        return int(gateway.process.returncode)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what still runs; the data stay."""
        for home in [self.kafka.home] if self.kafka is not None and error is not None else []:
            shutil.copytree(home, self._folder / "kafka", dirs_exist_ok=True)
        self._cleanup.close()


def planted(names: tuple[str, ...]) -> Mapping[str, str]:
    """The environment of processes that have these of `dev.fault_injection.planted`."""
    path = os.pathsep.join([str(Path(sitecustomize.__file__).parent), str(ROOT)])
    return {sitecustomize.VARIABLE: ",".join(names), "PYTHONPATH": path} if names else {}
