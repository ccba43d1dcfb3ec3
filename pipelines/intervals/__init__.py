# SPDX-License-Identifier: Apache-2.0
"""The tables of intervals, kept from routeChangeTable (docs/adr/0015).

rows.py     changes to intervals: which end, which begin
keeper.py   the tables, brought up to the newest epoch; made anew
"""
