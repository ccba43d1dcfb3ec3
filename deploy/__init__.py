# SPDX-License-Identifier: Apache-2.0
"""How routelake reaches a machine: the pinned JVM jars, the supervisor, and the servers that tests run beside it."""
