# SPDX-License-Identifier: Apache-2.0
"""Processes and the machine: child processes, supervision, signals, logs, limits, file modes, memory, secrets."""
