# SPDX-License-Identifier: GPL-2.0-or-later
"""The device core as a shared library for cffi: what it declares, and how it is compiled."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cffi import FFI

from hmmbench.base import paths, processes
from hmmbench.base.errors import EnvironmentFailure

_CDEF = """
typedef struct HgDev HgDev;
typedef struct HgConfig {
    uint32_t sms, warps, ces, utlb_entries, utlb_misses, sms_per_utlb, l2tlb_entries, walk_entries;
    uint32_t data_pages;
    uint64_t vram_size, bar2_size;
    void *vram;
    bool deterministic;
    uint64_t seed;
    uint64_t audit_wait_ns;
    uint32_t asids, ctxs;
    bool coherent;
    bool audit_cmd;
    bool big_pages;
    bool prefetch_faults;
    bool ce_faults;
    bool reset_loses_vram;
} HgConfig;
typedef struct ThEvent { uint32_t ev; uint64_t a, b, c, d; } ThEvent;
typedef struct ThHost {
    uint8_t *ram;
    uint64_t ram_base, ram_size;
    uint8_t *vram;
    uint64_t vram_size;
    uint64_t now, now_step;
    uint64_t irq[4];
    uint64_t ram_written, vram_written;
    uint64_t bus_reads, bus_writes;
    uint64_t kicks;
    uint64_t bad_lo, bad_hi;
    uint64_t alias;
    ThEvent *log;
    uint64_t logged;
    HgDev *dev;
    bool measured;
    bool manual;
    uint64_t held;
    uint32_t threads;
    uint32_t no_thread;
} ThHost;
ThHost *th_new(uint64_t ram_base, uint64_t ram_size, uint64_t vram_size);
HgDev *th_device(ThHost *h, HgConfig *cfg, int direct, char *err, size_t errlen);
void th_free(ThHost *h);
bool hg_core_fits(uint32_t version, size_t config, size_t ops);
void hg_config_default(HgConfig *cfg);
uint64_t hg_mmio_read(HgDev *d, uint64_t off, unsigned size);
void hg_mmio_write(HgDev *d, uint64_t off, uint64_t val, unsigned size);
void hg_start(HgDev *d);
void hg_stop(HgDev *d);
void hg_set_bus_master(HgDev *d, bool on);
void hg_reset(HgDev *d);
void hg_park(HgDev *d);
bool hg_step(HgDev *d, uint32_t budget);
unsigned hg_engines(HgDev *d);
uint32_t hg_engines_ready(HgDev *d);
unsigned hg_engine_at(HgDev *d, unsigned i);
const char *hg_at_name(unsigned at);
uint32_t hg_step_engine(HgDev *d, unsigned i, uint32_t steps);
uint64_t hg_deadline(HgDev *d);
bool hg_audit_waits(HgDev *d);
void hg_ram_add(HgDev *d, uint64_t bus_addr, uint64_t size, void *ptr, bool readonly, void *opaque);
void hg_ram_remove(HgDev *d, uint64_t bus_addr, uint64_t size);
size_t hg_save_size(HgDev *d);
size_t hg_save_max(HgDev *d);
size_t hg_save(HgDev *d, void *buf, size_t len);
int hg_load(HgDev *d, const void *buf, size_t len, char *err, size_t errlen);
uint64_t hg_counter(HgDev *d, unsigned n);
const char *hg_counter_name(unsigned n);
int hg_vec_set(HgDev *d, const char *name);
const char *hg_vec_name(HgDev *d);
int64_t th_vec_fp(HgDev *d, const char *vec, uint32_t raw, uint64_t n, const uint64_t *a,
                  const uint64_t *b, const uint64_t *c, const uint8_t *fcsr, const uint32_t *mask,
                  uint32_t mxcsr, uint64_t *fast);
const char *hg_check_name(unsigned check);
uint64_t hg_check_count(HgDev *d, unsigned check);
int hg_inject(HgDev *d, const char *rules, char *err, size_t errlen);
size_t hg_inject_get(HgDev *d, char *buf, size_t len);
int hg_audit_set(HgDev *d, const char *mode);
uint64_t hg_audit_full(HgDev *d);
uint64_t hg_violations(HgDev *d);
void hg_violations_clear(HgDev *d);
size_t hg_violations_json(HgDev *d, char *buf, size_t len);
"""

#: HG_CORE_VERSION of the interface that is declared above.
CORE_VERSION = 10

#: A change of the core's source, for tests that break it: file, text that is there once, new text.
Edit = tuple[str, str, str]

#: Applied when `library` is asked for no others; set by tests alone.
default_edits: tuple[Edit, ...] = ()

ffi = FFI()
ffi.cdef(_CDEF)
_libs: dict[Path, Any] = {}


def sources(edits: Sequence[Edit] = ()) -> dict[str, str]:
    """Place below core/ (or name) to text of every file of core and host; ValueError if an edit
    does not apply."""
    folder = paths.device_sources()
    core = folder / "core"
    files = {str(p.relative_to(core)): p.read_text() for p in sorted(core.rglob("*.[ch]"))}
    files |= {p.name: p.read_text() for p in (folder / "include").glob("*.h")}
    files |= {n: (folder / "tests" / n).read_text() for n in ("host.c", "host.h", "vecdiff.c")}
    for name, old, new in edits:
        if files[name].count(old) != 1:
            raise ValueError(f"{name}: the text to break is there {files[name].count(old)} times")
        files[name] = files[name].replace(old, new)
    return files


def build(edits: Sequence[Edit] = ()) -> Path:
    """Compile core + host (with ``edits`` applied) to a shared library, once a content hash;
    EnvironmentFailure with the compiler's words if that fails."""
    files = sources(edits)
    cc = os.environ.get("CC", "cc")
    if shutil.which(cc.split()[0]) is None:
        raise EnvironmentFailure(
            f"the C compiler {cc} is not installed",
            "apt-get install gcc libc6-dev, or set CC to a compiler.",
        )
    # a broken core runs one test: compiling it fast matters more than its speed
    flags = ["-std=c11", "-O0" if edits else "-O2", "-fno-math-errno", "-fPIC",
             "-shared", "-pthread", "-w"]  # fmt: skip
    digest = hashlib.sha256(repr((sorted(files.items()), cc, flags)).encode()).hexdigest()[:20]
    out = paths.cache_dir("core") / f"hgcore-{digest}.so"
    if out.exists():
        return out
    with tempfile.TemporaryDirectory(prefix="hmmbench-core-") as tmp:
        for name, text in files.items():
            at = Path(tmp) / name
            at.parent.mkdir(exist_ok=True)
            at.write_text(text)
        units = sorted(n for n in files if n.endswith(".c"))
        lib = Path(tmp) / "out.so"
        done = processes.run(
            [*cc.split(), *flags, "-I.", *units, "-o", lib], cwd=Path(tmp)
        )
        if done.returncode:
            raise EnvironmentFailure(f"the device core does not compile:\n{done.stderr}")
        # Whoever else builds it meanwhile sees the whole file or none.
        staged = out.with_suffix(f".{os.getpid()}")
        shutil.copy(lib, staged)
        staged.replace(out)
    return out


def library(edits: Sequence[Edit] = ()) -> Any:
    """The loaded library (one a set of edits); EnvironmentFailure as `build`."""
    path = build(edits or default_edits)
    if path not in _libs:
        lib = ffi.dlopen(str(path))
        if not lib.hg_core_fits(CORE_VERSION, ffi.sizeof("HgConfig"), 0):
            raise RuntimeError("device/library.py declares another interface than hmm_gpu_core.h")
        _libs[path] = lib
    return _libs[path]
