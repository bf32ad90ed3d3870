// SPDX-License-Identifier: Apache-2.0
// Grammars from the command line, for tests that compare them with other programs, and for times.
// Standard input has lines of JSON: {"schema": S, "texts": [...]}, {"regex": ...} or {"gbnf": ...}
// instead of a schema. Modes: check: which texts are accepted; sample N SEED: N random texts; time
// SIZE: what masks take with a vocabulary of that size. One line of JSON for each line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/json.h"
#include "base/rng.h"
#include "vocabulary.h"

enum { STEPS = 300, SOON = 40, SMALL = 3000 };

static int make(struct grammar **g, const struct json *line, struct err *e) {
    size_t n = 0;
    const char *regex = json_str(json_get(line, "regex"), &n);
    if (regex)
        return grammar_from_regex(g, regex, n, NULL, e);
    const char *gbnf = json_str(json_get(line, "gbnf"), &n);
    struct grammar_json how = {.one_of_as_any = json_bool(json_get(line, "any"), false)};
    return gbnf ? grammar_from_gbnf(g, gbnf, n, NULL, e)
                : grammar_from_schema(g, json_get(line, "schema"), &how, NULL, e);
}

static int check(struct grammar_matcher *m, const struct json *texts, struct json_writer *w) {
    struct err e = {0};
    jw_key(w, "accepts");
    jw_begin(w, '[');
    for (size_t i = 0; i < json_len(texts); i++) {
        size_t n;
        const char *text = json_str(json_at(texts, i), &n);
        struct grammar_state *start = grammar_start(m), *end = NULL;
        if (!start || grammar_accept_bytes(m, start, text, n, &end, &e) < 0)
            jw_cstr(w, start ? e.text : "no first state");
        else
            jw_bool(w, end && grammar_may_end(m, end));
        grammar_state_unref(m, end);
        grammar_state_unref(m, start);
    }
    jw_end(w, ']');
    return 0;
}

// A token that a mask allows; what ends something is taken more often the longer it has taken.
static int32_t draw(const uint32_t *bits, int32_t size, uint64_t seed, int step) {
    static const char closing[] = "\"}]";
    int32_t count = 0, chosen = -1;
    if (bits[8] & 1 && rng_hash(seed, 1, 0, 0) % 4 == 0)
        return 256;
    for (int i = 0; i < 3 && rng_hash(seed, 2, 0, 0) % SOON < (uint64_t)step + 6; i++)
        if (bits[closing[i] / 32] >> (closing[i] % 32) & 1)
            return closing[i];
    for (int32_t id = 0; id < size; id++)
        if (bits[id / 32] >> (id % 32) & 1 &&
            rng_hash(seed, 3, (uint64_t)id, 0) % (uint64_t)++count == 0)
            chosen = id;
    return chosen;
}

struct times {
    double *us;
    size_t count, cap;
};

static void keep_time(struct times *t, double us) {
    if (t->count == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->us = realloc(t->us, t->cap * sizeof *t->us);
    }
    if (t->us)
        t->us[t->count++] = us;
}

// A random text; false: it did not end. times: of each mask, may be NULL.
static bool sample(struct grammar_matcher *m, int32_t size, uint64_t seed, struct str *text,
                   struct times *times) {
    struct grammar_state *s = grammar_start(m), *next;
    uint32_t *bits = calloc((size_t)size / 32 + 1, sizeof *bits);
    struct err e = {0};
    bool ended = false;
    for (int step = 0; s && bits && step < STEPS && !ended; step++) {
        double from = clock_ms();
        int rc = grammar_mask(m, s, bits, &e);
        if (times)
            keep_time(times, (clock_ms() - from) * 1e3);
        int32_t token = rc ? -1 : draw(bits, size, rng_hash(seed, (uint64_t)step, 0, 0), step);
        if (token < 0 || grammar_accept(m, s, token, &next, &e) != 1)
            break;
        vocabulary_text(token, text);
        grammar_state_unref(m, s);
        s = next;
        ended = token == 256;
    }
    if (e.code)
        fprintf(stderr, "%s\n", e.text);
    grammar_state_unref(m, s);
    free(bits);
    return ended;
}

