// SPDX-License-Identifier: Apache-2.0
// Compression of messages, texts and rendered prompts with a scorer that counts common words: what
// stays whole, that pieces are pieces in order, for tokenizers of several kinds, FlowKV, refusals.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/utf8.h"
#include "compress/compress.h"
#include "formats/gguf/gguf.h"
#include "unit/test.h"

// Gives 1 to tokens that are among the queries and stand at three places at most, else 0.001.
struct words {
    struct scorer base;
    int calls, closed;
    int64_t n, query; // of the last call
    int fail;
    char order[16]; // s: scored, r: rested, b and e: begin and end of a turn
};

static void note(struct words *w, char what) {
    size_t n = strlen(w->order);
    if (n + 1 < sizeof w->order)
        w->order[n] = what;
}

static int score_words(struct scorer *s, const struct score_call *c, struct err *e) {
    struct words *w = (struct words *)s;
    w->calls++;
    note(w, 's');
    w->n = c->n;
    w->query = c->query;
    if (w->fail)
        return err_set(e, ERR_DEVICE, "the scorer's device has failed");
    for (int64_t i = 0; i < c->n; i++) {
        bool asked = false;
        int64_t count = 0;
        for (int64_t k = c->query; k < c->n; k++)
            asked |= c->ids[k] == c->ids[i];
        for (int64_t k = 0; asked && k < c->query; k++)
            count += c->ids[k] == c->ids[i];
        c->out[i] = asked && count <= 3 ? 1 : 0.001f;
    }
    return 0;
}

static void close_words(struct scorer *s) {
    ((struct words *)s)->closed++;
}

static void rest_words(struct scorer *s) {
    note((struct words *)s, 'r');
}

static const struct scorer_kind words_kind = {score_words, close_words, rest_words};

struct rig {
    struct words words;
    struct tokenizer *t;
    struct compressor *c;
};

static void rig_open(struct rig *r, const char *vocabulary) {
    struct gguf *g;
    char path[256];
    *r = (struct rig){.words = {.base = {&words_kind}}};
    snprintf(path, sizeof path, TEST_DATA "/fixtures/tokenizer/%s.gguf", vocabulary);
    assert_int_equal(gguf_open(&g, path, NULL), 0);
    assert_int_equal(tokenizer_create(&r->t, g, NULL), 0);
    gguf_close(g);
    assert_int_equal(compressor_create(&r->c, &r->words.base, r->t, NULL), 0);
}

static void rig_close(struct rig *r) {
    compressor_close(r->c);
    assert_int_equal(r->words.closed, 1);
    tokenizer_destroy(r->t);
}

enum { PARTS = 8 };

// A conversation of made texts.
struct made {
    struct str text[PARTS];
    struct compress_part parts[PARTS];
    struct compress_message messages[PARTS];
    struct compress_conversation v;
};

static void add(struct made *m, const char *role, const char *text) {
    int64_t i = m->v.n++;
    str_puts(&m->text[i], text);
    m->parts[i] = (struct compress_part){m->text[i].data ? m->text[i].data : "", m->text[i].len};
    m->messages[i] = (struct compress_message){role, &m->parts[i], 1};
    m->v.messages = m->messages;
}

static void made_fini(struct made *m) {
    for (int i = 0; i < PARTS; i++)
        str_fini(&m->text[i]);
    *m = (struct made){0};
}

// Sentences without information, with one that has some in the middle.
static const char *filler(int sentences, const char *needle) {
    static struct str s;
    str_clear(&s);
    for (int i = 0; i < sentences; i++) {
        static const char *const f[] = {
            "The grass is green.",
            "The sky is blue.",
            "The sun is yellow.",
            "Here we go.",
            "There and back again, na\xC3\xAFve caf\xC3\xA9.",
        };
        if (i == sentences / 2)
            str_printf(&s, "%s ", needle);
        str_printf(&s, "%s%s", f[i % 5], i % 7 == 6 ? "\n" : " ");
    }
    str_putc(&s, '\n');
    return s.data;
}

static struct compress_options keep(double ratio) {
    struct compress_options o = compress_options_default();
    o.select.budget = SELECT_RATIO;
    o.select.keep = ratio;
    return o;
}

