// SPDX-License-Identifier: Apache-2.0
// See words_scorer.h.
#include "words_scorer.h"

#include "formats/gguf/gguf.h"
#include "test.h"

static int score_words(struct scorer *s, const struct score_call *c, struct err *e) {
    struct words_scorer *w = (struct words_scorer *)s;
    w->calls++;
    if (w->fails)
        return err_set(e, ERR_DEVICE, "the scorer's device has failed");
    for (int64_t i = 0; i < c->n; i++) {
        int asked = 0, count = 0;
        for (int64_t k = c->query; k < c->n; k++)
            asked += c->ids[k] == c->ids[i];
        for (int64_t k = 0; asked && k < c->query; k++)
            count += c->ids[k] == c->ids[i];
        c->out[i] = asked && count <= 2 ? 1 : 0.001f;
    }
    return 0;
}

static void close_words(struct scorer *s) {
    (void)s;
}

struct words_scorer words_scorer(void) {
    static const struct scorer_kind kind = {.score = score_words, .destroy = close_words};
    return (struct words_scorer){.base = {&kind}};
}

struct tokenizer *words_tokenizer(const char *path) {
    struct gguf *file;
    struct tokenizer *t;
    assert_int_equal(gguf_open(&file, path, NULL), 0);
    assert_int_equal(tokenizer_create(&t, file, NULL), 0);
    gguf_close(file);
    return t;
}
