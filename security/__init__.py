# SPDX-License-Identifier: Apache-2.0
"""Identity, permissions and quotas of peers, decided without I/O, for every listener."""
