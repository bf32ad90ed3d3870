// SPDX-License-Identifier: Apache-2.0
// The writer of json.h: every call appends to a string, or to the document of a builder. It needs
// no library, so that builds without the reader have it too. Values that were read are written by
// walking them, as deep as the reader has let them be.
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
    if (w->builder) {
        json_build(w->builder, open == '[' ? JSON_ARRAY : JSON_OBJECT, NULL, 0);
        return;
    }
    write_comma(w);
    str_putc(&w->out, open);
    w->comma = false;
}

void jw_end(struct json_writer *w, char close) {
    if (w->builder) {
        w->builder->n -= !w->builder->failed;
        return;
    }
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
    if (w->builder) {
        w->builder->key = key;
        return;
    }
    write_comma(w);
    write_string(&w->out, key, strlen(key));
    str_putc(&w->out, ':');
    w->comma = false;
}

// A value that is no array and no object, by its text.
static void write_plain(struct json_writer *w, const char *text) {
    if (w->builder) {
        json_build(w->builder, JSON_NULL, text, strlen(text));
        return;
    }
    write_comma(w);
    str_puts(&w->out, text);
}

void jw_str(struct json_writer *w, const char *s, size_t n) {
    struct str text = {0};
    if (!w->builder) {
        write_comma(w);
        write_string(&w->out, s, n);
    } else if (!n || utf8_valid(s, n)) {
        json_build(w->builder, JSON_STRING, s, n);
    } else {
        write_string(&text, s, n);
        w->builder->failed |= text.failed;
        json_build(w->builder, JSON_NULL, text.data, text.len);
        str_fini(&text);
    }
}

void jw_cstr(struct json_writer *w, const char *s) {
    jw_str(w, s, strlen(s));
}

void jw_int(struct json_writer *w, int64_t v) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    write_plain(w, text);
}

void jw_num(struct json_writer *w, double v) {
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    write_plain(w, text);
}

void jw_bool(struct json_writer *w, bool v) {
    write_plain(w, v ? "true" : "false");
}

void jw_null(struct json_writer *w) {
    write_plain(w, "null");
}

void jw_key_str(struct json_writer *w, const char *key, const char *s) {
    jw_key(w, key);
    if (s)
        jw_cstr(w, s);
    else
        jw_null(w);
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

const char *json_kind_name(const struct json *v) {
    switch (json_kind_of(v)) {
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return "a boolean";
    case JSON_INT:
    case JSON_DOUBLE:
        return "a number";
    case JSON_STRING:
        return "a string";
    case JSON_ARRAY:
        return "an array";
    case JSON_OBJECT:
        return "an object";
    }
    return "nothing known";
}

void jw_value(struct json_writer *w, const struct json *v) {
    size_t len = 0;
    const char *s = json_str(v, &len);
    if (w->builder) {
        json_build_shared(w->builder, v);
        return;
    }
    switch (json_kind_of(v)) {
    case JSON_NULL:
        jw_null(w);
        break;
    case JSON_BOOL:
        jw_bool(w, json_bool(v, false));
        break;
    case JSON_INT:
    case JSON_DOUBLE:
        s = json_number_text(v);
        w->out.failed |= !s;
        write_plain(w, s ? s : "0");
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
