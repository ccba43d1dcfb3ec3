# SPDX-License-Identifier: Apache-2.0
"""Delta tables at the level of files.

log.py          entries, checkpoints, the files of a version, damage
reader.py       rows of single commits, and of the files of a version
query.py        SQL over one version
ddl.py          creates and checks the tables of a lake
data_file.py    data files that are written to be committed elsewhere
types.py        columns as Arrow has them
arrow_types.py  data files without types of Arrow's own
"""
