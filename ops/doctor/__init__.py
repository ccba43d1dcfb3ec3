# SPDX-License-Identifier: Apache-2.0
"""Finds what is wrong with a data directory, and repairs what it can. See docs/how-to/operate/repair-data.md.

findings.py   what was found, in words
log.py        the event log: pages, offsets, contents; a log made anew from what can be read
tables.py     the tables, one by one
examine.py    all of it together: lake, log, checkpoint, and whether they belong together
back.py       the newest epoch that can be gone back to, and going back
repair.py     what is done about what was found
"""
