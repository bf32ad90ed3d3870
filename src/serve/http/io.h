// SPDX-License-Identifier: Apache-2.0
// Descriptors and a one-shot timer of others in the loop of the HTTP server, so that a client of
// other servers shares its thread and needs no locks. Loop thread only, or before http_run.
#ifndef COPPICE_SERVE_HTTP_IO_H
#define COPPICE_SERVE_HTTP_IO_H

#include "serve/http/http.h"

// One descriptor that is looked at.
struct http_watch;
typedef void http_ready_fn(void *arg, int fd, bool readable, bool writable);

// Begins to look at fd. NULL: no memory. http_watch_end before fd is closed and before
// http_destroy.
struct http_watch *http_watch_begin(struct http *h, int fd, http_ready_fn *fn, void *arg);
// What is looked for from now on, again and again. ERR_MEMORY.
int http_watch_for(struct http_watch *w, bool read, bool write);
void http_watch_end(struct http_watch *w); // NULL is allowed

// A timer that fires once each time it is set.
struct http_alarm;
struct http_alarm *http_alarm_create(struct http *h, void (*fn)(void *), void *arg); // NULL: memory
void http_alarm_set(struct http_alarm *a, int64_t ms); // in so many; < 0: not any more
void http_alarm_destroy(struct http_alarm *a);         // NULL is allowed; before http_destroy

#endif
