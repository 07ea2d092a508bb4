// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: loader of GPU programs.
 *
 * A program is one linked ELF file.  Its segments go into one fresh anonymous
 * mapping; relative relocations are applied; then what is not writable in the
 * file is made read-only.  No dynamic linker, no libraries: a file that needs
 * them is refused.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hmm_gpu_print.h"
#include "internal.h"
#include "lines.h"

#ifndef EM_RISCV
#define EM_RISCV 243
#endif
#define RELOC_NONE	0	/* R_RISCV_NONE */
#define RELOC_RELATIVE	3	/* R_RISCV_RELATIVE */
#define PAGE		4096ull
/* Far above any real program, and small enough that sums of two cannot overflow. */
#define MAX_IMAGE	(1ull << 30)

struct hmmgpu_kernel {
	uint8_t *base;		/* of the mapping; constant after load */
	uint64_t len;
	uint64_t bias;		/* loaded address - linked address */
	uint64_t entry;
	uint64_t text, text_end;	/* whole pages; 0 if no segment is executable */
	Elf64_Sym *syms;	/* copies of the tables, so that the file is not needed */
	uint64_t nsyms;
	char *names;		/* 0 terminated */
	uint64_t names_len;
	struct line_tables lines;	/* copies, too; of no length if the file has none */
};

static int inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

/* Linked address range [*lo, *hi) of all segments, whole pages. */
static int image_range(const Elf64_Phdr *ph, unsigned n, size_t size, uint64_t *lo, uint64_t *hi)
{
	*lo = UINT64_MAX;
	*hi = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t end;

		if (ph[i].p_type == PT_INTERP)
			return -ENOEXEC;
		if (ph[i].p_type != PT_LOAD)
			continue;
		if (ph[i].p_filesz > ph[i].p_memsz)
			return -ENOEXEC;
		if (!ph[i].p_memsz)
			continue;
		if (ph[i].p_memsz > MAX_IMAGE || ph[i].p_vaddr > (1ull << 47) ||
		    !inside(ph[i].p_offset, ph[i].p_filesz, size))
			return -ENOEXEC;
		end = (ph[i].p_vaddr + ph[i].p_memsz + PAGE - 1) & ~(PAGE - 1);
		if ((ph[i].p_vaddr & ~(PAGE - 1)) < *lo)
			*lo = ph[i].p_vaddr & ~(PAGE - 1);
		if (end > *hi)
			*hi = end;
	}
	return *hi > *lo && *hi - *lo <= MAX_IMAGE ? 0 : -ENOEXEC;
}

/* Relative relocations of the dynamic section, all inside the image. */
static int relocate(struct hmmgpu_kernel *k, const Elf64_Phdr *dyn)
{
	uint64_t rela = 0, relasz = 0, at = dyn->p_vaddr + k->bias - (uintptr_t)k->base;
	const Elf64_Dyn *d;

	if (!inside(at, dyn->p_memsz, k->len) || at % 8)
		return -ENOEXEC;
	d = (const Elf64_Dyn *)(k->base + at);
	for (uint64_t i = 0; i < dyn->p_memsz / sizeof(*d) && d[i].d_tag != DT_NULL; i++) {
		switch (d[i].d_tag) {
		case DT_RELA: rela = d[i].d_un.d_ptr; break;
		case DT_RELASZ: relasz = d[i].d_un.d_val; break;
		case DT_NEEDED: case DT_REL: case DT_JMPREL: return -ENOEXEC;
		default: break;
		}
	}
	if (!relasz)
		return 0;
	rela += k->bias - (uintptr_t)k->base;
	if (!inside(rela, relasz, k->len) || rela % 8)
		return -ENOEXEC;
	for (uint64_t i = 0; i < relasz / sizeof(Elf64_Rela); i++) {
		const Elf64_Rela *r = (const Elf64_Rela *)(k->base + rela) + i;
		uint64_t where = r->r_offset + k->bias - (uintptr_t)k->base;
		uint64_t value = r->r_addend + k->bias;

		if (ELF64_R_TYPE(r->r_info) == RELOC_NONE)
			continue;
		if (ELF64_R_TYPE(r->r_info) != RELOC_RELATIVE || !inside(where, 8, k->len))
			return -ENOEXEC;
		memcpy(k->base + where, &value, 8);
	}
	return 0;
}

