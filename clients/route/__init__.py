# SPDX-License-Identifier: Apache-2.0
"""The route client: the queues of topics and the addresses of their brokers, kept up to date from a NameServer.

Read in this order::

    queues.py       route -> queues to write to, queues to read from            pure
    brokers.py      brokerName -> address for writing, reading, administering   pure
    latency.py      which brokers are slow or out of reach                      pure
    rotation.py     which NameServer to ask next; back-off                      pure
    cache.py        routes of all topics, their changes, and derived data       pure
    transport.py    interface of requests over remoting (fetcher.py) or HTTP (http.py)
    fetcher.py      requests to the NameServers, one after the other
    follow.py       refresh: polling, long polls
    client.py       RouteClient: all of it, on asyncio; names with a namespace
    caller.py       Caller: chooses queues for one sender, by round robin
    blocking.py     BlockingRouteClient: the same for plain threads
"""
