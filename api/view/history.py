"""The past: cuts by epoch or time, the route of a topic at a cut, and who changed what.

*The route as of time T* is the route at the cut with the greatest epoch whose ``eventTime`` is not after T. eventTime
is the event time of the last log offset in the cut, so this is what the log knew at T, on the log's own clock; when
the writer happened to commit it does not matter, and a replay gives the same answer. A time after the newest epoch
means the newest epoch: nothing has changed since.

*Readable* is a cut whose tables can all be opened at its versions and whose data files are all there. Vacuum and log
clean-up take the oldest first, so the readable cuts are those from some epoch on; an error names it.

*The changes of a topic* are what an operator needs at three in the morning ("who deleted it", "why did its route go"):

1. every row change and command that names the topic: queue rows (an expired or unregistered broker takes its queue
   rows along, so the cause is told here: BROKER_EXPIRED, UNREGISTER_BROKER, CHANNEL_CLOSED), static mapping, deletion,
   wiped permissions;
2. its order configuration (kvConfigTable);
3. of the broker groups that hold it or ever held it: address and filter server changes, which change the route while
   the queue rows stay, and refused registrations, which say why a topic did not come.

Left out are rows of brokerLiveTable (every registration moves them; a broker that goes shows in 1 and 3) and of
clusterAddrTable (not part of a route).

Safe for threads. Reads run without the interpreter lock.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from api.view.as_of import AsOf, iso, parse_as_of
from api.view.changelog import Change, ChangePage, ChangeQuery, read_changes
from api.view.commitlog import CommitLog, Mark
from api.view.loader import changes_from, is_local, plain_text, read_commits, table_uri
from api.view.pickup import pick_up_topic_route
from api.view.query import names, select, text, texts
from api.view.rows import Cut
from api.view.snapshot import ORDER_TOPIC_CONFIG, RouteView
from schemas.codes import ResponseCode
from schemas.errors import FutureEpochError, NotFoundError, UnavailableError, VacuumedError
from schemas.route import TopicRouteData
from schemas.tables import (
    BROKER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    ROUTE_CHANGE_TABLE,
    ROUTE_COMMIT_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)
