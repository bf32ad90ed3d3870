// SPDX-License-Identifier: Apache-2.0
// Replies of each family come apart as they should, and the same way wherever the stream is cut.
#include "test.h"

#include <stdlib.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "formats/gguf/gguf.h"
#include "text/chat/reasoning.h"
#include "vocab_file.h"

struct parted {
    struct str reasoning, content;
};

static const char *text_of(const struct str *s) {
    return s->data ? s->data : "";
}

// Pushes a reply in pieces whose lengths `rng` draws; NULL: whole. What each push gives is UTF-8.
static void part(struct parted *p, enum reasoning_family f, bool inside, const char *text, size_t n,
                 struct rng *rng) {
    struct reasoning r;
    *p = (struct parted){0};
    reasoning_init(&r, f, inside);
    for (size_t at = 0; at < n;) {
        size_t max = n - at, size = rng ? 1 + rng_below(rng, max < 9 ? (uint32_t)max : 9) : max;
        size_t before[2] = {p->reasoning.len, p->content.len};
        reasoning_push(&r, text + at, size, &p->reasoning, &p->content);
        assert_true(utf8_valid(text_of(&p->reasoning) + before[0], p->reasoning.len - before[0]));
        assert_true(utf8_valid(text_of(&p->content) + before[1], p->content.len - before[1]));
        at += size;
    }
    reasoning_end(&r, &p->reasoning, &p->content);
    reasoning_fini(&r);
}

static void parted_fini(struct parted *p) {
    str_fini(&p->reasoning);
    str_fini(&p->content);
}

static const struct sample {
    enum reasoning_family family;
    bool inside;
    const char *reply, *reasoning, *content;
} samples[] = {
    {REASONING_NONE, false, "<think>a</think>b", "", "<think>a</think>b"},
    // The prompt opened the block, or the model does.
    {REASONING_THINK, true, "why\n</think>\n\nBecause.", "why", "Because."},
    {REASONING_THINK, false, "<think>\nwhy\n</think>\n\nBecause.", "why", "Because."},
    {REASONING_THINK, false, " \n<think>why</think>Because.", "why", "Because."},
    {REASONING_THINK, true, "\n<think>\nwhy\n\n</think> Because.\n", "why\n", "Because.\n"},
    {REASONING_THINK, true, "</think>Hi", "", "Hi"},
    {REASONING_THINK, false, "<think>\n\n</think>\n\nHi", "", "Hi"},
    // Without an end everything is reasoning; without a beginning, nothing.
    {REASONING_THINK, true, "why\nnot</thi", "why\nnot</thi", ""},
    {REASONING_THINK, false, "  Hi <think>a", "", "  Hi <think>a"},
    {REASONING_THINK, false, "</think>Hi", "", "Hi"},
    {REASONING_THINK, false, "Hi</think> you", "", "Hi you"},
    // After a block the marks are words.
    {REASONING_THINK, true, "a</think>write <think> and </think>", "a",
     "write <think> and </think>"},
    {REASONING_THINK, true, "a < b </ c\xC3\xA9 \xF0\x9F\x98\x80</think>\xE2\x82\xAC",
     "a < b </ c\xC3\xA9 \xF0\x9F\x98\x80", "\xE2\x82\xAC"},
    {REASONING_THINK, true, "a\xE2\x82</think>\xFF", "a\xEF\xBF\xBD", "\xEF\xBF\xBD"},
    {REASONING_THINK, false, "", "", ""},
    {REASONING_THINK, false, "\n\n", "", "\n\n"},
    {REASONING_SEED, true, "why</seed:think>Hi", "why", "Hi"},
    {REASONING_BRACKETS, false, "[THINK]why[/THINK]Hi [1]", "why", "Hi [1]"},
    {REASONING_COHERE, false, "<|START_THINKING|>why<|END_THINKING|>Hi", "why", "Hi"},
    {REASONING_APERTUS, false, "<|inner_prefix|>why<|inner_suffix|>Hi", "why", "Hi"},
    {REASONING_SOLAR, true, "why<|end|><|begin|>assistant<|content|>Hi", "why", "Hi"},
    {REASONING_CHANNEL, false, "<|channel>thought\nwhy\n<channel|>Hi", "why", "Hi"},
    {REASONING_CHANNEL, false, "<|channel>thought\n<channel|>Hi<channel|>", "", "Hi"},
    {REASONING_CHANNEL, false, "Hi <|channel>thought\nwhy<channel|>you", "why", "Hi you"},
    {REASONING_HARMONY, false,
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>Hi"
     "<|return|>",
     "why", "Hi"},
    {REASONING_HARMONY, false,
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary<|message|>"
     "Wait.<|end|><|start|>assistant<|channel|>analysis<|message|>so<|end|><|start|>assistant"
     "<|channel|>final<|message|>Hi",
     "why\n\nso", "Wait.\n\nHi"},
    {REASONING_HARMONY, false, "Hi", "", "Hi"},
    {REASONING_HARMONY, false, "<|message|>Hi", "", "Hi"},
    {REASONING_HARMONY, false, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "",
     "{}"},
    {REASONING_HARMONY, true, "why<|end|><|start|>assistant<|channel|>final<|message|>Hi", "why",
     "Hi"},
    {REASONING_HARMONY, false, "<|channel|>analysis", "", ""},
};

