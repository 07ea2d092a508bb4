// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The device is taken away from its users, and comes back, by what sysfs and the
 * kernel have for that.  Whoever is at it meanwhile gets errors; afterwards each
 * process opens it anew (reopen_gpu).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "op.h"

#define MODULE		"hmm_gpu"
#define MODULE_FILE	"/lib/modules/" MODULE ".ko"
#define PARAMETERS	"/sys/module/" MODULE "/parameters"
#define DRIVER		"/sys/bus/pci/drivers/" MODULE
#define DEVICES		"/sys/bus/pci/devices"
#define RESCAN		"/sys/bus/pci/rescan"

/* In this order numbers of the bench. */
enum away { AWAY_UNBIND, AWAY_RESET, AWAY_REMOVE, AWAY_RELOAD };

#define NAME_SIZE	32

/* The device that the driver has: its name on the bus.  0, or -ENODEV: it has none. */
static int find_gpu(char *name)
{
	DIR *dir = opendir(DRIVER);
	struct dirent *e;

	if (!dir)
		return -errno;
	name[0] = 0;
	while (!name[0] && (e = readdir(dir)))
		/* "0000:01:00.0" */
		if (strchr(e->d_name, ':') && strlen(e->d_name) < NAME_SIZE)
			strcpy(name, e->d_name);
	closedir(dir);
	return name[0] ? 0 : -ENODEV;
}

static int tell(const char *dir, const char *name, const char *file, const char *text)
{
	char path[200];

	if (name)
		snprintf(path, sizeof(path), "%s/%s/%s", dir, name, file);
	else
		snprintf(path, sizeof(path), "%s/%s", dir, file);
	return write_text(path, text);
}

static int unbind_and_bind(const char *name)
{
	int ret = tell(DRIVER, NULL, "unbind", name);

	return ret ? ret : tell(DRIVER, NULL, "bind", name);
}

/* As a hotplug controller does it whose slot is emptied and filled in good order. */
static int remove_and_rescan(const char *name)
{
	char found[NAME_SIZE];
	int ret = tell(DEVICES, name, "remove", "1");

	if (!ret)
		ret = write_text(RESCAN, "1");
	/* It is bound when it is found. */
	return ret ? ret : find_gpu(found);
}

/* "name=value ..." of all that the module can be told, as it is now. */
static void read_parameters(char *text, size_t size)
{
	DIR *dir = opendir(PARAMETERS);
	size_t len = 0;
	struct dirent *e;

	text[0] = 0;
	while (dir && (e = readdir(dir))) {
		char path[300], value[64];
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), PARAMETERS "/%s", e->d_name);
		fd = e->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, value, sizeof(value) - 1);
		close(fd);
		if (n <= 0)
			continue;
		value[n] = 0;
		value[strcspn(value, "\n")] = 0;
		if (len + strlen(e->d_name) + strlen(value) + 3 < size)
			len += snprintf(text + len, size - len, "%s=%s ", e->d_name, value);
	}
	if (dir)
		closedir(dir);
}

/* *@went: whether the module went.  In use it stays, which is no mistake. */
static int reload(uint64_t *went)
{
	char parameters[1024];
	int fd, ret = 0;

	read_parameters(parameters, sizeof(parameters));
	fd = open(MODULE_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (syscall(SYS_delete_module, MODULE, O_NONBLOCK)) {
		ret = errno == EWOULDBLOCK ? 0 : -errno;
	} else {
		*went = 1;
		if (syscall(SYS_finit_module, fd, parameters, 0))
			ret = -errno;
	}
	close(fd);
	return ret;
}

static int op_take_gpu(const struct op_call *call)
{
	char name[NAME_SIZE];
	int ret = find_gpu(name);

	if (ret)
		return ret;
	atomic_fetch_add(&sh->taken, 1);
	switch (call->op->arg) {
	case AWAY_UNBIND:
		return unbind_and_bind(name);
	case AWAY_RESET:
		return tell(DEVICES, name, "reset", "1");
	case AWAY_REMOVE:
		return remove_and_rescan(name);
	case AWAY_RELOAD:
		return reload(&call->result->aux0);
	}
	return -EINVAL;
}

static int op_reopen_gpu(const struct op_call *call)
{
	uint32_t how = call->op->arg;

	/* Of a module that was to be loaded again nobody knows whether it was. */
	return gpu_reopen(how == AWAY_UNBIND || how == AWAY_REMOVE, how == AWAY_RESET,
			  &call->result->aux0);
}

static const struct op_kind device[] = {
	/*
	 * arg = 0: the driver is unbound and bound, 1: the function is reset, 2: removed from the
	 * bus and scanned for, 3: the module is removed and loaded, aux0 = it was
	 */
	{ 92, "take_gpu", op_take_gpu, 0, NULL },
	/*
	 * arg as before: what was opened before that is asked for its answer and closed (after a
	 * reset the contexts alone), and the GPU opened anew; aux0 = what went wrong: 0 opening, 1
	 * the file, 2 the context, 3 closing
	 */
	{ 93, "reopen_gpu", op_reopen_gpu, OP_GPU, NULL },
};
OP_FAMILY(device);
