// SPDX-License-Identifier: Apache-2.0
// What a program says on standard error while it runs. Once begun, a thread of its own writes: a
// terminal that is held or a pipe without a reader then stops no other thread. The queue is
// bounded; lines beyond it are dropped and counted.
#ifndef COPPICE_CLI_LOG_OUT_H
#define COPPICE_CLI_LOG_OUT_H

#include <stddef.h>

#include "base/err.h"

// ERR_MEMORY. One at a time in a process.
int log_out_begin(struct err *e);
// Waits half a second at most for what has been said to be written.
void log_out_end(void);
// Any thread: whole lines, each with its end. Written at once where it has not begun.
void log_out_bytes(const char *text, size_t n);
void log_out(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