static bool part_whole(const struct compress_result *r, const struct made *m, int64_t message) {
    for (int64_t i = 0; i < r->n_spans; i++)
        if (r->spans[i].message == message)
            return r->spans[i].begin == 0 && r->spans[i].end == m->parts[message].n;
    return m->parts[message].n == 0;
}

static const char *kept(const struct compress_result *r, const struct made *m, int64_t message,
                        const char *gap) {
    static struct str s;
    str_clear(&s);
    str_putc(&s, ' ');
    s.len = 0;
    compress_kept(r, &m->v, message, 0, gap, &s);
    return s.len ? s.data : "";
}

// Spans are in order and apart, cut no character; every text has one.
static void check(const struct compress_result *r, const struct made *m) {
    int64_t seen = 0;
    for (int64_t i = 0; i < r->n_spans; i++) {
        const struct compress_span *s = &r->spans[i];
        assert_true(s->begin < s->end && s->end <= m->parts[s->message].n && s->part == 0);
        if (i && s[-1].message == s->message)
            assert_true(s->begin > s[-1].end);
        assert_true(!i || s[-1].message <= s->message);
        assert_true(utf8_valid(m->parts[s->message].text + s->begin, s->end - s->begin));
        seen += !i || s[-1].message != s->message;
    }
    int64_t texts = 0;
    for (int64_t i = 0; i < m->v.n; i++)
        texts += m->parts[i].n > 0;
    assert_int_equal(seen, texts);
    assert_true(r->to <= r->from);
}

static const char needle[] = "The magic password of Zanzibar is BLUEHORIZON.";
static const char question[] = "What is the magic password of Zanzibar?";

static const char *const vocabularies[] = {"qwen35", "qwen2", "families/spm", "families/gemma4"};

static void test_messages(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "qwen35");
    struct made m = {0};
    add(&m, "system", "You are helpful. Answer in one sentence.");
    add(&m, "user", filler(1200, needle));
    add(&m, "user", "");
    add(&m, "user", question);
    struct compress_options o = keep(0.06);
    struct compress_result out;
    struct err e = {0};
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
    check(&out, &m);
    assert_null(out.reason);
    assert_true(part_whole(&out, &m, 0) && part_whole(&out, &m, 3));
    assert_non_null(strstr(kept(&out, &m, 1, NULL), needle));
    assert_null(strstr(kept(&out, &m, 1, NULL), "[...]"));
    assert_non_null(strstr(kept(&out, &m, 1, " [...] "), needle));
    assert_non_null(strstr(kept(&out, &m, 1, " [...] "), " [...] "));
    assert_true((double)out.to <= 0.06 * (double)out.from);
    assert_true(r.words.n - r.words.query <= 40); // the question's tokens, no markup after them
    compress_result_fini(&out);
    made_fini(&m);
    rig_close(&r);
}

// The question is within the long message.
static void test_closing(void **state) {
    (void)state;
    static const char *const ends[] = {
        "\n\nWhat is the magic password of Zanzibar?",
        "\n\nAnswer briefly.\nWhat is the magic password of Zanzibar?\nAnswer:",
        "And now the question that you were asked: what is the magic password of Zanzibar?",
    };
    for (size_t v = 0; v < 2; v++)
        for (int i = 0; i < 3; i++) {
            struct rig r;
            rig_open(&r, vocabularies[v]);
            struct made m = {0};
            struct str s = {0};
            str_printf(&s, "%s%s", filler(1500, needle), ends[i]);
            add(&m, "user", s.data);
            struct compress_options o = keep(0.06);
            struct compress_result out;
            struct err e = {0};
            assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
            check(&out, &m);
            assert_non_null(strstr(kept(&out, &m, 0, NULL), needle));
            const char *text = kept(&out, &m, 0, NULL);
            assert_string_equal(text + strlen(text) - strlen(ends[i]), ends[i]);
            assert_in_range(r.words.n - r.words.query, 10, 64);
            compress_result_fini(&out);
            str_fini(&s);
            made_fini(&m);
            rig_close(&r);
        }
}

