# SPDX-License-Identifier: Apache-2.0
"""The gateway: event log and live view behind remoting and HTTP."""
