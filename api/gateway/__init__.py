# SPDX-License-Identifier: Apache-2.0
"""The gateway's process: event log and live view behind both APIs."""
