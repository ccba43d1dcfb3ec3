# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: FastAPI over the gateway. `app.create_app` makes it, `server.serve_http` serves it.

A write: `routes_brokers`, `routes_admin` or `routes_kv` → `auth` (who) → `body` (bytes) → `validation` and `models`
(values) → an event → the gateway → `writes` (the receipt). A plain read of a route: `protocol` → `fast_path`. Any other
read: `routes_topics`, `routes_brokers`, `routes_kv` → `reads` (waiting, entity tags) → the view; the past through
`history_pool`.
"""
