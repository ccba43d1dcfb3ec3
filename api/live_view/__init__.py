# SPDX-License-Identifier: Apache-2.0
"""The live view: the latest epoch and the events after it, applied by the state machine (ADR 13)."""
