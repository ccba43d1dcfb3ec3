# SPDX-License-Identifier: Apache-2.0
"""The gateway: what brokers, clients, admins and dashboards talk to."""
