# SPDX-License-Identifier: Apache-2.0
"""The rules behind tools/lint: law (tools/layers as data), source (a C file, lexed), textrules and
symbols (the rules), selftest (a case that breaks each rule)."""
