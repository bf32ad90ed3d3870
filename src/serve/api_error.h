// SPDX-License-Identifier: Apache-2.0
// A refusal in the form that OpenAI clients read: an HTTP status and one object {"error":{...}}. It
// holds what went wrong and whether asking again may help; it sends nothing.
#ifndef COPPICE_SERVE_API_ERROR_H
#define COPPICE_SERVE_API_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

// A zeroed one is no error.
struct api_error {
    int status;              // of HTTP; 0: none
    const char *code;        // machine-readable, of static storage; NULL: null
    char param[80];          // the field that is meant, "messages[2].role"; "": null
    char text[512];          // one sentence
    bool repeats;            // the same request will fail again: clients are told not to retry
    int retry_after;         // seconds; 0: not said
    int64_t n_prompt, n_ctx; // both above 0 where a prompt is too long
};

// 400 for a field of the request, with a sentence. Returns false, so that readers can end with it.
bool api_refuse(struct api_error *x, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Any status, without a field.
void api_fail(struct api_error *x, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// The error of a call below as one of a request: ERR_USAGE, ERR_FORMAT, ERR_MISMATCH, ERR_LIMIT and
// ERR_UNSUPPORTED are the request's (400), ERR_MEMORY and ERR_STATE are 503, others 500.
void api_error_of(struct api_error *x, const struct err *e);

// "invalid_request_error", "authentication_error", ... as the status has it.
const char *api_error_type(int status);

// {"error":{"message":..,"type":..,"param":..,"code":..}}
void api_error_write(struct json_writer *w, const struct api_error *x);

#endif
