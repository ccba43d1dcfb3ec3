# SPDX-License-Identifier: Apache-2.0
"""Class paths of the stock peers; see `deploy.peers.java`."""

from deploy.peers.java import classpath

__all__ = ["classpath"]
