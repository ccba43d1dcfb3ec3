# SPDX-License-Identifier: Apache-2.0
"""`routelake admin`: mqadmin's commands about topics, brokers and NameServers, and `compare`.

See docs/how-to/integrate/mqadmin.md.
"""
