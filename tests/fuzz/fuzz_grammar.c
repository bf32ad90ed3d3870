// SPDX-License-Identifier: Apache-2.0
// Grammars of strangers: the first byte chooses regular expression, GBNF or JSON Schema, the second
// the walk, the rest is the text. What is compiled is walked at random: a mask allows exactly the
// tokens that a step accepts, forced tokens are those that are alone in a mask, and a state from
// which nothing may follow may end. Compiling keeps to the steps that the text's size allows, and
// what is compiled never meets a limit later.
#include "fuzz.h"

#include <string.h>

#include "base/json/json.h"
#include "base/rng.h"
#include "grammar/grammar.h"

enum { STEPS = 12, END = 256, FIRST = 257, WORDS = 48, SIZE = FIRST + WORDS };

static struct grammar_vocab *vocab;
static const char *const words[WORDS] = {
    "{\"",      "\": ",         "\", \"",       "\"}",      "\"]",
    "[[",       "]]",           "},",           "true",     "null",
    "false",    "name",         "abc",          "ab",       "aa",
    "bb",       "aaaaaaaaaaaa", "ba",           "12",       "345",
    "0.5",      "-1",           "e+",           "\\n",      "\\u00",
    "\\\"",     "\\\\",         "\n\n",         "\n    ",   "  ",
    "        ", "\xC3\xA4",     "\xE4\xB8\xAD", "\xE4\xB8", "\xF0\x9F\x98\x80",
    "\xF0\x9F", "\x98\x80",     "x\xC3",        "ab\"",     "a\",",
    "foo",      "foobar",       "()",           "((",       "))",
    "a",        "2026-",        "[a-z]"};

static void word_bytes(void *arg, int32_t id, struct str *append) {
    (void)arg;
    if (id < END)
        str_putc(append, (char)id);
    else if (id >= FIRST)
        str_puts(append, words[id - FIRST]);
}

static bool word_ends(void *arg, int32_t id) {
    (void)arg;
    return id == END;
}

void fuzz_setup(void) {
    struct grammar_tokens tokens = {.size = SIZE, .bytes = word_bytes, .ends = word_ends};
    struct err e;
    FUZZ_CHECK(grammar_vocab_create(&vocab, &tokens, &e) == 0);
}

static bool cannot(int rc, const struct err *e, bool fragile) {
    if (rc >= 0)
        return false;
    fuzz_sentence(rc, e);
    FUZZ_CHECK(fragile && rc == ERR_MEMORY);
    return true;
}

// A token that a mask allows, after all of it was compared with steps; -1: none, -2: give up.
static int32_t check_mask(struct grammar_matcher *m, const struct grammar_state *s, uint64_t draw,
                          bool fragile) {
    uint32_t bits[(SIZE + 31) / 32];
    struct grammar_state *next;
    struct err e = {0};
    int32_t count = 0, chosen = -1, forced;
    if (cannot(grammar_mask(m, s, bits, &e), &e, fragile))
        return -2;
    for (int32_t id = 0; id < SIZE; id++) {
        bool allowed = bits[id / 32] >> (id % 32) & 1;
        int rc = grammar_accept(m, s, id, &next, &e);
        if (cannot(rc, &e, fragile))
            return -2;
        FUZZ_CHECK(rc == allowed);
        grammar_state_unref(m, next);
        count += allowed;
        if (allowed && rng_hash(draw, (uint64_t)count, 0, 0) % (uint64_t)count == 0)
            chosen = id;
    }
    if (cannot(grammar_forced(m, s, &forced, &e), &e, fragile))
        return -2;
    FUZZ_CHECK(forced == (count == 1 ? chosen : -1));
    return chosen;
}

static void walk(struct grammar_matcher *m, uint64_t seed, bool fragile) {
    struct grammar_state *s = grammar_start(m), *next;
    struct str forced = {0};
    struct err e = {0};
    for (uint64_t i = 0; s && i < STEPS; i++) {
        int32_t token = check_mask(m, s, rng_hash(seed, i, 1, 1), fragile);
        if (token < 0) { // all bytes are tokens, so nothing that could go on is without one
            FUZZ_CHECK(token == -2 || i > 0 || fragile);
            break;
        }
        if (cannot(grammar_accept(m, s, token, &next, &e), &e, fragile))
            break;
        FUZZ_CHECK(next != NULL);
        grammar_state_unref(m, s);
        s = next;
        cannot(grammar_forced_bytes(m, s, 40, &forced, &e), &e, fragile);
    }
    grammar_state_unref(m, s);
    str_fini(&forced);
}

static int compile(struct grammar **g, int kind, const char *text, size_t n,
                   struct grammar_work *work, struct err *e) {
    struct json_rules rules = {.depth = 64, .values = 20000, .objects = 5000};
    struct json *doc = NULL;
    *g = NULL;
    if (kind < 2)
        return kind ? grammar_from_gbnf(g, text, n, work, e)
                    : grammar_from_regex(g, text, n, work, e);
    int rc = json_parse_with(&doc, text, n, &rules, e);
    struct grammar_json how = {.space = kind == 3 ? GRAMMAR_SPACE_COMPACT : GRAMMAR_SPACE_FREE,
                               .one_of_as_any = kind == 3};
    rc = rc ? rc : grammar_from_schema(g, doc, &how, work, e);
    json_free(doc);
    return rc;
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct grammar *g;
    struct grammar_matcher *m;
    struct err e = {0};
    if (size < 2)
        return;
    struct grammar_work work = {0};
    int rc = compile(&g, data[0] % 4, (const char *)data + 2, size - 2, &work, &e);
    FUZZ_CHECK(work.max <= grammar_steps(2 * size) && work.steps <= 2 * work.max);
    FUZZ_CHECK((rc == 0) == (g != NULL));
    fuzz_result(rc, &e, fragile);
    if (rc)
        return;
    if (!cannot(grammar_matcher_create(&m, g, vocab, &e), &e, fragile)) {
        walk(m, data[1], fragile);
        grammar_matcher_destroy(m);
    }
    grammar_unref(g);
}
