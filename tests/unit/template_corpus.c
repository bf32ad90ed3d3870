// SPDX-License-Identifier: Apache-2.0
// See template_corpus.h.
#include "template_corpus.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "test.h"

#define FOLDER TEST_DATA "/fixtures/templates"

static size_t load_lines(const char *path, struct json **out, size_t n) {
    const struct json_rules rules = {.big_integers = true};
    struct str text = {0};
    struct err e = {0};
    if (file_read(&text, path, 16 << 20, &e))
        fail_msg("%s", e.text);
    for (char *line = text.data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        assert_true(n < CORPUS_MAX);
        if (json_parse_with(&out[n++], line, (size_t)(end - line), &rules, &e))
            fail_msg("%s: %s", path, e.text);
    }
    str_fini(&text);
    return n;
}

// The template of a row; false when there is none with its hash.
static bool load_template(struct corpus *c, size_t row, const char *folder) {
    char path[1024], hash[17];
    struct str *text = &c->texts[row];
    snprintf(path, sizeof path, "%s/%s", folder, corpus_name(c, row));
    if (file_read(text, path, 1 << 20, NULL) || !text->data)
        return false;
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)hash_bytes(text->data, text->len, 0));
    return strcmp(hash, json_str(json_get(c->rows[row], "xxh64"), NULL)) == 0;
}

static void keep_loaded(struct corpus *c, size_t first, const char *folder, bool all) {
    size_t kept = first;
    for (size_t i = first; i < c->n_rows; i++) {
        bool loaded = load_template(c, i, folder);
        assert_true(loaded || !all);
        if (!loaded) {
            json_free(c->rows[i]);
            str_fini(&c->texts[i]);
            continue;
        }
        struct json *row = c->rows[i];
        struct str text = c->texts[i];
        c->texts[i] = (struct str){0};
        c->rows[kept] = row;
        c->texts[kept++] = text;
    }
    c->n_rows = kept;
}

void corpus_load(struct corpus *c, const char *folder) {
    *c = (struct corpus){0};
    c->n_contexts = load_lines(FOLDER "/contexts.jsonl", c->contexts, 0);
    c->n_rows = load_lines(FOLDER "/own.jsonl", c->rows, 0);
    keep_loaded(c, 0, FOLDER, true);
    size_t own = c->n_rows;
    if (!folder)
        return;
    c->n_rows = load_lines(FOLDER "/corpus.jsonl", c->rows, own);
    keep_loaded(c, own, folder, false);
}

void corpus_fini(struct corpus *c) {
    for (size_t i = 0; i < c->n_contexts; i++)
        json_free(c->contexts[i]);
    for (size_t i = 0; i < c->n_rows; i++) {
        json_free(c->rows[i]);
        str_fini(&c->texts[i]);
    }
}

const char *corpus_name(const struct corpus *c, size_t row) {
    return json_str(json_get(c->rows[row], "template"), NULL);
}

const char *corpus_context(const struct corpus *c, size_t i) {
    return json_str(json_get(c->contexts[i], "name"), NULL);
}

const struct json *corpus_variables(const struct corpus *c, size_t i) {
    return json_get(c->contexts[i], "variables");
}

const struct json *corpus_result(const struct corpus *c, size_t row, size_t i) {
    return json_at(json_get(c->rows[row], "results"), i);
}