/* .symtab, or .dynsym of a stripped file.  A file without either is fine: entry only. */
static int copy_symbols(struct hmmgpu_kernel *k, const uint8_t *elf, size_t size,
			const Elf64_Ehdr *eh)
{
	const Elf64_Shdr *sh, *sym = NULL, *str;

	if (!eh->e_shnum)
		return 0;
	if (eh->e_shentsize != sizeof(*sh) || eh->e_shoff % 8 ||
	    !inside(eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(*sh), size))
		return -ENOEXEC;
	sh = (const Elf64_Shdr *)(elf + eh->e_shoff);
	for (unsigned i = 0; i < eh->e_shnum; i++)
		if (sh[i].sh_type == SHT_SYMTAB || (sh[i].sh_type == SHT_DYNSYM && !sym))
			sym = &sh[i];
	if (!sym)
		return 0;
	if (sym->sh_link >= eh->e_shnum)
		return -ENOEXEC;
	str = &sh[sym->sh_link];
	if (!inside(sym->sh_offset, sym->sh_size, size) ||
	    !inside(str->sh_offset, str->sh_size, size))
		return -ENOEXEC;
	k->nsyms = sym->sh_size / sizeof(Elf64_Sym);
	k->syms = malloc(k->nsyms * sizeof(Elf64_Sym) + 1);
	k->names_len = str->sh_size;
	k->names = malloc(str->sh_size + 1);
	if (!k->syms || !k->names)
		return -ENOMEM;
	memcpy(k->syms, elf + sym->sh_offset, k->nsyms * sizeof(Elf64_Sym));
	memcpy(k->names, elf + str->sh_offset, str->sh_size);
	k->names[str->sh_size] = 0;
	return 0;
}

/*
 * A copy of a section for debuggers.  What is missing, compressed or damaged is
 * left out: the program runs without.
 */
static int copy_debug(const char *name, const uint8_t *elf, size_t size, const Elf64_Ehdr *eh,
		      const uint8_t **copy, size_t *len)
{
	const Elf64_Shdr *sh = (const Elf64_Shdr *)(elf + eh->e_shoff), *str;
	size_t n = strlen(name) + 1;
	uint8_t *p;

	/* The table itself is inside the file: copy_symbols() has looked. */
	if (eh->e_shstrndx >= eh->e_shnum)
		return 0;
	str = &sh[eh->e_shstrndx];
	if (!inside(str->sh_offset, str->sh_size, size))
		return 0;
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		if (sh[i].sh_type != SHT_PROGBITS || sh[i].sh_flags & SHF_COMPRESSED ||
		    !inside(sh[i].sh_name, n, str->sh_size) ||
		    memcmp(elf + str->sh_offset + sh[i].sh_name, name, n) != 0 ||
		    !inside(sh[i].sh_offset, sh[i].sh_size, size))
			continue;
		p = malloc(sh[i].sh_size + 1);
		if (!p)
			return -ENOMEM;
		memcpy(p, elf + sh[i].sh_offset, sh[i].sh_size);
		*copy = p;
		*len = sh[i].sh_size;
		return 0;
	}
	return 0;
}

/*
 * Tells the program where to print, if it does: hmm_gpu_print.h.  A section, for
 * its name survives stripping.
 */
static int connect_print(struct hmmgpu_kernel *k, const uint8_t *elf, size_t size,
			 const Elf64_Ehdr *eh)
{
	const Elf64_Shdr *sh = (const Elf64_Shdr *)(elf + eh->e_shoff), *str;
	size_t n = sizeof(HMM_PRINT_SECTION);
	uint64_t buffer = 0;

	/* The table itself is inside the file: copy_symbols() has looked. */
	if (eh->e_shstrndx >= eh->e_shnum)
		return 0;
	str = &sh[eh->e_shstrndx];
	if (!inside(str->sh_offset, str->sh_size, size))
		return 0;
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		uint64_t at = sh[i].sh_addr + k->bias - (uintptr_t)k->base;
		int ret;

		if (!(sh[i].sh_flags & SHF_ALLOC) || !inside(sh[i].sh_name, n, str->sh_size) ||
		    memcmp(elf + str->sh_offset + sh[i].sh_name, HMM_PRINT_SECTION, n) != 0)
			continue;
		if (!inside(at, sh[i].sh_size, k->len) || at % 8 || sh[i].sh_size % 8)
			return -ENOEXEC;
		ret = buffer ? 0 : hg_print_add_program(k->base, k->len, &buffer);
		if (ret)
			return ret;
		for (uint64_t off = 0; off < sh[i].sh_size; off += 8)
			memcpy(k->base + at + off, &buffer, 8);
	}
	return 0;
}

