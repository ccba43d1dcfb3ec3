# SPDX-License-Identifier: Apache-2.0
"""The state machine: `step` and `apply` turn an event into the next state of the route tables.

Pure functions of (state, event): no clock, no I/O, no logging, no Spark. Rules are those of RouteInfoManager and
KVConfigManager in Apache RocketMQ 5.5.0; where routelake differs on purpose, docs/reference/compatibility.md says why.

    state.py        what is remembered per broker group, and for KV configuration
    registration.py REGISTER_BROKER
    liveness.py     heartbeats, unregistration, lost connections, expiry, time without gateways
    commands.py     delete and register topic, write permission, KV configuration
    step.py         step(state, event): what one record does; apply
    changes.py      what changed between two states, as table rows
    codec.py        a shard's state as bytes and back
    rows.py         state to table rows and back
    replay.py       a log prefix to its state: recovery, audit, oracle
    version.py      the version of these rules
"""
