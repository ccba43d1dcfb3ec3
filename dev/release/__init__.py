# SPDX-License-Identifier: Apache-2.0
"""Steps of a release: the checklist, the list of components, and the golden copies of its data."""
