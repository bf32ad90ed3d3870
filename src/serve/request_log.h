// SPDX-License-Identifier: Apache-2.0
// One line for each request, for people or as JSON. A line holds counts and times; text of a
// request only where it was requested, and a path so that it stays one word of one line.
#ifndef COPPICE_SERVE_REQUEST_LOG_H
#define COPPICE_SERVE_REQUEST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "serve/http/http.h"
#include "serve/reply/answer.h"
#include "serve/request/error.h"

struct request_record {
    const char *id;            // NULL: it has none
    const char *method, *path; // "" where the request was not understood
    const char *peer;
    int status;        // of HTTP
    const char *end;   // "stop", "length", "cancelled", "error"; NULL: no text was requested
    const char *error; // sentence; NULL: none
    const char *cache; // why its prompt had to be run (record.c); NULL: nothing to say
    struct answer_totals totals;
    double total_ms;
    const char *prompt; // rendered text; NULL: not wanted
    size_t prompt_len;
};

// Where lines go. Zeroed: nowhere.
struct request_log {
    void (*write)(void *arg, const char *line, size_t n); // with its end
    void *arg;
    bool json;
};
void request_log_write(const struct request_log *l, const struct request_record *r);
// The same of a request that nothing more is known of.
void request_log_ended(const struct request_log *l, const struct http_ended *r);
// Appends the line with its end.
void request_log_line(struct str *out, const struct request_record *r, bool json);

// The part of a line for a refusal. A sentence about a request's fields (400, 404, ...) may quote
// them, and so words of a prompt: without `words` such a one is told by its field or code.
struct refusal_note {
    char text[128];
};
const char *request_log_refusal(struct refusal_note *n, const struct api_error *why, bool words);

#endif