/* Whatever page holds nothing writable loses its write permission; execution is the GPU's, a read. */
static int protect(struct hmmgpu_kernel *k, const Elf64_Phdr *ph, unsigned n)
{
	if (mprotect(k->base, k->len, PROT_READ))
		return -errno;
	for (unsigned i = 0; i < n; i++) {
		uint64_t lo, hi;

		if (ph[i].p_type != PT_LOAD || !(ph[i].p_flags & PF_W) || !ph[i].p_memsz)
			continue;
		lo = (ph[i].p_vaddr + k->bias) & ~(PAGE - 1);
		hi = (ph[i].p_vaddr + k->bias + ph[i].p_memsz + PAGE - 1) & ~(PAGE - 1);
		if (mprotect((void *)(uintptr_t)lo, hi - lo, PROT_READ | PROT_WRITE))
			return -errno;
	}
	return 0;
}

static int load(struct hmmgpu_kernel *k, const uint8_t *elf, size_t size)
{
	const Elf64_Ehdr *eh = (const Elf64_Ehdr *)elf;
	const Elf64_Phdr *ph;
	uint64_t lo, hi;
	void *want = NULL;
	int ret, flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_ident[EI_DATA] != ELFDATA2LSB ||
	    eh->e_machine != EM_RISCV || (eh->e_type != ET_DYN && eh->e_type != ET_EXEC) ||
	    eh->e_phentsize != sizeof(*ph) || eh->e_phoff % 8 ||
	    !inside(eh->e_phoff, (uint64_t)eh->e_phnum * sizeof(*ph), size))
		return -ENOEXEC;
	ph = (const Elf64_Phdr *)(elf + eh->e_phoff);
	ret = image_range(ph, eh->e_phnum, size, &lo, &hi);
	if (ret)
		return ret;

	if (eh->e_type == ET_EXEC) {
		/* root may map the first page, and then no access by NULL would fail any more */
		if (!lo)
			return -ENOEXEC;
		want = (void *)(uintptr_t)lo;
		flags |= MAP_FIXED_NOREPLACE;
	}
	k->len = hi - lo;
	k->base = mmap(want, k->len, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (k->base == MAP_FAILED) {
		k->base = NULL;
		return -errno;
	}
	/* A kernel older than 4.17 does not know NOREPLACE and places it elsewhere. */
	if (want && k->base != want)
		return -EEXIST;
	k->bias = (uintptr_t)k->base - lo;
	k->entry = eh->e_entry + k->bias;

	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_filesz)
			memcpy(k->base + (ph[i].p_vaddr - lo), elf + ph[i].p_offset, ph[i].p_filesz);
	for (unsigned i = 0; i < eh->e_phnum; i++) {
		uint64_t start = (ph[i].p_vaddr + k->bias) & ~(PAGE - 1);
		uint64_t end = (ph[i].p_vaddr + k->bias + ph[i].p_memsz + PAGE - 1) & ~(PAGE - 1);

		if (ph[i].p_type != PT_LOAD || !(ph[i].p_flags & PF_X) || !ph[i].p_memsz)
			continue;
		if (!k->text || start < k->text)
			k->text = start;
		if (end > k->text_end)
			k->text_end = end;
	}
	for (unsigned i = 0; i < eh->e_phnum && !ret; i++)
		if (ph[i].p_type == PT_DYNAMIC)
			ret = relocate(k, &ph[i]);
	if (!ret)
		ret = copy_symbols(k, elf, size, eh);
	if (!ret)
		ret = copy_debug(".debug_line", elf, size, eh, &k->lines.line, &k->lines.line_len);
	if (!ret)
		ret = copy_debug(".debug_line_str", elf, size, eh, &k->lines.str, &k->lines.str_len);
	if (!ret)
		ret = connect_print(k, elf, size, eh);
	if (!ret)
		ret = protect(k, ph, eh->e_phnum);
	return ret;
}

