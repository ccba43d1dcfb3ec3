# SPDX-License-Identifier: Apache-2.0
"""Every example, by name."""

from __future__ import annotations

from tests.examples.answers import ROUTES, TOPICS
from tests.examples.bodies import BODIES, MISSING_FIELDS
from tests.examples.brokers import REGISTRATION, UNREGISTRATION
from tests.examples.parts import Example
from tests.examples.rocketmq_tests import ROCKETMQ_TESTS

EXAMPLES: dict[str, Example] = {
    **REGISTRATION, **UNREGISTRATION, **ROUTES, **TOPICS, **BODIES, **MISSING_FIELDS, **ROCKETMQ_TESTS,
}  # fmt: skip
