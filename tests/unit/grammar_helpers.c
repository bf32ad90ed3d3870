// SPDX-License-Identifier: Apache-2.0
// Vocabulary and walks; see grammar_helpers.h.
#include "grammar_helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { PIECES = 5000, FIRST_PIECE = 259, SIZE = FIRST_PIECE + PIECES };

static char *text;
static size_t text_len;

static void piece_bytes(void *arg, int32_t id, struct str *append) {
    (void)arg;
    if (id < 256) {
        str_putc(append, (char)id);
    } else if (id == 258) {
        for (int i = 0; i < GRAMMAR_TOKEN_BYTES + 1; i++)
            str_putc(append, ' ');
    } else if (id >= FIRST_PIECE && id < FIRST_PIECE + 40) {
        for (int i = FIRST_PIECE; i <= id; i++)
            str_putc(append, i % 7 ? ' ' : '\n');
    } else if (id >= FIRST_PIECE + 40) {
        uint64_t draw = rng_hash(5, (uint64_t)id % 4000, 0, 0);
        size_t n = 2 + (size_t)(draw & 0xFFFF) % (draw >> 63 ? 4 : 14);
        str_append(append, text + (size_t)(draw >> 16) % (text_len - n), n);
    }
}

static bool piece_ends(void *arg, int32_t id) {
    (void)arg;
    return id == 256 || id == SIZE - 1;
}

int make_vocab(void **state) {
    struct grammar_tokens tokens = {.size = SIZE, .bytes = piece_bytes, .ends = piece_ends};
    struct grammar_vocab *v;
    struct err e = {0};
    FILE *f = fopen(SOURCE_ROOT "/docs/server-api.md", "rb");
    assert_non_null(f);
    text = malloc(1 << 16);
    text_len = fread(text, 1, 1 << 16, f);
    fclose(f);
    assert_true(text_len > 1000);
    if (grammar_vocab_create(&v, &tokens, &e))
        fail_msg("%s", e.text);
    *state = v;
    return 0;
}

int drop_vocab(void **state) {
    grammar_vocab_destroy(*state);
    free(text);
    return 0;
}

bool grammar_takes(struct grammar *g, const char *bytes, size_t n) {
    struct grammar_tokens none = {.size = 0};
    struct grammar_vocab *v;
    struct grammar_matcher *m;
    struct grammar_state *end;
    struct err e = {0};
    assert_int_equal(grammar_vocab_create(&v, &none, &e), 0);
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    int rc = grammar_accept_bytes(m, grammar_start(m), bytes, n, &end, &e);
    if (rc < 0)
        fail_msg("%s", e.text);
    bool takes = rc == 1 && grammar_may_end(m, end);
    grammar_matcher_destroy(m);
    grammar_vocab_destroy(v);
    return takes;
}

// Compares a mask with single steps; returns a token that the mask allows, drawn by `draw`, or -1.
static int32_t check_mask(struct grammar_matcher *m, const struct grammar_state *s,
                          const uint32_t *bits, int32_t size, uint64_t draw) {
    struct grammar_state *next;
    struct err e = {0};
    int32_t count = 0, chosen = -1, forced;
    for (int32_t id = 0; id < size; id++) {
        bool allowed = bits[id / 32] >> (id % 32) & 1;
        int rc = grammar_accept(m, s, id, &next, &e);
        if (rc != allowed)
            fail_msg("token %d: the mask says %d, a step %d (%s)", id, allowed, rc, e.text);
        grammar_state_unref(m, next);
        count += allowed;
        if (allowed && rng_hash(draw, (uint64_t)count, 1, 1) % (uint64_t)count == 0)
            chosen = id;
    }
    assert_int_equal(grammar_forced(m, s, &forced, &e), 0);
    assert_int_equal(forced, count == 1 ? chosen : -1);
    return chosen;
}

static void check_walk(struct grammar_matcher *m, const struct grammar_vocab *v, int max,
                       uint64_t seed) {
    int32_t size = grammar_vocab_size(v);
    uint32_t *bits = malloc(((size_t)size + 31) / 32 * sizeof *bits);
    struct grammar_state *s = grammar_start(m), *next;
    struct err e = {0};
    for (int i = 0; i < max; i++) {
        if (grammar_mask(m, s, bits, &e))
            fail_msg("%s", e.text);
        int32_t token = check_mask(m, s, bits, size, rng_hash(seed, (uint64_t)i, 0, 0));
        if (token < 0)
            break;
        assert_int_equal(grammar_accept(m, s, token, &next, &e), 1);
        grammar_state_unref(m, s);
        s = next;
    }
    grammar_state_unref(m, s);
    free(bits);
}

void check_walks(struct grammar *g, const struct grammar_vocab *v, int texts, int max,
                 uint64_t seed) {
    struct grammar_matcher *m;
    struct err e = {0};
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    for (int i = 0; i < texts; i++)
        check_walk(m, v, max, rng_hash(seed, (uint64_t)i, 2, 2));
    grammar_matcher_destroy(m);
    grammar_unref(g);
}
