# SPDX-License-Identifier: Apache-2.0
"""Finds and repairs damage of a data directory. See docs/how-to/operate/repair-data.md.

findings.py   kinds of findings, with texts
log.py        the event log: pages, offsets, contents; a new log from the readable records
tables.py     the tables, one by one
examine.py    the whole data directory: lake, event log, checkpoint, and whether they belong together
back.py       rollback to the newest intact epoch
repair.py     the repairs
"""
