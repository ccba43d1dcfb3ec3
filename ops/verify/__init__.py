# SPDX-License-Identifier: Apache-2.0
"""Verification that a lake equals the recorded events: `./routelake history verify`.

verify.py   all checks, on the tables of one epoch
report.py   results: verified, refuted and unverifiable parts
chain.py    check of the hash chain of epochs
balance.py  check of the state tables against the sum of all changes
replay.py   check of the tables against a replay of the event log
causes.py   comparison of epochs with wrong digests against a replay
"""
