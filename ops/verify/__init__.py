# SPDX-License-Identifier: Apache-2.0
"""Proof that a lake is what happened: `./routelake history verify`.

verify.py   the parts together, on the tables of one epoch
report.py   a proof in progress: what was verified, refuted, and what could not be verified
chain.py    the chain of epochs
balance.py  the state tables against the changes: what the changes add up to
replay.py   the tables against a replay of the log
causes.py   what a replay says of epochs whose digests do not hold
"""
