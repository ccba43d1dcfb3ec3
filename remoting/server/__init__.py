# SPDX-License-Identifier: Apache-2.0
"""The asyncio server of the remoting protocol, and the bounds of its connections."""
