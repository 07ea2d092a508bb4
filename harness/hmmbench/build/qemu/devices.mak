# SPDX-License-Identifier: GPL-2.0-or-later
# Device list of the bench's QEMU: what its virtual machines are made of and nothing else.
# Each one more is compile time at every user's first run.
CONFIG_Q35=y
CONFIG_PCIE_PORT=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_RNG=y
CONFIG_ISA_DEBUG=y
CONFIG_PVPANIC_PCI=y
CONFIG_VTD=y
CONFIG_HMM_GPU=y