int hmmgpu_kernel_load(const void *elf, size_t size, struct hmmgpu_kernel **out)
{
	struct hmmgpu_kernel *k = calloc(1, sizeof(*k));
	void *copy = NULL;
	int ret;

	if (!k)
		return -ENOMEM;
	/* The headers are read in place; an embedded byte array may be unaligned. */
	if ((uintptr_t)elf % 8) {
		copy = malloc(size ? size : 1);
		if (!copy) {
			free(k);
			return -ENOMEM;
		}
		memcpy(copy, elf, size);
		elf = copy;
	}
	ret = load(k, elf, size);
	free(copy);
	if (ret) {
		hmmgpu_kernel_free(k);
		return ret;
	}
	*out = k;
	return 0;
}

int hmmgpu_kernel_load_file(const char *path, struct hmmgpu_kernel **out)
{
	struct stat st;
	void *map;
	int ret, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		ret = -errno;
	} else if (!S_ISREG(st.st_mode) || st.st_size <= 0) {
		ret = -ENOEXEC;
	} else {
		map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map == MAP_FAILED) {
			ret = -errno;
		} else {
			ret = hmmgpu_kernel_load(map, st.st_size, out);
			munmap(map, st.st_size);
		}
	}
	close(fd);
	return ret;
}

void hmmgpu_kernel_free(struct hmmgpu_kernel *k)
{
	if (!k)
		return;
	if (k->base) {
		hg_print_remove_program(k->base);
		munmap(k->base, k->len);
	}
	free(k->syms);
	free(k->names);
	free((void *)k->lines.line);
	free((void *)k->lines.str);
	free(k);
}

int hmmgpu_kernel_symbol(const struct hmmgpu_kernel *k, const char *name, uint64_t *addr)
{
	if (!name) {
		*addr = k->entry;
		return 0;
	}
	for (uint64_t i = 1; i < k->nsyms; i++) {
		const Elf64_Sym *s = &k->syms[i];

		if (s->st_shndx != SHN_UNDEF && s->st_shndx != SHN_ABS &&
		    s->st_name < k->names_len && strcmp(k->names + s->st_name, name) == 0) {
			*addr = s->st_value + k->bias;
			return 0;
		}
	}
	return -ENOENT;
}

int hmmgpu_kernel_text(const struct hmmgpu_kernel *k, uint64_t *start, uint64_t *end)
{
	if (!k->text)
		return -ENOENT;
	*start = k->text;
	*end = k->text_end;
	return 0;
}

/* Functions have a size; labels of assembler have none and reach to the next symbol. */
static const Elf64_Sym *function_at(const struct hmmgpu_kernel *k, uint64_t addr)
{
	const Elf64_Sym *best = NULL;

	for (uint64_t i = 1; i < k->nsyms; i++) {
		const Elf64_Sym *s = &k->syms[i];
		unsigned type = ELF64_ST_TYPE(s->st_info);
		const char *name = s->st_name < k->names_len ? k->names + s->st_name : "";

		if ((type != STT_FUNC && type != STT_NOTYPE) || s->st_shndx == SHN_UNDEF ||
		    s->st_shndx == SHN_ABS || s->st_value > addr)
			continue;
		/* $x and $d mark code and data, .L is the compiler's own. */
		if (!*name || *name == '$' || strncmp(name, ".L", 2) == 0)
			continue;
		if (s->st_size && addr - s->st_value >= s->st_size)
			continue;
		if (!best || s->st_value > best->st_value ||
		    (s->st_value == best->st_value && s->st_size > best->st_size))
			best = s;
	}
	return best;
}

int hmmgpu_kernel_locate(const struct hmmgpu_kernel *k, uint64_t addr,
			 struct hmmgpu_location *at)
{
	struct hmmgpu_location found = { 0 };
	struct line_at line;
	const Elf64_Sym *s;

	if (addr < k->text || addr >= k->text_end)
		return -ENOENT;
	addr -= k->bias;
	s = function_at(k, addr);
	if (s) {
		found.symbol = k->names + s->st_name;
		found.offset = addr - s->st_value;
	}
	if (line_find(&k->lines, addr, k->text - k->bias, k->text_end - k->bias, &line) == 0) {
		found.dir = line.dir;
		found.file = line.name;
		found.line = line.line;
	}
	if (!found.symbol && !found.file)
		return -ENOENT;
	*at = found;
	return 0;
}
