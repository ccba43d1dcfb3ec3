# SPDX-License-Identifier: Apache-2.0
"""The route client: which queues a topic has, and where, kept up to date from a NameServer or from routelake.

Read in this order::

    queues.py       route -> queues to write to, queues to read from            pure
    changes.py      is this route another one?                                  pure
    brokers.py      brokerName -> address for writing, reading, administering   pure
    namespace.py    names with and without a namespace                          pure
    selection.py    round robin, avoiding a broker                              pure
    latency.py      which brokers are slow or out of reach                      pure
    rotation.py     which NameServer to ask next; back-off                      pure
    transport.py    what asks: remoting (remoting.py) or HTTP (http.py)
    table.py        what follows from the routes of all topics                  pure
    cache.py        where answers come in and listeners hear of it
    fetcher.py      asks NameServers in turn
    follow.py       refresh: polling, long polls
    client.py       RouteClient: all of it, on asyncio
    caller.py       Caller: chooses queues for one sender
    blocking.py     BlockingRouteClient: the same for plain threads
    cli.py, show.py `routelake route`
"""
