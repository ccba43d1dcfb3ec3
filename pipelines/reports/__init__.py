# SPDX-License-Identifier: Apache-2.0
"""What analysts ask the tables.

sql_views.py   views over the tables that every engine takes
duck.py        the tables and these views in DuckDB, without a JVM
views.py       the same as temporary views of a Spark session
reports.py     the reports of `routelake history report`, one query each
jobs.py        they as Spark jobs
datafusion.py  they in a gateway
page.py        a report as one HTML page
"""
