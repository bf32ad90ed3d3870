// SPDX-License-Identifier: Apache-2.0
// JSON text: what the reader accepts, the writer can write, and the reader takes that again.
#include "fuzz.h"

#include "base/json.h"

void fuzz_setup(void) {
}

static void write_value(struct json_writer *w, const struct json *v);

static int write_member(void *arg, const char *key, size_t len, const struct json *v) {
    (void)len;
    jw_key(arg, key);
    write_value(arg, v);
    return 0;
}

static void write_array(struct json_writer *w, const struct json *v) {
    jw_begin(w, '[');
    for (size_t i = 0; i < json_len(v); i++)
        write_value(w, json_at(v, i));
    jw_end(w, ']');
}

static void write_value(struct json_writer *w, const struct json *v) {
    size_t len;
    const char *s = json_str(v, &len);
    switch (json_kind_of(v)) {
    case JSON_NULL:
        jw_null(w);
        break;
    case JSON_BOOL:
        jw_bool(w, json_bool(v, false));
        break;
    case JSON_INT:
        if (json_int(v, -1) == json_int(v, -2))
            jw_int(w, json_int(v, -1));
        else // beyond int64_t
            jw_num(w, json_num(v, 0));
        break;
    case JSON_DOUBLE:
        jw_num(w, json_num(v, 0));
        break;
    case JSON_STRING:
        jw_str(w, s, len);
        break;
    case JSON_ARRAY:
        write_array(w, v);
        break;
    case JSON_OBJECT:
        jw_begin(w, '{');
        json_each(v, write_member, w);
        jw_end(w, '}');
        break;
    }
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct json *v = NULL, *again = NULL;
    struct err e = {0};
    if (json_parse(&v, (const char *)data, size, &e)) {
        FUZZ_CHECK(!v && e.text[0]);
        return;
    }
    struct json_writer w = {0};
    write_value(&w, v);
    FUZZ_CHECK(fragile || !w.out.failed);
    if (!w.out.failed) {
        FUZZ_CHECK(json_parse(&again, w.out.data, w.out.len, &e) == 0);
        // A double may be written without a point and come back as an integer.
        bool numbers = json_kind_of(v) == JSON_DOUBLE || json_kind_of(v) == JSON_INT;
        FUZZ_CHECK(numbers || json_kind_of(again) == json_kind_of(v));
        FUZZ_CHECK(json_len(again) == json_len(v) && json_num(again, 0) == json_num(v, 0));
    }
    json_free(again);
    json_free(v);
    str_fini(&w.out);
}
