# SPDX-License-Identifier: Apache-2.0
"""All sub-commands of `routelake admin`, in the order in which its help lists them."""

from __future__ import annotations

import typer

from cli.admin import cluster_commands, compare_command, kv_commands, namesrv_commands, topic_commands, topic_views
from cli.usage import TEXT

app = typer.Typer(**TEXT)
for family in (topic_commands, topic_views, cluster_commands, kv_commands, namesrv_commands, compare_command):
    family.register(app)
