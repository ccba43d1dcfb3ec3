# SPDX-License-Identifier: Apache-2.0
"""The NameServer's pure core: state machine, route view and route queries. No I/O, no clock."""
