# SPDX-License-Identifier: Apache-2.0
"""From event to table: the event log, the fold over it, and the Delta tables it writes."""
