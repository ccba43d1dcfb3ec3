# SPDX-License-Identifier: Apache-2.0
"""Clients of a NameServer in Python: a route client and a broker agent. They depend only on schemas and remoting."""
