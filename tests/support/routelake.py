# SPDX-License-Identifier: Apache-2.0
"""A real routelake in tests; see `deploy.peers.routelake`."""

from deploy.peers.routelake import ROOT, Routelake

__all__ = ["ROOT", "Routelake"]