static void test_text(void **state) {
    (void)state;
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++) {
        struct rig r;
        rig_open(&r, vocabularies[v]);
        struct made m = {0};
        add(&m, "user", filler(900, needle));
        const struct compress_part q = {question, strlen(question)};
        struct compress_options o = keep(0.1);
        struct compress_result out;
        struct err e = {0};
        assert_int_equal(compress_text(r.c, &m.parts[0], &q, &o, &out, &e), 0);
        check(&out, &m);
        if (!strstr(kept(&out, &m, 0, NULL), needle))
            fail_msg("%s lost the needle", vocabularies[v]);
        compress_result_fini(&out);
        made_fini(&m);
        rig_close(&r);
    }
}

static int32_t find(const struct rig *r, const char *mark) {
    int32_t id = tokenizer_find(r->t, mark, strlen(mark));
    assert_true(id >= 0);
    return id;
}

static int64_t count_of(const struct token_list *l, int32_t id) {
    int64_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += l->ids[i] == id;
    return n;
}

// A prompt as tokens, and what stays of it.
struct shortened {
    struct rig r;
    struct str text; // of what stays
    struct token_list in, kept;
    struct compress_result out;
};

static void shorten(struct shortened *x, const struct str *prompt) {
    *x = (struct shortened){0};
    rig_open(&x->r, "qwen35");
    assert_int_equal(tokenizer_encode(x->r.t, prompt->data, prompt->len, true, &x->in, NULL), 0);
    const struct compress_ids ids = {x->in.ids, (int64_t)x->in.count};
    struct compress_options o = keep(0.08);
    assert_int_equal(compress_tokens(x->r.c, &ids, &o, &x->kept, &x->out, NULL), 0);
    assert_true(x->kept.count * 9 < x->in.count);
    for (size_t i = 0; i < x->kept.count; i++)
        tokenizer_decode(x->r.t, x->kept.ids[i], true, &x->text);
    assert_non_null(strstr(x->text.data, needle));
}

static void shortened_fini(struct shortened *x) {
    str_fini(&x->text);
    token_list_fini(&x->in);
    token_list_fini(&x->kept);
    compress_result_fini(&x->out);
    rig_close(&x->r);
}

static void test_tokens(void **state) {
    (void)state;
    struct str s = {0};
    str_printf(&s,
               "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n"
               "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
               filler(900, needle), question);
    struct shortened x;
    shorten(&x, &s);
    int32_t start = find(&x.r, "<|im_start|>"), end = find(&x.r, "<|im_end|>");
    assert_int_equal(count_of(&x.kept, start), 4);
    assert_int_equal(count_of(&x.kept, end), 3);
    size_t at = 0; // a subsequence
    for (size_t i = 0; i < x.kept.count; i++, at++)
        while (assert_true(at < x.in.count), x.in.ids[at] != x.kept.ids[i])
            at++;
    assert_non_null(strstr(x.text.data, "Be brief."));
    assert_non_null(strstr(x.text.data, "user\nWhat is the magic password of Zanzibar?<|im_end|>\n"
                                        "<|im_start|>assistant\n"));
    assert_int_equal(x.out.n_spans, 0);
    x.in.ids[7] = 1 << 30;
    x.kept.count = 3;
    const struct compress_ids ids = {x.in.ids, (int64_t)x.in.count};
    struct compress_options o = keep(0.08);
    struct err e = {0};
    assert_int_equal(compress_tokens(x.r.c, &ids, &o, &x.kept, &x.out, &e), ERR_USAGE);
    assert_int_equal(x.kept.count, 3);
    str_fini(&s);
    shortened_fini(&x);
}

// The question closes the one message, and a line end follows its closing mark.
static void test_tokens_of_one_message(void **state) {
    (void)state;
    struct str s = {0};
    str_printf(&s, "<|im_start|>user\n%s\n%s<|im_end|>\n<|im_start|>assistant\n",
               filler(900, needle), question);
    struct shortened x;
    shorten(&x, &s);
    assert_non_null(strstr(x.text.data, "Zanzibar?<|im_end|>\n<|im_start|>assistant\n"));
    str_fini(&s);
    shortened_fini(&x);
}

