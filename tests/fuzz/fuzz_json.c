// SPDX-License-Identifier: Apache-2.0
// JSON text: what the reader accepts, the writer can write, and the reader takes that again. The
// same bytes are read as a file of prompts, one JSON value a line.
#include "fuzz.h"

#include <string.h>

#include "base/json.h"
#include "cli/bench_prompts.h"

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

static void read_prompts(const uint8_t *data, size_t size, bool fragile) {
    struct bench_prompts p = {0};
    struct fuzz_file f;
    struct err e = {0};
    fuzz_file_open(&f, data, size);
    int rc = bench_prompts_read(&p, f.path, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(rc != ERR_MEMORY || fragile);
    FUZZ_CHECK(rc || (p.n > 0 && p.n_groups > 0));
    for (size_t i = 0; i < p.n && !rc; i++)
        FUZZ_CHECK(p.prompts[i].group < p.n_groups && p.prompts[i].max_tokens >= 0 &&
                   strlen(p.prompts[i].text) <= p.prompts[i].len);
    bench_prompts_fini(&p);
    fuzz_file_close(&f);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct json *v = NULL, *again = NULL;
    struct err e = {0};
    read_prompts(data, size, fragile);
    int rc = json_parse(&v, (const char *)data, size, &e);
    fuzz_result(rc, &e, fragile);
    FUZZ_CHECK(rc == 0 || !v); // the value null is NULL too
    if (rc)
        return;
    struct json_writer w = {0};
    write_value(&w, v);
    FUZZ_CHECK(fragile || !w.out.failed);
    if (!w.out.failed) {
        rc = json_parse(&again, w.out.data, w.out.len, &e);
        FUZZ_CHECK(rc == 0 || (fragile && rc == ERR_MEMORY));
    }
    if (again) {
        // A double may be written without a point and come back as an integer.
        bool numbers = json_kind_of(v) == JSON_DOUBLE || json_kind_of(v) == JSON_INT;
        FUZZ_CHECK(numbers || json_kind_of(again) == json_kind_of(v));
        FUZZ_CHECK(json_len(again) == json_len(v) && json_num(again, 0) == json_num(v, 0));
    }
    json_free(again);
    json_free(v);
    str_fini(&w.out);
}