static void samples(struct grammar_matcher *m, int32_t size, int n, uint64_t seed,
                    struct json_writer *w) {
    jw_key(w, "texts");
    jw_begin(w, '[');
    for (int i = 0; i < n; i++) {
        struct str text = {0};
        if (sample(m, size, rng_hash(seed, (uint64_t)i, 0, 0), &text, NULL))
            jw_str(w, text.data ? text.data : "", text.len);
        str_fini(&text);
    }
    jw_end(w, ']');
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(struct json_writer *w, struct times *t) {
    static const double places[] = {0.5, 0.9, 0.99, 1};
    static const char *const names[] = {"median_us", "p90_us", "p99_us", "most_us"};
    if (t->count)
        qsort(t->us, t->count, sizeof *t->us, by_size);
    jw_key(w, "masks");
    jw_int(w, (int64_t)t->count);
    for (int i = 0; i < 4 && t->count; i++) {
        jw_key(w, names[i]);
        jw_num(w, (double)(int64_t)(10 * t->us[(size_t)(places[i] * (double)(t->count - 1))]) / 10);
    }
}

struct run {
    const char *mode;
    int n;
    uint64_t seed;
    struct grammar_vocab *v;
    struct times all;
};

static void time_one(struct run *r, struct grammar_matcher *m, struct json_writer *w) {
    struct times here = {0};
    for (int i = 0; i < 4; i++) {
        struct str text = {0};
        sample(m, grammar_vocab_size(r->v), rng_hash(7, (uint64_t)i, 0, 0), &text, &here);
        str_fini(&text);
    }
    for (size_t i = 0; i < here.count; i++)
        keep_time(&r->all, here.us[i]);
    print_times(w, &here);
    free(here.us);
}

static int run_line(struct run *r, const char *line, size_t n) {
    struct json_writer w = {0};
    struct json *doc = NULL;
    struct grammar *g = NULL;
    struct grammar_matcher *m = NULL;
    struct err e = {0};
    jw_begin(&w, '{');
    int rc = json_parse(&doc, line, n, &e);
    double from = clock_ms();
    rc = rc ? rc : make(&g, doc, &e);
    double took = clock_ms() - from;
    rc = rc ? rc : grammar_matcher_create(&m, g, r->v, &e);
    if (rc) {
        jw_key(&w, "error");
        jw_cstr(&w, e.text);
    } else if (strcmp(r->mode, "check") == 0) {
        rc = check(m, json_get(doc, "texts"), &w);
    } else if (strcmp(r->mode, "sample") == 0) {
        samples(m, grammar_vocab_size(r->v), r->n, r->seed, &w);
    } else {
        jw_key(&w, "name");
        jw_value(&w, json_get(doc, "name"));
        jw_key(&w, "compile_ms");
        jw_num(&w, (double)(int64_t)(took * 1e3) / 1e3);
        time_one(r, m, &w);
    }
    jw_end(&w, '}');
    puts(w.out.data);
    fflush(stdout);
    str_fini(&w.out);
    grammar_matcher_destroy(m);
    grammar_unref(g);
    json_free(doc);
    return 0;
}

int main(int argc, char **argv) {
    struct run r = {.mode = argc > 1 ? argv[1] : ""};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bool times = strcmp(r.mode, "time") == 0;
    if (!times && strcmp(r.mode, "check") != 0 && strcmp(r.mode, "sample") != 0) {
        fprintf(stderr, "usage: grammar_tool check | sample N SEED | time SIZE\n");
        return 2;
    }
    r.n = argc > 2 ? atoi(argv[2]) : 1;
    r.seed = argc > 3 ? (uint64_t)atoll(argv[3]) : 1;
    r.v = vocabulary_make(times ? r.n : SMALL);
    if (!r.v)
        return 1;
    while ((n = getline(&line, &cap, stdin)) > 0)
        run_line(&r, line, (size_t)n);
    if (times) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key(&w, "vocabulary");
        jw_int(&w, r.n);
        print_times(&w, &r.all);
        jw_end(&w, '}');
        puts(w.out.data);
        str_fini(&w.out);
    }
    free(r.all.us);
    free(line);
    vocabulary_drop(r.v);
    return 0;
}
