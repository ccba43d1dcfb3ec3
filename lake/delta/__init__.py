# SPDX-License-Identifier: Apache-2.0
"""Access to Delta tables at the level of files.

log.py        entries, checkpoints, the files of a version, damage
reader.py     rows of single commits, and of the files of a version
query.py      SQL over one version
ddl.py        creates and checks the tables of a lake
data_file.py  data files that another process commits, without Arrow-specific types
types.py      Arrow types of the columns
"""
