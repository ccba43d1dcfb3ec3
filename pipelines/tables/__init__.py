# SPDX-License-Identifier: Apache-2.0
"""The tables of the lake, written by delta-rs from the one fold process.

writer.py       one epoch: every changed table, then routeCommitTable
maintenance.py  compaction, checkpoints, vacuum, log clean-up
seed.py         the fold's state back from the tables
resumes.py      when the last RESUME was
"""
