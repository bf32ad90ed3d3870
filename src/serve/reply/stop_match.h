// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in text that comes in pieces. What may yet become one is held back, and no
// byte more: the longest beginning of a stop string that the text so far ends in. The first one to
// be completed counts, of those completed by the same byte the longest. Where the pieces end makes
// no difference. Knuth, Morris, Pratt, "Fast pattern matching in strings", 1977, once per string.
#ifndef COPPICE_SERVE_REPLY_STOP_MATCH_H
#define COPPICE_SERVE_REPLY_STOP_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { STOP_MAX_STRINGS = 256, STOP_MAX_BYTES = 65536 }; // of one request, in all

// The strings of a request; read-only while matchers use it. Zeroed is valid: no strings.
struct stop_set {
    int n;
    char *bytes;                // one after the other
    int32_t *fail;              // the same places: length of the border of each beginning
    int32_t *start, *len;       // [n]
    int64_t n_bytes, cap, fcap; // of bytes and fail
    int64_t scap, lcap;         // of start and len
};

// Adds a string of n >= 1 bytes. ERR_LIMIT beyond the bounds above, ERR_MEMORY.
int stop_set_add(struct stop_set *s, const char *text, size_t n, struct err *e);
void stop_set_fini(struct stop_set *s);

struct stop_match {
    const struct stop_set *set; // borrowed
    int32_t *state;             // [n] how much of each string the text ends in
    struct str held;
    int found;    // index of the string, -1 before
    bool ignored; // set by the caller while strings that are completed do not count
    bool keeps;   // set by the caller: the string that was found is kept, what follows it is not
};

// ERR_MEMORY. Zeroed needs no fini.
int stop_match_init(struct stop_match *m, const struct stop_set *s, struct err *e);
void stop_match_fini(struct stop_match *m);

// Appends to out what of the text is decided to be no part of a stop string. True once a string has
// been found: it (unless m->keeps) and what follows it are dropped, now and later. A failed
// allocation shows in m->held.failed or out->failed.
bool stop_match_push(struct stop_match *m, const char *text, size_t n, struct str *out);

// The text ends, or something else comes within it: what was held back is no stop string after
// all, and what follows is looked at as from the beginning.
void stop_match_end(struct stop_match *m, struct str *out);

#endif
