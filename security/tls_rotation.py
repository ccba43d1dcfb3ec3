# SPDX-License-Identifier: Apache-2.0
"""A certificate that changes while connections stay open. Its files are watched, and a new pair is tested first.

A thread looks at the files every half second. A file has changed if its stamp and its digest differ. Changed files are
read one look later, when both files of a pair have been written. If they cannot be used, the previous certificate stays
in use. The failure is logged once and counted in ``reload_failures``, and `problem` has it for as long as it lasts.

Source (5.5.0): org.apache.rocketmq.namesrv.NamesrvController.initiateSslContext, FileWatchService. In RocketMQ
certificate and key must both change, and the previous context leaked (apache/rocketmq#10398).
"""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import Final

import structlog

from remoting.server.tls_channel import ListenerTls
from runtime.supervised_tasks import critical_thread
from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode
from security.tls_config import TlsSettings
from security.tls_context import build
from security.watched_files import SETTLED_LOOKS, WatchedFiles

log = structlog.get_logger("routelake.gateway")

LOOK_S: Final = 0.5

_DAY_S: Final = 86_400


class Tls:
    """Current TLS of both listeners.

    Attributes:
        settings: Settings as given at the start.
        remoting: TLS of port 9876.
        http: TLS of port 8080.
        not_after_s: Time at which the certificate in use expires, in seconds since the epoch.
        reloads: Number of times that a new certificate was loaded.
        reload_failures: Number of times that a new certificate could not be loaded.
        refused: Reason why the current files are not in use. None if they are.
    """

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files.

        Raises:
            SetupError: The files cannot be used.
        """
        self.settings = settings
        self.reloads = self.reload_failures = 0
        self.refused: str | None = None
        self._digest = self._tried = _digest(settings.files)
        self._watched = WatchedFiles(settings.files)
        contexts = build(settings)
        needs_certificate = settings.client_auth is ClientAuth.REQUIRE
        self.remoting = ListenerTls(contexts.remoting, settings.mode, needs_certificate)
        self.http = ListenerTls(contexts.http, settings.mode, needs_certificate)
        self.not_after_s = contexts.not_after_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def problem(self) -> str | None:
        """Problem that an operator has to solve. None if there is no problem."""
        if self.refused is None and self.not_after_s < time.time():
            since = time.strftime("%F", time.gmtime(self.not_after_s))
            return f"the certificate {self.settings.cert} expired on {since}"
        return self.refused

    def start(self) -> None:
        """Start to watch the files, and log warnings for the operator."""
        for warning in self.settings.warnings:
            log.warning("TLS configuration warning", problem=warning)
        if self.settings.mode is TlsMode.PERMISSIVE:
            log.info("TLS is permissive: plain-text connections are accepted (--tls-mode enforcing refuses them)")
        self._warn_of_expiry()
        self._thread = critical_thread(self._watch, "tls-files")
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Look at the files once."""
        self._watched.look(self.settings.files)
        if self._watched.same_looks < SETTLED_LOOKS:
            return
        digest = _digest(self.settings.files)
        if digest == self._tried:
            return
        self._tried = digest
        if digest == self._digest:
            self.refused = None  # the files are back to the state in use
            return
        try:
            contexts = build(self.settings)
        except SetupError as error:
            self.refused = f"a changed certificate was not taken, the one before is in use: {error}"
            self.reload_failures += 1
            log.error("cannot use the changed TLS files; keeping the previous certificate", reason=str(error))
            return
        if _digest(self.settings.files) != digest:
            self._tried = b""  # the files were written meanwhile
            return
        self.remoting.context, self.http.context = contexts.remoting, contexts.http
        self.not_after_s, self._digest, self.refused = contexts.not_after_s, digest, None
        self.reloads += 1
        log.info("TLS certificate reloaded", not_after=time.strftime("%FT%TZ", time.gmtime(self.not_after_s)))
        self._warn_of_expiry()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                log.exception("cannot check the TLS files for changes")

    def _warn_of_expiry(self) -> None:
        left_s = self.not_after_s - time.time()
        if left_s < 0:
            log.warning(
                "TLS certificate has expired: clients that verify it cannot connect",
                cert=str(self.settings.cert),
                not_after=time.strftime("%FT%TZ", time.gmtime(self.not_after_s)),
                advice="replace the files of certificate and key; the gateway loads them without a restart",
            )
        elif left_s < 14 * _DAY_S:
            log.warning("TLS certificate expires soon", days=round(left_s / _DAY_S, 1), cert=str(self.settings.cert))


def _digest(files: tuple[Path, ...]) -> bytes:
    whole = hashlib.sha256()
    for path in files:
        try:
            whole.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            whole.update(str(error.errno).encode())
    return whole.digest()
