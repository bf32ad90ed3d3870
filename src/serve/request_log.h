// SPDX-License-Identifier: Apache-2.0
// One line for each request, for people or as JSON. A line holds counts and times; text of a
// request only where it was asked for.
#ifndef COPPICE_SERVE_REQUEST_LOG_H
#define COPPICE_SERVE_REQUEST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "serve/answer_json.h"

struct request_record {
    const char *id, *path, *peer;
    int status;        // of HTTP
    const char *end;   // "stop", "length", "cancelled", "error"; NULL: no text was asked for
    const char *error; // sentence; NULL: none
    const char *cache; // why its prompt had to be run (cache_note.h); NULL: nothing to say
    struct answer_totals totals;
    double total_ms;
    const char *prompt; // rendered text; NULL: not wanted
    size_t prompt_len;
};

// Appends the line with its end.
void request_log_line(struct str *out, const struct request_record *r, bool json);

#endif
