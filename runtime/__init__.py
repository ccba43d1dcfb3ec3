# SPDX-License-Identifier: Apache-2.0
"""Processes and their machine: children, supervision, signals, logs, limits, modes, memory, secrets, progress."""
