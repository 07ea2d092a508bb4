// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory that needs C to come by: another process's, and a library's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hmm_host.h"

struct args {
	uint32_t *x;
	uint64_t n;
};

/* A second process adds 1 to every element of what it shares with this one.  0: it did. */
HMM_HOST(in_second_process, struct args)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		for (uint64_t i = 0; i < args->n; i++)
			args->x[i]++;
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

/* A buffer of the C library's: what was "printed" into memory.  0 if there is none. */
HMM_HOST(library_buffer, struct args)
{
	char *buffer = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&buffer, &size);

	if (!stream)
		return 0;
	fwrite(args->x, sizeof(*args->x), args->n, stream);
	/* Not closed: the buffer is still the stream's. */
	fflush(stream);
	return (int64_t)(intptr_t)buffer;
}
