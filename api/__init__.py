# SPDX-License-Identifier: Apache-2.0
"""The gateway: the servers for brokers, clients, admins and dashboards."""
