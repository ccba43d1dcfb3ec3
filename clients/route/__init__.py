# SPDX-License-Identifier: Apache-2.0
"""The route client: the queues of topics and the addresses of their brokers, kept up to date from a NameServer.

Read in this order::

    queues.py       conversion of a route to queues to write to or read from    pure
    brokers.py      address of a brokerName to write, read or administer        pure
    latency.py      slow and unreachable brokers                                pure
    rotation.py     choice of the next NameServer, and back-off                 pure
    cache.py        routes of all topics, their changes, and derived data       pure
    transport.py    interface of requests over remoting (fetcher.py) or HTTP (http.py)
    fetcher.py      requests to the NameServers, one after the other
    follow.py       updates of routes by polling and long polls
    client.py       RouteClient: the client on asyncio, and names with a namespace
    caller.py       Caller: chooses queues for one sender, by round robin
    blocking.py     BlockingRouteClient: the same for plain threads
"""
