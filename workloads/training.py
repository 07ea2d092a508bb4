# SPDX-License-Identifier: GPL-2.0-or-later
"""Training of a two-layer network: weights stay on the GPU, each step brings a batch of images.

A step is a forward pass, a backward pass and a step downhill.  The loss of every image of every
step, and the weights at the end, are numpy's bit for bit: each sum has the kernel's order.
"""

import numpy as np
from numpy.typing import NDArray

from hmmbench.gpu import Array, Gpu, Kernels
from hmmbench.suites.workload import same

SIZES = {
    "tiny": {"pixels": 36, "hidden": 24, "batch": 16, "steps": 4},
    "small": {"pixels": 256, "hidden": 64, "batch": 128, "steps": 6},
    "large": {"pixels": 256, "hidden": 256, "batch": 1024, "steps": 3},
}

CLASSES = 10
RATE = 0.1
BATCHES = 2
PIECE = 64
GRID, BLOCK = 16, 64

F32 = NDArray[np.float32]


def on_gpu(
    k: Kernels, a: Array, b: Array, c: Array, *, ta: bool = False, tb: bool = False,
    relu: bool = False, mask: Array | int = 0,
) -> None:  # fmt: skip
    """c = a b, with either transposed, by the kernel."""
    inner = a.shape[0] if ta else a.shape[1]
    # Sums over the batch go by pieces of it, so that a batch larger than VRAM passes through once.
    piece = PIECE if ta else inner
    for first in range(0, inner, piece):
        end = min(first + piece, inner)
        k.launch(
            "product", GRID, BLOCK, a, b, c, *c.shape, first, end,
            *((1, a.shape[1]) if ta else (a.shape[1], 1)),
            *((1, b.shape[1]) if tb else (b.shape[1], 1)),
            relu and end == inner, mask if end == inner else 0,
        )  # fmt: skip


def in_order(a: F32, b: F32) -> F32:
    """a b, each sum in the kernel's order."""
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out += a[:, k : k + 1] * b[k : k + 1, :]
    return out


def run(gpu: Gpu, pixels: int, hidden: int, batch: int, steps: int) -> dict[str, str | float]:
    rng = np.random.default_rng(15)

    def normal(*shape: int) -> F32:
        return rng.standard_normal(shape, dtype=np.float32)

    # What is learnt is another network's answer.
    teacher = normal(pixels, CLASSES) / np.float32(np.sqrt(pixels))
    images = [normal(batch, pixels) for _ in range(BATCHES)]
    answers = [in_order(x, teacher) for x in images]
    w = normal(pixels, hidden) / np.float32(np.sqrt(pixels))
    v = normal(hidden, CLASSES) / np.float32(np.sqrt(hidden))
    scale, rate = np.float32(2 / CLASSES), np.float32(RATE / batch)

    k = gpu.kernels("training.c")
    gw, gv = gpu.array(w), gpu.array(v)
    h, dh = (gpu.empty((batch, hidden), np.float32) for _ in range(2))
    y, dy = (gpu.empty((batch, CLASSES), np.float32) for _ in range(2))
    dw, dv = gpu.empty(w.shape, np.float32), gpu.empty(v.shape, np.float32)
    rows = gpu.empty(batch, np.float32)
    curve, seconds = [], []
    for step in range(steps):
        gpu.progress(step, steps, "steps")
        x, t = images[step % BATCHES], answers[step % BATCHES]
        before = gpu.busy_s
        gx, gt = gpu.array(x), gpu.array(t)
        on_gpu(k, gx, gw, h, relu=True)
        on_gpu(k, h, gv, y)
        k.launch("loss", GRID, BLOCK, y, gt, dy, rows, batch, CLASSES, scale)
        curve.append(rows.numpy())
        on_gpu(k, h, dy, dv, ta=True)
        on_gpu(k, dy, gv, dh, tb=True, mask=h)
        on_gpu(k, gx, dh, dw, ta=True)
        k.launch("descend", GRID, BLOCK, gw, dw, w.size, rate)
        k.launch("descend", GRID, BLOCK, gv, dv, v.size, rate)
        gx.free()
        gt.free()
        seconds.append(gpu.busy_s - before)

    for step in range(steps):
        x, t = images[step % BATCHES], answers[step % BATCHES]
        hid = np.maximum(in_order(x, w), np.float32(0))
        off = in_order(hid, v) - t
        want = np.zeros(batch, np.float32)
        for c in range(CLASSES):
            want += off[:, c] * off[:, c]
        same(curve[step], want, f"the loss of step {step}")
        slope = off * scale
        to_v, to_hid = in_order(hid.T, slope), in_order(slope, v.T) * (hid != 0)
        w = w - rate * in_order(x.T, to_hid)
        v = v - rate * to_v
    # Added up, so that a zero's sign, which no sum depends on, is not compared.
    same(gw.numpy() + np.float32(0), w + np.float32(0), "weights of the first layer")
    same(gv.numpy() + np.float32(0), v + np.float32(0), "weights of the second layer")
    return {
        "loss": " ".join(f"{loss.mean():.2f}" for loss in curve),
        # The median: the first step finds nothing in VRAM.
        "images/s": round(batch / float(np.median(seconds)), 1),
    }
