# SPDX-License-Identifier: Apache-2.0
"""The fold's executors on other machines: what Spark is told of them, and what is asked of them before it folds.

=============  ===============================================================================
``place``      which cluster, as the options name it; what Spark is told of it. Pure but for a file
``reach``      whether the master takes connections, and under which address it sees us
``code``       our packages as executors get them
``executors``  whether there are any, and whether they can do what the fold needs
=============  ===============================================================================
"""
