# SPDX-License-Identifier: Apache-2.0
"""Java processes in tests; see `deploy.peers.java`."""

from deploy.peers.java import (
    JavaProcess,
    JavaProcessFailed,
    free_port,
    java_executable,
    port_answers,
    wait_until,
)

__all__ = ["JavaProcess", "JavaProcessFailed", "free_port", "java_executable", "port_answers", "wait_until"]
