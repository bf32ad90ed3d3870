// SPDX-License-Identifier: Apache-2.0
// One file from an HTTP server, in order, over several connections: ranges are fetched side by side
// and handed on from the front, so that what has come is always a beginning of the file and a later
// run goes on behind it. Cut connections, refusals that pass (429, 5xx) and addresses that expire
// are tried again; a server without ranges is read over one connection.
#ifndef COPPICE_CLI_HUB_TRANSFER_H
#define COPPICE_CLI_HUB_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct transfer; // connections, which stay open between files

struct transfer_job {
    const char *url;
    const char *token; // sent to the host of url only; NULL: none
    const char *etag;  // what the server must call the file where it names it; NULL: anything
    int64_t size;      // of the whole file; -1: not known, then it is fetched at once
    int64_t have;      // bytes that the sink has; counts on
    int64_t until;     // fetch as far as this; with size -1 at most this much
    // Takes the next bytes. Its error ends the transfer. reset: begin again (size -1 only).
    int (*sink)(void *arg, const void *bytes, size_t n, struct err *e);
    void (*reset)(void *arg);
    void (*progress)(void *arg, int64_t have); // many times a second; may be NULL
    void *arg;
    long status;   // of the answer that ended it: 401, 403, 404, ...; 0: no answer
    char code[64]; // its X-Error-Code
};

// ERR_UNSUPPORTED: built without libcurl, or it cannot be loaded. ERR_MEMORY.
int transfer_open(struct transfer **out, struct err *e);
void transfer_close(struct transfer *t); // NULL is allowed
// ERR_CANCELLED after ctrl-C; ERR_IO, ERR_FORMAT, ERR_MISMATCH with a sentence.
int transfer_run(struct transfer *t, struct transfer_job *job, struct err *e);

#endif
