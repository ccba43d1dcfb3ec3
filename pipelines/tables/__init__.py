# SPDX-License-Identifier: Apache-2.0
"""The Delta tables, written by delta-rs from the one fold process and read by everybody.

arrow.py        row changes as Arrow tables
topic_rows.py   changed rows of topicQueueTable, column by column
ddl.py          create a lake, refuse one that is not ours
writer.py       one epoch: every changed table, then routeCommitTable
staging.py      where delta-rs commits, before a commit is linked into its table
commits.py      reading routeCommitTable
maintenance.py  compaction, checkpoints, vacuum, log clean-up
seed.py         the fold's state back from the tables
"""
