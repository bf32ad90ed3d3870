// SPDX-License-Identifier: Apache-2.0
// The writer of json.h: every call appends to a string. It needs no library, so that builds without
// the reader have it too. Values that were read are written by walking them, as deep as the reader
// has let them be.
#include "base/json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

// Before a value or key: the comma that separates it from the one before.
static void write_comma(struct json_writer *w) {
    if (w->comma)
        str_putc(&w->out, ',');
    w->comma = true;
}

void jw_begin(struct json_writer *w, char open) {
    write_comma(w);
    str_putc(&w->out, open);
    w->comma = false;
}

void jw_end(struct json_writer *w, char close) {
    str_putc(&w->out, close);
    w->comma = true;
}

// One code point of valid UTF-8 inside quotes.
static void write_escaped(struct str *out, const char *s, size_t len) {
    static const char *const names[32] = {
        ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t"};
    unsigned char c = (unsigned char)s[0];
    if (c == '"' || c == '\\')
        str_printf(out, "\\%c", c);
    else if (c >= 32)
        str_append(out, s, len);
    else if (names[c])
        str_puts(out, names[c]);
    else
        str_printf(out, "\\u%04x", c);
}

static void write_string(struct str *out, const char *s, size_t n) {
    str_putc(out, '"');
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &code);
        if (len > 0) {
            write_escaped(out, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            str_puts(out, "\xEF\xBF\xBD");
            i += len ? (size_t)-len : n - i;
        }
    }
    str_putc(out, '"');
}

void jw_key(struct json_writer *w, const char *key) {
    write_comma(w);
    write_string(&w->out, key, strlen(key));
    str_putc(&w->out, ':');
    w->comma = false;
}

void jw_str(struct json_writer *w, const char *s, size_t n) {
    write_comma(w);
    write_string(&w->out, s, n);
}

void jw_cstr(struct json_writer *w, const char *s) {
    jw_str(w, s, strlen(s));
}

void jw_int(struct json_writer *w, int64_t v) {
    write_comma(w);
    str_printf(&w->out, "%lld", (long long)v);
}

void jw_num(struct json_writer *w, double v) {
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    write_comma(w);
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    str_puts(&w->out, text);
}

void jw_bool(struct json_writer *w, bool v) {
    write_comma(w);
    str_puts(&w->out, v ? "true" : "false");
}

void jw_null(struct json_writer *w) {
    write_comma(w);
    str_puts(&w->out, "null");
}

void jw_key_str(struct json_writer *w, const char *key, const char *s) {
    jw_key(w, key);
    jw_cstr(w, s);
}

void jw_key_int(struct json_writer *w, const char *key, int64_t v) {
    jw_key(w, key);
    jw_int(w, v);
}

void jw_key_num(struct json_writer *w, const char *key, double v) {
    jw_key(w, key);
    jw_num(w, v);
}

void jw_key_bool(struct json_writer *w, const char *key, bool v) {
    jw_key(w, key);
    jw_bool(w, v);
}

void jw_key_begin(struct json_writer *w, const char *key, char open) {
    jw_key(w, key);
    jw_begin(w, open);
}

void jw_key_null(struct json_writer *w, const char *key) {
    jw_key(w, key);
    jw_null(w);
}

void jw_key_text(struct json_writer *w, const char *key, const char *s, size_t n) {
    jw_key(w, key);
    jw_str(w, s, n);
}

void jw_key_value(struct json_writer *w, const char *key, const struct json *v) {
    jw_key(w, key);
    jw_value(w, v);
}

int jw_member(void *w, const char *key, size_t len, const struct json *v) {
    (void)len;
    jw_key_value(w, key, v);
    return 0;
}

static void write_items(struct json_writer *w, const struct json *v) {
    jw_begin(w, '[');
    for (size_t i = 0; i < json_len(v); i++)
        jw_value(w, json_at(v, i));
    jw_end(w, ']');
}

static void write_number(struct json_writer *w, const char *text) {
    write_comma(w);
    if (text)
        str_puts(&w->out, text);
    else
        w->out.failed = true;
}

void jw_value(struct json_writer *w, const struct json *v) {
    size_t len = 0;
    const char *s = json_str(v, &len);
    switch (json_kind_of(v)) {
    case JSON_NULL:
        jw_null(w);
        break;
    case JSON_BOOL:
        jw_bool(w, json_bool(v, false));
        break;
    case JSON_INT:
    case JSON_DOUBLE:
        write_number(w, json_number_text(v));
        break;
    case JSON_STRING:
        jw_str(w, s, len);
        break;
    case JSON_ARRAY:
        write_items(w, v);
        break;
    case JSON_OBJECT:
        jw_begin(w, '{');
        json_each(v, jw_member, w);
        jw_end(w, '}');
        break;
    }
}
