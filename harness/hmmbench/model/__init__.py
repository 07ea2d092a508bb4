# SPDX-License-Identifier: GPL-2.0-or-later
"""The reference: what memory must look like, in pure Python, written from Linux's rules.

`page`      what one page may contain (values, and alternative worlds)
`space`     processes, VMAs, shared objects; what each mm operation does to them
`admit`     which operations, and which races, the model can decide soundly

Nothing here knows of the driver, of HMM or of a VM.
"""