static void parts_replies(void **state) {
    (void)state;
    struct rng rng = {7};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *x = &samples[i];
        for (int cut = 0; cut < 40; cut++) {
            struct parted p;
            part(&p, x->family, x->inside, x->reply, strlen(x->reply), cut ? &rng : NULL);
            assert_string_equal(text_of(&p.reasoning), x->reasoning);
            assert_string_equal(text_of(&p.content), x->content);
            parted_fini(&p);
        }
    }
}

// Marks, beginnings of marks, words and broken characters in any order.
static size_t random_reply(struct rng *rng, char *out, size_t cap) {
    static const char *const bits[] = {"<think>",
                                       "</think>",
                                       "<|channel>thought",
                                       "<channel|>",
                                       "<|channel|>analysis",
                                       "<|message|>",
                                       "<|end|>",
                                       "<|start|>",
                                       "\n",
                                       " ",
                                       "a",
                                       "\xC3\xA9",
                                       "\xF0\x9F\x98\x80",
                                       "\xE2\x82",
                                       "\xFF",
                                       "[THINK]",
                                       "[/THINK]",
                                       "<",
                                       "</th",
                                       "<|",
                                       "assistant",
                                       "<|channel|>",
                                       "final",
                                       " to=x",
                                       "<|call|>",
                                       "<|think|>",
                                       "<|begin|>assistant<|content|>",
                                       "words of some length, "};
    size_t n = 0, count = rng_below(rng, 24);
    for (size_t i = 0; i < count; i++) {
        const char *bit = bits[rng_below(rng, sizeof bits / sizeof *bits)];
        size_t len = strlen(bit), times = rng_below(rng, 40) ? 1 : 70;
        for (size_t k = 0; k < times && n + len < cap; k++, n += len)
            memcpy(out + n, bit, len);
    }
    return n;
}

static void cuts_change_nothing(void **state) {
    (void)state;
    struct rng rng = {11};
    char text[8192];
    for (int i = 0; i < 20 * PROPERTY_CASES; i++) {
        enum reasoning_family f = (enum reasoning_family)rng_below(&rng, REASONING_FAMILIES);
        bool inside = rng_below(&rng, 2);
        size_t n = random_reply(&rng, text, sizeof text);
        struct parted whole, cut;
        part(&whole, f, inside, text, n, NULL);
        part(&cut, f, inside, text, n, &rng);
        assert_string_equal(text_of(&whole.reasoning), text_of(&cut.reasoning));
        assert_string_equal(text_of(&whole.content), text_of(&cut.content));
        parted_fini(&whole);
        parted_fini(&cut);
    }
}

// What cannot become a mark comes out at once.
static void holds_back_marks_only(void **state) {
    (void)state;
    struct str reasoning = {0}, content = {0};
    struct reasoning r;
    reasoning_init(&r, REASONING_THINK, true);
    reasoning_push(&r, "why </th", 8, &reasoning, &content);
    assert_string_equal(text_of(&reasoning), "why ");
    reasoning_push(&r, "eory", 4, &reasoning, &content);
    assert_string_equal(text_of(&reasoning), "why </theory");
    reasoning_push(&r, "</think>H", 9, &reasoning, &content);
    assert_string_equal(text_of(&content), "H");
    reasoning_push(&r, "i", 1, &reasoning, &content);
    assert_string_equal(text_of(&content), "Hi");
    reasoning_fini(&r);
    str_fini(&reasoning);
    str_fini(&content);
}

static void finds_families(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum reasoning_family want;
    } cases[] = {{"{{ '<|im_start|>' }}", REASONING_NONE},
                 {"content.split('</think>')", REASONING_THINK},
                 {"'<seed:think>'", REASONING_SEED},
                 {"'[THINK]'", REASONING_BRACKETS},
                 {"'<|START_THINKING|>'", REASONING_COHERE},
                 {"'<|channel>thought\\n<channel|>'", REASONING_CHANNEL},
                 {"'<|start|>assistant<|channel|>final<|message|>'", REASONING_HARMONY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(reasoning_of_template(cases[i].text, strlen(cases[i].text)),
                         cases[i].want);
    for (int f = 0; f < REASONING_FAMILIES; f++)
        assert_non_null(reasoning_name((enum reasoning_family)f));
}

static void decodes_marks_that_are_control_tokens(void **state) {
    (void)state;
    static const char *const tokens[] = {"<|channel>", "<|im_end|>", "<|start|>"};
    struct vocab_file f = {0};
    struct tokenizer *t = NULL;
    struct str out = {0};
    static const int32_t types[] = {3, 3, 3};
    vocab_file_fill(&f, &(struct vocab_spec){.tokens = tokens, .types = types, .n_tokens = 3});
    assert_int_equal(vocab_file_load(&f, &t, NULL), 0);
    for (int i = 0; i < 3; i++) {
        int32_t id = tokenizer_find(t, tokens[i], strlen(tokens[i]));
        assert_true(id >= 0);
        reasoning_decode(REASONING_CHANNEL, t, id, &out);
    }
    assert_string_equal(text_of(&out), "<|channel>");
    str_clear(&out);
    for (int i = 0; i < 3; i++)
        reasoning_decode(REASONING_HARMONY, t, tokenizer_find(t, tokens[i], strlen(tokens[i])),
                         &out);
    assert_string_equal(text_of(&out), "<|start|>");
    str_fini(&out);
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_replies),
        cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(holds_back_marks_only),
        cmocka_unit_test(finds_families),
        cmocka_unit_test(decodes_marks_that_are_control_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
