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
        file: Path of the file to write.
        ca: Authority that a client trusts; None: it trusts every certificate.
        server: Certificate and key of a server, which accepts plain connections, too.
        client: Certificate and key of a client.

    Returns:
        Options that encrypt all connections that the JVM makes.
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