static void test_unchanged(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "qwen35");
    struct compress_options o = keep(0.05);
    struct err e = {0};
    static const char *const roles[][2] = {{"user", NULL}, {"user", NULL}, {"user", "assistant"}};
    static const int sentences[] = {0, 9, 300};
    for (int i = 0; i < 3; i++) {
        struct made m = {0};
        struct compress_result out;
        add(&m, roles[i][0], sentences[i] ? filler(sentences[i], needle) : "Hello");
        if (roles[i][1])
            add(&m, roles[i][1], "Yes.");
        add(&m, "user", roles[i][1] ? "And now?" : "");
        assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
        check(&out, &m);
        assert_non_null(out.reason);
        assert_int_equal(out.from, out.to);
        for (int64_t k = 0; k < m.v.n; k++)
            assert_true(part_whole(&out, &m, k));
        compress_result_fini(&out);
        made_fini(&m);
    }
    assert_int_equal(r.words.calls, 0);
    struct compress_result none;
    assert_int_equal(compress_messages(r.c, &(struct compress_conversation){0}, &o, &none, &e), 0);
    assert_int_equal(none.n_spans, 0);
    compress_result_fini(&none);
    rig_close(&r);
}

static void test_flow(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "qwen35");
    struct made m = {0};
    add(&m, "system", "Be brief.");
    add(&m, "user", filler(400, needle));
    add(&m, "assistant", filler(300, "Nothing was found."));
    add(&m, "user", "Why?");
    add(&m, "assistant", filler(200, "Because."));
    add(&m, "user", question);
    struct compress_options o = keep(0.1);
    o.continued = COMPRESS_FLOW;
    struct compress_result out;
    struct err e = {0};
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
    check(&out, &m);
    assert_int_equal(r.words.calls, 2);
    assert_true(part_whole(&out, &m, 0) && part_whole(&out, &m, 3));
    assert_true(part_whole(&out, &m, 4) && part_whole(&out, &m, 5));
    assert_true(!part_whole(&out, &m, 1) && !part_whole(&out, &m, 2));
    char *first = strdup(kept(&out, &m, 1, NULL));
    compress_result_fini(&out);
    add(&m, "assistant", "It is not known."); // the next turn: the same words, one more aged
    add(&m, "user", "Are you sure?");
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
    check(&out, &m);
    assert_string_equal(first, kept(&out, &m, 1, NULL));
    assert_int_equal(r.words.calls, 3);
    assert_true(!part_whole(&out, &m, 4));
    compress_result_fini(&out);
    o.select.keep = 0.5; // other options, other words
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
    assert_int_equal(r.words.calls, 6);
    assert_true(strlen(kept(&out, &m, 1, NULL)) > strlen(first));
    compress_result_fini(&out);
    o.continued = COMPRESS_ANEW;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
    check(&out, &m);
    assert_int_equal(r.words.calls, 7);
    compress_result_fini(&out);
    free(first);
    made_fini(&m);
    rig_close(&r);
}

// With ratios that change from turn to turn a message keeps what it was shortened to at first.
static void test_flow_adapted(void **state) {
    (void)state;
    struct rig r;
    struct made m = {0};
    struct compress_result first, next;
    struct compress_options o = keep(0.3);
    o.continued = COMPRESS_FLOW;
    o.adapted = true;
    rig_open(&r, vocabularies[0]);
    add(&m, "system", "Be brief.");
    add(&m, "user", filler(200, needle));
    add(&m, "assistant", "Yes.");
    add(&m, "user", question);
    assert_int_equal(compress_messages(r.c, &m.v, &o, &first, NULL), 0);
    o.select.keep = 0.2;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &next, NULL), 0);
    assert_int_equal(next.to, first.to);
    assert_true(first.to < first.from);
    assert_int_equal(r.words.calls, 1);
    compress_result_fini(&next);
    o.adapted = false;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &next, NULL), 0);
    assert_true(next.to < first.to);
    compress_result_fini(&next);
    compress_result_fini(&first);
    made_fini(&m);
    rig_close(&r);
}

static void test_refused(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "qwen35");
    struct made m = {0};
    add(&m, "user", filler(400, needle));
    add(&m, "user", question);
    struct compress_result out;
    struct err e = {0};
    struct compress_options o = keep(0);
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), ERR_USAGE);
    o = keep(0.1);
    o.queries = 65;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), ERR_USAGE);
    o = keep(0.1);
    r.words.fail = 1;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), ERR_DEVICE);
    assert_null(out.spans);
    r.words.fail = 0;
    m.text[0].data[100] = (char)0xFF;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "message 1"));
    made_fini(&m);
    rig_close(&r);
}

