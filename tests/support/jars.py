"""Class paths of the stock peers; see `deploy.peers.java`."""

from deploy.peers.java import classpath

__all__ = ["classpath"]
