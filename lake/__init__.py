# SPDX-License-Identifier: Apache-2.0
"""The lake: Delta tables in a folder or an object store, written by the fold and read by all others.

delta/            a Delta table at the level of files
write/            epochs: one commit of all tables at a time
history/          points in time, changes, timelines, reports
commits.py        rows of routeCommitTable, and the tail that follows them
view_loader.py    the route view of a commit, and the changes between two
checkpoint.py     check whether a checkpoint of Spark belongs to a lake
store.py          objects of a lake at a URL, and a check that the store obeys conditional PUT
publisher.py      publishes commits into a folder or an object store, and fences other writers of a store
local_replica.py  the local copy of a lake in a store, to which its one writer commits
lease.py          the lease of that writer, and lease, local copy and publisher as one object
announce.py       announces the version of an epoch on a Kafka topic
transfer.py       copies a whole lake between a folder and a store
"""
