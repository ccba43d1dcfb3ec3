# SPDX-License-Identifier: Apache-2.0
"""The Delta format as routelake uses it, for the fold that writes and for gateways and commands that read.

ddl.py          create a lake, refuse one that is not ours
types.py        columns of schemas.tables as Arrow has them
actions.py      the lines of a commit in a table's log
deltalog.py     one table's log, commit by commit
active.py       the files of a table at a version
staging.py      where delta-rs commits, before a commit is linked into its table
commits.py      rows of routeCommitTable, and the tail that follows them
damage.py       what a power cut or a hand leaves: named, with the way out
arrow_types.py  data files without Arrow's own types (ADR 9)
query.py        SQL over one table version
store.py        objects of a lake at a URL
probe.py        whether a store keeps its word
copied.py       the copy of such a lake that its one writer commits to
mirror.py       publishes what was committed there; keeps others from doing so
whole.py        such a lake with all its past, into a folder and out of one
lease.py        who that is
held.py         the two together, as the fold has them
"""
