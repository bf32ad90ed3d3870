// SPDX-License-Identifier: Apache-2.0
// The chat templates and conversations of tests/fixtures/templates, and what transformers makes of
// them. Templates whose text is not kept here come from a folder that the user gives.
#ifndef COPPICE_TESTS_UNIT_TEMPLATE_CORPUS_H
#define COPPICE_TESTS_UNIT_TEMPLATE_CORPUS_H

#include "base/json/json.h"
#include "base/str.h"

enum { CORPUS_MAX = 160 };

struct corpus {
    struct json *contexts[CORPUS_MAX], *rows[CORPUS_MAX]; // as the lines of the files
    struct str texts[CORPUS_MAX];                         // templates of the rows
    size_t n_contexts, n_rows;
};

// Loads own.jsonl, and of corpus.jsonl the rows whose template lies in the folder with the same
// hash (NULL: none). Fails the test when a file is wrong.
void corpus_load(struct corpus *c, const char *folder);
void corpus_fini(struct corpus *c);

const char *corpus_name(const struct corpus *c, size_t row);
const char *corpus_context(const struct corpus *c, size_t i);
const struct json *corpus_variables(const struct corpus *c, size_t i);
// What rendering gives: a string; [length, XXH64]; {"raised": text} or {"refused": why}.
const struct json *corpus_result(const struct corpus *c, size_t row, size_t i);

#endif
