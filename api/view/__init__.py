# SPDX-License-Identifier: Apache-2.0
"""The reading side: an immutable view of one cut, the follower that renews it, answers and history."""
