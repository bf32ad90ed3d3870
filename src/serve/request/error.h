// SPDX-License-Identifier: Apache-2.0
// A refusal, and its JSON in the forms that clients of the interfaces read: an HTTP status and one
// object. It holds what went wrong and whether sending it again may help; it sends nothing.
#ifndef COPPICE_SERVE_REQUEST_ERROR_H
#define COPPICE_SERVE_REQUEST_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"

// A zeroed one is no error.
struct api_error {
    int status;          // of HTTP; 0: none
    const char *code;    // machine-readable, of static storage; NULL: null
    char param[80];      // the field that is meant, "messages[2].role"; "": null
    char text[512];      // one sentence
    bool repeats;        // the same request will fail again: clients must not retry
    const char *details; // error_code of details in Anthropic's form, of static storage; or NULL
    int retry_after;     // seconds; 0: not said
    int64_t n_prompt, n_ctx; // both above 0 where a prompt is too long
    char lost_call[68];      // the id of a result without its call; "": that is not what is wrong
};

// 400 for a field of the request, with a sentence. Returns false, so that readers can end with it.
bool api_refuse(struct api_error *x, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// 400 for a value of another kind than is wanted: "PARAM.member is a number and must be a string".
// NULL: it is missing.
bool api_refuse_kind(struct api_error *x, const char *param, const char *member,
                     const struct json *v, const char *wanted);
// The same unless it is absent, null or of that kind.
bool api_may_be(struct api_error *x, const char *param, const struct json *v, enum json_kind kind,
                const char *wanted);

// Any status, without a field.
void api_fail(struct api_error *x, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// 503: no memory to read the request. Returns false.
bool api_no_memory(struct api_error *x);
// 429: a queue took no more, as e says; to be sent again in a second. Returns false.
bool api_refuse_full(struct api_error *x, const struct err *e);

// The error of a call below as one of a request: ERR_USAGE, ERR_FORMAT, ERR_MISMATCH, ERR_LIMIT and
// ERR_UNSUPPORTED are the request's (400), ERR_MEMORY and ERR_STATE are 503, others 500.
void api_error_of(struct api_error *x, const struct err *e);

enum api_error_format {
    API_OPENAI,    // {"error":{"message":..,"type":..,"param":..,"code":..}}
    API_ANTHROPIC, // {"type":"error","error":{"type":..,"message":..},"request_id":..}
};
// The form that clients of this path read.
enum api_error_format api_error_format_of(const char *path);

// The HTTP status in this form: a full queue has one of its own at Anthropic.
int api_error_status(const struct api_error *x, enum api_error_format format);
// "invalid_request_error", "authentication_error", ... as the status has it.
const char *api_error_type(int status, enum api_error_format format);
// id: of the request, in Anthropic's form; NULL: null.
void api_error_write(struct json_writer *w, const struct api_error *x, enum api_error_format format,
                     const char *id);

#endif
