# SPDX-License-Identifier: Apache-2.0
"""The lake: Delta tables in a folder or an object store, for the fold that writes and for all who read.

delta/            a Delta table at the level of files
write/            epochs: one commit of all tables at a time
history/          points in time, changes, timelines, reports
commits.py        rows of routeCommitTable, and the tail that follows them
view_loader.py    the route view of a commit, and the changes between two
checkpoint.py     which of Spark's checkpoints belongs to a lake
store.py          objects of a lake at a URL; checks that the store honours conditional PUT
publisher.py      publishes commits into a folder or an object store, and fences other writers of a store off
local_replica.py  the local copy of such a lake, to which its one writer commits
lease.py          the lease of that writer; lease, local copy and publisher together, as the fold uses them
announce.py       announces the version of an epoch on a Kafka topic
transfer.py       copies a whole lake between a folder and a store
"""
