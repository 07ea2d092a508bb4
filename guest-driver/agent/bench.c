// SPDX-License-Identifier: GPL-2.0-or-later
#include "agent.h"

void serve_bench(const struct message *m)
{
	chan_reply_error(m, "BENCH: no measurement of that name");
}
