// SPDX-License-Identifier: Apache-2.0
// Errors as values. A fallible function returns 0 or a negative code below and
// fills the caller's `struct err` with one sentence: what failed, where, and what to do.
#ifndef COPPICE_BASE_ERR_H
#define COPPICE_BASE_ERR_H

enum err_code {
    ERR_NONE = 0,
    ERR_USAGE = -1,       // the caller's arguments or options make no sense
    ERR_IO = -2,          // the system refused a file operation
    ERR_FORMAT = -3,      // a file or text breaks its format
    ERR_UNSUPPORTED = -4, // well formed, but nothing here can handle it
    ERR_MISMATCH = -5,    // two well-formed things do not fit together
    ERR_MEMORY = -6,      // an allocation failed or a limit would be passed
    ERR_LIMIT = -7,       // context, batch or another stated bound is full
    ERR_STATE = -8,       // the object cannot do this now
    ERR_DEVICE = -9,      // a GPU is missing, unusable or has failed
    ERR_CANCELLED = -10,  // the result is not needed any more (cancel.h)
    ERR_UNFINISHED = -11, // the steps that it may take were used up; the same call goes on
};

struct err {
    int code; // enum err_code
    char text[512];
};

// Stores code and the formatted sentence in e (e may be NULL) and returns code. Control characters
// and what is no UTF-8 become '?', so that the sentence is one line whatever it quotes.
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// Puts "prefix: " before the sentence already in e, unless it begins so, and returns its code.
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
