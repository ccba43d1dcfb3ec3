# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's programs over TLS: a tls.properties, and the JVM options that name it."""

from __future__ import annotations

from pathlib import Path

Files = tuple[Path, Path]
"""PEM: a certificate and its key."""


def java_tls(
    file: Path, *, ca: Path | None = None, server: Files | None = None, client: Files | None = None
) -> tuple[str, ...]:
    """Write the file, which a server, a client, or what is both (a broker) reads.

    Source (5.5.0): org.apache.rocketmq.remoting.netty.TlsSystemConfig, TlsHelper.extractTlsConfigFromFile.

    Args:
        file: Will hold it.
        ca: Whom a client believes; None: everybody.
        server: What a server shows; it takes plain connections, too.
        client: What a client shows.

    Returns:
        With these options all that the JVM connects to is encrypted.
    """
    properties: dict[str, object] = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": str(ca is not None).lower(),
    }
    if ca is not None:
        properties["tls.client.trustCertPath"] = ca
    for kind, files in (("server", server), ("client", client)):
        if files is not None:
            properties |= {f"tls.{kind}.certPath": files[0], f"tls.{kind}.keyPath": files[1]}
    if server is not None:
        properties["tls.server.mode"] = "permissive"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return "-Dtls.enable=true", f"-Dtls.config.file={file}"
