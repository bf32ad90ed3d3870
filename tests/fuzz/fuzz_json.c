// SPDX-License-Identifier: Apache-2.0
// JSON text: what the reader accepts, the writer can write, and the reader takes that again, by the
// rules of files and of requests. The same bytes are read as a file of prompts, one JSON value a
// line.
#include "fuzz.h"

#include <string.h>

#include "base/json/json.h"
#include "cli/bench/prompts.h"

void fuzz_setup(void) {
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
    for (size_t i = 0; i < p.n && !rc; i++) {
        const struct bench_prompt *one = &p.prompts[i];
        FUZZ_CHECK(one->group < p.n_groups && one->max_tokens >= 0);
        FUZZ_CHECK(one->text ? strlen(one->text) <= one->len : one->ids && one->n_ids > 0);
    }
    bench_prompts_fini(&p);
    fuzz_file_close(&f);
}

// What is read can be written and read again, and then it is written with the same bytes.
static void write_twice(const struct json *v, const struct json_rules *rules, bool fragile) {
    struct json_writer first = {0}, second = {0};
    struct json *again = NULL;
    struct err e = {0};
    jw_value(&first, v);
    FUZZ_CHECK(fragile || !first.out.failed);
    if (!first.out.failed) {
        int rc = json_parse_with(&again, first.out.data, first.out.len, rules, &e);
        FUZZ_CHECK(rc == 0 || (fragile && rc == ERR_MEMORY));
    }
    if (again) {
        FUZZ_CHECK(json_kind_of(again) == json_kind_of(v) && json_len(again) == json_len(v));
        jw_value(&second, again);
    }
    if (again && !second.out.failed)
        FUZZ_CHECK(first.out.len == second.out.len &&
                   memcmp(first.out.data, second.out.data, first.out.len) == 0);
    json_free(again);
    str_fini(&first.out);
    str_fini(&second.out);
}

// The rules of files and those of requests: what the stricter ones take, the others take too.
void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    static const struct json_rules files = {0},
                                   requests = {.depth = 16,
                                               .values = 1000,
                                               .objects = 100,
                                               .unique_keys = true},
                                   big = {.big_integers = true};
    const struct json_rules *const all[] = {&files, &requests, &big};
    int rc[3];
    read_prompts(data, size, fragile);
    for (int i = 0; i < 3; i++) {
        struct json *v = NULL;
        struct err e = {0};
        rc[i] = json_parse_with(&v, (const char *)data, size, all[i], &e);
        if (i == 0)
            fuzz_result(rc[i], &e, fragile);
        else
            fuzz_sentence(rc[i], &e);
        FUZZ_CHECK(rc[i] == 0 || !v); // the value null is NULL too
        if (rc[i] == 0)
            write_twice(v, all[i], fragile);
        json_free(v);
    }
    FUZZ_CHECK(fragile || rc[1] || rc[0] == 0);
    FUZZ_CHECK(fragile || rc[0] || rc[2] == 0);
}
