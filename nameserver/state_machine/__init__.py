# SPDX-License-Identifier: Apache-2.0
"""The state machine: `step` and `apply` turn an event into the next state of the route tables.

Pure functions of (state, event): no clock, no I/O, no logging, no Spark. The rules are those of RouteInfoManager and
KVConfigManager in Apache RocketMQ 5.5.0. docs/reference/compatibility.md explains each deliberate difference.

    state.py        the state of a broker group, and of the KV configuration
    registration.py REGISTER_BROKER
    liveness.py     heartbeats, unregistration, lost connections, expiry, time without gateways
    commands.py     delete and register topic, write permission, KV configuration
    step.py         step(state, event): the effect of one record; apply
    changes.py      differences between two states, as table rows
    codec.py        encoding of a shard's state
    rows.py         conversion of state to table rows
    replay.py       a prefix of the log to its state: recovery, audit, oracle
    version.py      version of these rules
"""
