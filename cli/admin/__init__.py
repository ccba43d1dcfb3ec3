# SPDX-License-Identifier: Apache-2.0
"""`routelake admin`: mqadmin's commands about topics, brokers and NameServers, and `compare`.

They are imported when one of them is called or listed. See docs/how-to/integrate/mqadmin.md.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from cli.usage import TEXT, Commands, group

if TYPE_CHECKING:
    from typer._click.core import Command, Context


class _Admin(Commands):
    """Group that imports its commands when they are first needed."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return _loaded().list_commands(ctx)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return one command."""
        return _loaded().get_command(ctx, cmd_name)


@cache
def _loaded() -> TyperGroup:
    """All sub-commands, in the order in which help lists them."""
    from cli.admin import namesrv_commands, topic_commands, topic_views
    from cli.admin.cluster_commands import cluster_list
    from cli.admin.command import Work, add_command
    from cli.admin.compare_command import compare

    app = typer.Typer(**TEXT)
    add_command(app, "updateTopic", topic_commands.update_topic, output_letter=False)
    commands: dict[str, Work] = {
        "updateTopicList": topic_commands.update_topic_list,
        "updateTopicPerm": topic_commands.update_topic_perm,
        "deleteTopic": topic_commands.delete_topic,
        "topicList": topic_views.topic_list,
        "topicRoute": topic_views.topic_route,
        "topicClusterList": topic_views.topic_cluster_list,
        "topicStatus": topic_views.topic_status,
        "allocateMQ": topic_views.allocate_mq,
        "clusterList": cluster_list,
        "updateOrderConf": namesrv_commands.update_order_conf,
        "updateKvConfig": namesrv_commands.update_kv_config,
        "deleteKvConfig": namesrv_commands.delete_kv_config,
        "wipeWritePerm": namesrv_commands.wipe_write_perm,
        "addWritePerm": namesrv_commands.add_write_perm,
        "getNamesrvConfig": namesrv_commands.get_namesrv_config,
        "updateNamesrvConfig": namesrv_commands.update_namesrv_config,
        "compare": compare,
    }
    for name, work in commands.items():
        add_command(app, name, work)
    return typer.main.get_group(app)


admin = group(
    "mqadmin for stock and routelake NameServers, and `compare`, which checks them against each other.", _Admin
)