// A vocabulary of small letters and the blank, without tokens for bytes.
static struct tokenizer *letters(void) {
    enum { N = 29 };
    static const char *const first[] = {"<unk>", "</s>", "\xE2\x96\x81"};
    char path[64], letter[26][2];
    const char *tokens[N];
    size_t lengths[N];
    int32_t types[N];
    float scores[N] = {0};
    for (int i = 0; i < N; i++) {
        if (i >= 3)
            memcpy(letter[i - 3], (char[2]){(char)('a' + i - 3), 0}, 2);
        tokens[i] = i < 3 ? first[i] : letter[i - 3];
        lengths[i] = strlen(tokens[i]);
        types[i] = i == 0 ? 2 : i == 1 ? 3 : 1;
    }
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    snprintf(path, sizeof path, "/tmp/test_compress.%d.gguf", (int)getpid());
    assert_int_equal(gguf_writer_open(&w, path, NULL), 0);
    gguf_put_str(w, "tokenizer.ggml.model", "llama", 5);
    gguf_put_str_array(w, "tokenizer.ggml.tokens", tokens, lengths, N);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, N);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, N);
    assert_int_equal(gguf_writer_close(w, NULL), 0);
    assert_int_equal(gguf_open(&g, path, NULL), 0);
    assert_int_equal(tokenizer_create(&t, g, NULL), 0);
    gguf_close(g);
    remove(path);
    return t;
}

// What the scorer's vocabulary cannot represent is refused, and the sentence says where it stands.
static void test_no_token(void **state) {
    (void)state;
    struct rig r = {.words = {.base = {&words_kind}}, .t = letters()};
    assert_int_equal(compressor_create(&r.c, &r.words.base, r.t, NULL), 0);
    struct made m = {0};
    add(&m, "user", "only small letters stand here");
    add(&m, "user", "and a caf\xC3\xA9 there");
    struct compress_options o = keep(0.1);
    struct compress_result out;
    struct err e = {0};
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "message 2 at byte 9"));
    assert_null(out.spans);
    m.v.n = 1;
    assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), 0);
    compress_result_fini(&out);
    made_fini(&m);
    rig_close(&r);
}

static int begin_turn(void *arg, struct err *e) {
    struct words *w = arg;
    note(w, 'b');
    return w->fail == 2 ? err_set(e, ERR_MEMORY, "no room for the scorer") : 0;
}

static int end_turn(void *arg, struct err *e) {
    struct words *w = arg;
    note(w, 'e');
    return w->fail == 3 ? err_set(e, ERR_MEMORY, "weights do not come back") : 0;
}

// What is done around a scoring, also around one that fails.
static void test_turns(void **state) {
    static const struct {
        int fail, rc;
        const char *order;
    } cases[] = {{0, 0, "bsre"}, {1, ERR_DEVICE, "bsre"}, {2, ERR_MEMORY, "b"}};
    struct made m = {0};
    (void)state;
    add(&m, "user", filler(200, "The secret of the lighthouse is 4711."));
    add(&m, "user", "What is the secret of the lighthouse?");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig r;
        struct compress_result out;
        struct compress_options o = keep(0.2);
        struct err e = {0};
        rig_open(&r, "qwen2");
        compressor_turns(r.c, &(struct compress_turns){begin_turn, end_turn, &r.words});
        r.words.fail = cases[i].fail;
        assert_int_equal(compress_messages(r.c, &m.v, &o, &out, &e), cases[i].rc);
        assert_string_equal(r.words.order, cases[i].order);
        if (!cases[i].rc)
            assert_true(out.ms_turn >= 0 && out.ms_turn <= out.ms_score);
        else
            assert_true(e.text[0] && out.n_spans == 0);
        compress_result_fini(&out);
        rig_close(&r);
    }
    made_fini(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_closing),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_tokens_of_one_message),
        cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_flow),
        cmocka_unit_test(test_flow_adapted),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
