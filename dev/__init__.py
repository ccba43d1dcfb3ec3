# SPDX-License-Identifier: Apache-2.0
"""How routelake reaches a machine and a checkout: pinned JVM jars, version, changelog, and what a developer runs."""
