// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Drives libhmmgpu's ELF loader for test_loader.py (built with ASan and UBSan).
 *
 *	loader_harness load FILE SYMBOL...	status, then value and first word of each symbol
 *	loader_harness locate FILE ADDR...	symbol, offset, folder, file, line of each address
 *	loader_harness report FILE STATUS ADDR	the text about a job that ended there
 *	loader_harness fuzz FILE COUNT SEED	loads COUNT damaged copies; none may crash
 *
 * ADDR is a number, as loaded, or SYMBOL+NUMBER.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hmmgpu.h"

static uint8_t *slurp(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *buf = malloc(1 << 20);

	*size = f && buf ? fread(buf, 1, 1 << 20, f) : 0;
	if (f)
		fclose(f);
	return buf;
}

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static uint64_t address(struct hmmgpu_kernel *k, char *word)
{
	char *plus = strchr(word, '+');
	uint64_t addr = 0;

	if (!plus)
		return strtoull(word, NULL, 0);
	*plus = 0;
	if (hmmgpu_kernel_symbol(k, word, &addr))
		exit(2);
	return addr + strtoull(plus + 1, NULL, 0);
}

static void locate(struct hmmgpu_kernel *k, uint64_t addr)
{
	struct hmmgpu_location at;
	int ret = hmmgpu_kernel_locate(k, addr, &at);

	if (ret)
		printf("%d\n", ret);
	else
		printf("%s|%llu|%s|%s|%u\n", at.symbol ? at.symbol : "", (unsigned long long)at.offset,
		       at.dir ? at.dir : "", at.file ? at.file : "", at.line);
}

/* Where the tables for debuggers are in a sound file: [*lo, *hi), empty if there are none. */
static void debug_range(const uint8_t *elf, size_t *lo, size_t *hi)
{
	const Elf64_Ehdr *eh = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *sh = (const Elf64_Shdr *)(elf + eh->e_shoff);
	const char *names = (const char *)elf + sh[eh->e_shstrndx].sh_offset;

	*lo = *hi = 0;
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		if (strcmp(names + sh[i].sh_name, ".debug_line") == 0) {
			*lo = sh[i].sh_offset;
			*hi = *lo + sh[i].sh_size;
		}
	}
}

static int fuzz(const char *path, unsigned count, uint64_t seed)
{
	static const uint64_t nasty[] = {
		0, 1, 7, 0xfff, 0x1000, 0x7fffffff, 0xffffffff, 1ull << 47, ~0ull, ~0ull - 4095, 1ull << 63,
	};
	unsigned loaded = 0;
	unsigned long long located = 0;
	size_t size, lo, hi;
	uint8_t *good = slurp(path, &size);

	debug_range(good, &lo, &hi);
	for (unsigned i = 0; i < count; i++) {
		struct hmmgpu_kernel *k;
		/* Its own allocation, so that ASan sees a read past its end. */
		size_t len = next(&seed) % 4 ? size : next(&seed) % (size + 1);
		uint8_t *bad = malloc(len ? len : 1);
		unsigned flips = 1 + next(&seed) % 4;
		uint64_t addr, end;
		/* Half of them only in the line tables: those do not keep it from being loaded. */
		int lines = lo < hi && len == size && next(&seed) % 2;

		memcpy(bad, good, len);
		while (flips-- && len > 8) {
			/* Mostly in the headers and tables. */
			size_t at = next(&seed) % (next(&seed) % 2 ? len : (len < 512 ? len : 512));

			if (lines)
				at = lo + next(&seed) % (next(&seed) % 2 ? hi - lo : 48);
			if (next(&seed) % 2)
				bad[at] ^= 1 << next(&seed) % 8;
			else if (at / 8 * 8 + 8 <= len)
				memcpy(bad + at / 8 * 8, &nasty[next(&seed) % 11], 8);
		}
		if (hmmgpu_kernel_load(bad, len, &k) == 0) {
			loaded++;
			hmmgpu_kernel_symbol(k, "accesses", &addr);
			if (hmmgpu_kernel_text(k, &addr, &end) == 0) {
				/* Here and there in them, where there may be code. */
				for (unsigned n = 0; n < 32; n++) {
					struct hmmgpu_location at;
					size_t size = end - addr < 4096 ? end - addr : 4096;

					if (hmmgpu_kernel_locate(k, addr + next(&seed) % size, &at))
						continue;
					located += at.file ? strlen(at.file) + at.line : 0;
					located += at.dir ? strlen(at.dir) : 0;
				}
			}
			hmmgpu_kernel_free(k);
		}
		free(bad);
	}
	free(good);
	printf("%u of %u loaded, %llu\n", loaded, count, located);
	return 0;
}

int main(int argc, char **argv)
{
	struct hmmgpu_kernel *k;
	int ret;

	if (argc == 5 && strcmp(argv[1], "fuzz") == 0)
		return fuzz(argv[2], strtoul(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	if (argc < 3)
		return 2;
	ret = hmmgpu_kernel_load_file(argv[2], &k);
	if (ret == 0 && strcmp(argv[1], "locate") == 0) {
		for (int i = 3; i < argc; i++)
			locate(k, address(k, argv[i]));
		hmmgpu_kernel_free(k);
		return 0;
	}
	if (ret == 0 && argc == 5 && strcmp(argv[1], "report") == 0) {
		struct hmmgpu_result r = {
			.error = -1, .status = strtoul(argv[3], NULL, 0), .reason = 1, .block = 2,
			.thread = 17, .pc = address(k, argv[4]),
		};
		char text[300];

		puts(hmmgpu_result_report(&r, k, text, sizeof(text)));
		/* Cut where there is no room, never beyond it. */
		for (size_t n = 1; n < strlen(text) + 2; n++) {
			char *small = malloc(n);

			hmmgpu_result_report(&r, k, small, n);
			if (strlen(small) != (n - 1 < strlen(text) ? n - 1 : strlen(text)) ||
			    memcmp(small, text, strlen(small)))
				return 3;
			free(small);
		}
		hmmgpu_kernel_free(k);
		return 0;
	}
	printf("%d\n", ret);
	for (int i = 3; ret == 0 && i < argc; i++) {
		uint64_t addr, word;

		ret = hmmgpu_kernel_symbol(k, argv[i], &addr);
		if (ret == 0) {
			memcpy(&word, (void *)(uintptr_t)addr, 8);
			printf("%s %llx %llx\n", argv[i], (unsigned long long)addr,
			       (unsigned long long)word);
		} else {
			printf("%s error %d\n", argv[i], ret);
			ret = 0;
		}
	}
	if (ret == 0)
		hmmgpu_kernel_free(k);
	return 0;
}
