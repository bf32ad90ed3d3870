// SPDX-License-Identifier: Apache-2.0
// Pre-tokenisers: the first byte chooses one, the rest is text. The pieces cover the text, and the
// short way for ASCII cuts where the expressions alone cut. A first byte beyond the list makes the
// rest a name to look up.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/split.h"

static const char *const names[] = {
    "qwen2",   "qwen35",    "gpt-2",          "llama-bpe", "smaug-bpe", "glm4",
    "gpt-4o",  "tekken",    "deepseek-v3",    "laguna",    "gemma4",    "deepseek-llm",
    "kimi-k2", "starcoder", "deepseek-coder", "falcon",    "default",   "bailingmoe",
    "youtu",   "minicpm5",  "chameleon",
};
enum { NAMES = sizeof names / sizeof *names, PIECES = 1 << 15 };

static struct split *splits[NAMES];

struct cuts {
    const char *next; // where the next piece must begin
    const char *text;
    size_t count, end[PIECES];
};

void fuzz_setup(void) {
    struct err e = {0};
    for (int i = 0; i < NAMES; i++)
        FUZZ_CHECK(split_create(&splits[i], names[i], strlen(names[i]), &e) == 0);
}

static int note(void *arg, const char *piece, size_t n, struct err *e) {
    struct cuts *c = arg;
    (void)e;
    FUZZ_CHECK(n > 0 && piece == c->next);
    c->next += n;
    FUZZ_CHECK(c->count < PIECES);
    c->end[c->count++] = (size_t)(c->next - c->text);
    return 0;
}

static bool cut(const struct split *s, const char *text, size_t n, bool plain, bool fragile,
                struct cuts *c) {
    struct split_job *j = NULL;
    struct err e = {0};
    *c = (struct cuts){.next = text, .text = text};
    int rc = split_begin(&j, s, &e);
    if (!rc) {
        if (plain)
            split_expressions_only(j);
        rc = split_text(j, text, n, note, c, &e);
        split_end(j);
    }
    fuzz_result(rc, &e, fragile);
    FUZZ_CHECK(rc || c->next == text + n);
    return rc == 0;
}

static void look_up(const char *name, size_t n, bool fragile) {
    struct split *s = NULL;
    struct err e = {0};
    fuzz_result(split_create(&s, name, n, &e), &e, fragile);
    split_destroy(s);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    static struct cuts fast, plain;
    if (!size || size > PIECES)
        return;
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    if (data[0] >= NAMES) {
        look_up(text, n, fragile);
        return;
    }
    const struct split *s = splits[data[0]];
    if (!utf8_valid(text, n) || !cut(s, text, n, false, fragile, &fast) ||
        !cut(s, text, n, true, fragile, &plain))
        return;
    FUZZ_CHECK(fast.count == plain.count);
    FUZZ_CHECK(memcmp(fast.end, plain.end, fast.count * sizeof *fast.end) == 0);
}
