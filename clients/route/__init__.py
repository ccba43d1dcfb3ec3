# SPDX-License-Identifier: Apache-2.0
"""The route client: which queues a topic has, and where, kept up to date from a NameServer or from routelake.

Read in this order::

    queues.py       route -> queues to write to, queues to read from            pure
    brokers.py      brokerName -> address for writing, reading, administering   pure
    latency.py      which brokers are slow or out of reach                      pure
    rotation.py     which NameServer to ask next; back-off                      pure
    cache.py        routes of all topics, their changes, what follows from them pure
    transport.py    what asks: remoting (fetcher.py) or HTTP (http.py)
    fetcher.py      asks NameServers in turn
    follow.py       refresh: polling, long polls
    client.py       RouteClient: all of it, on asyncio; names with a namespace
    caller.py       Caller: chooses queues for one sender, by round robin
    blocking.py     BlockingRouteClient: the same for plain threads
"""
