// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Drives libhmmgpu's ELF loader for test_loader.py (built with ASan and UBSan).
 *
 *	loader_harness load FILE SYMBOL...	status, then value and first word of each symbol
 *	loader_harness fuzz FILE COUNT SEED	loads COUNT damaged copies; none may crash
 */
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

static int fuzz(const char *path, unsigned count, uint64_t seed)
{
	static const uint64_t nasty[] = {
		0, 1, 7, 0xfff, 0x1000, 0x7fffffff, 0xffffffff, 1ull << 47, ~0ull, ~0ull - 4095, 1ull << 63,
	};
	unsigned loaded = 0;
	size_t size;
	uint8_t *good = slurp(path, &size);

	for (unsigned i = 0; i < count; i++) {
		struct hmmgpu_kernel *k;
		/* Its own allocation, so that ASan sees a read past its end. */
		size_t len = next(&seed) % 4 ? size : next(&seed) % (size + 1);
		uint8_t *bad = malloc(len ? len : 1);
		unsigned flips = 1 + next(&seed) % 4;
		uint64_t addr;

		memcpy(bad, good, len);
		while (flips-- && len > 8) {
			/* Mostly in the headers and tables. */
			size_t at = next(&seed) % (next(&seed) % 2 ? len : (len < 512 ? len : 512));

			if (next(&seed) % 2)
				bad[at] ^= 1 << next(&seed) % 8;
			else if (at / 8 * 8 + 8 <= len)
				memcpy(bad + at / 8 * 8, &nasty[next(&seed) % 11], 8);
		}
		if (hmmgpu_kernel_load(bad, len, &k) == 0) {
			loaded++;
			hmmgpu_kernel_symbol(k, "accesses", &addr);
			hmmgpu_kernel_free(k);
		}
		free(bad);
	}
	free(good);
	printf("%u of %u loaded\n", loaded, count);
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
