// SPDX-License-Identifier: Apache-2.0
// Refusals in the form that OpenAI clients read; see api_error.h.
#include "serve/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct api_error *x, const char *fmt, va_list args) {
    char text[sizeof x->text];
    struct err clean;
    vsnprintf(text, sizeof text, fmt, args);
    err_set(&clean, 0, "%s", text); // control characters and broken UTF-8 are made harmless
    snprintf(x->text, sizeof x->text, "%s", clean.text);
}

bool api_refuse(struct api_error *x, const char *param, const char *fmt, ...) {
    va_list args;
    *x = (struct api_error){.status = 400, .repeats = true};
    snprintf(x->param, sizeof x->param, "%s", param ? param : "");
    va_start(args, fmt);
    set_text(x, fmt, args);
    va_end(args);
    return false;
}

void api_fail(struct api_error *x, int status, const char *code, const char *fmt, ...) {
    va_list args;
    *x = (struct api_error){.status = status, .code = code};
    x->repeats = status < 500 && status != 429 && status != 408;
    va_start(args, fmt);
    set_text(x, fmt, args);
    va_end(args);
}

void api_error_of(struct api_error *x, const struct err *e) {
    switch (e->code) {
    case ERR_USAGE:
    case ERR_FORMAT:
    case ERR_MISMATCH:
    case ERR_LIMIT:
    case ERR_UNSUPPORTED:
        api_fail(x, 400, NULL, "%s", e->text);
        break;
    case ERR_MEMORY:
    case ERR_STATE:
        api_fail(x, 503, NULL, "%s", e->text);
        x->retry_after = 1;
        break;
    default:
        api_fail(x, 500, NULL, "%s", e->text);
    }
}

const char *api_error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static void write_text(struct json_writer *w, const char *key, const char *text) {
    jw_key(w, key);
    if (text && text[0])
        jw_cstr(w, text);
    else
        jw_null(w);
}

void api_error_write(struct json_writer *w, const struct api_error *x) {
    jw_begin(w, '{');
    jw_key(w, "error");
    jw_begin(w, '{');
    jw_key_str(w, "message", x->text);
    jw_key_str(w, "type", api_error_type(x->status));
    write_text(w, "param", x->param);
    write_text(w, "code", x->code);
    if (x->n_ctx > 0) {
        jw_key_int(w, "n_prompt_tokens", x->n_prompt);
        jw_key_int(w, "n_ctx", x->n_ctx);
    }
    jw_end(w, '}');
    jw_end(w, '}');
}
