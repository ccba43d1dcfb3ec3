# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: FastAPI over the gateway. `app.create_app` makes it, `server.serve_http` serves it.

Path of each kind of request:

- Write: `auth` (sender) → `routes_brokers`, `routes_admin` or `routes_kv` → `body` (bytes) → `validation` and `models`
  (values) → an event → the gateway → `writes` (the receipt).
- Plain read of a route: `protocol` → `fast_path`.
- Other read: `auth` (sender) → `routes_topics`, `routes_brokers`, `routes_kv` → `reads` (waiting, entity tags) → the
  view.
- Read of the past: the same, with `history_pool` instead of the view.
"""
