# SPDX-License-Identifier: Apache-2.0
"""The gateway's answers to RocketMQ's requests: handlers, and what spares them work that was done before."""
