# SPDX-License-Identifier: Apache-2.0
"""Generated parts of the documentation: one module for each subject, which reads the code and returns Markdown.

A page has hand-written text and blocks. A block is between the lines ``<!-- generated: NAME -->`` and ``<!-- end -->``.
`dev.reference.pages` lists the blocks and fills them into every page below docs/ that shows them.
"""
