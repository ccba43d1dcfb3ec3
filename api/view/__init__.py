# SPDX-License-Identifier: Apache-2.0
"""The reading side: an immutable view of one commit, the follower that renews it, answers and history."""
