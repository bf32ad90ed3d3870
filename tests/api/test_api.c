// SPDX-License-Identifier: Apache-2.0
// The public interface through the shared library, on a random tiny pair. What it gives is compared
// with the engine, which is linked with it; then turns, cuts, forks and checkpoints against fresh
// sequences, callbacks, and every kind of misuse.
#include "support/wait.h"
#include "unit/test.h"

#include <coppice.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "support/tiny_gguf.h"

enum { CONTEXT = 300, N_PROMPT = 45, TOKENS = 30 };

struct fixture {
    struct tiny_pair files;
    struct coppice_model *m;
    struct coppice_error e;
    int32_t prompt[N_PROMPT];
};

static struct coppice_load_options options_of(const struct fixture *f) {
    return (struct coppice_load_options){.size = sizeof(struct coppice_load_options),
                                         .model = f->files.target,
                                         .draft = f->files.draft,
                                         .device = "cpu",
                                         .threads = 1,
                                         .max_ctx = CONTEXT};
}

static int setup(void **state) {
    static struct fixture f;
    if (tiny_pair_write(&f.files, "api"))
        return -1;
    for (int i = 0; i < N_PROMPT; i++)
        f.prompt[i] = 32 + (i * 37 + i / 5) % 90;
    char path[64];
    struct coppice_load_options o = options_of(&f);
    o.model = strcpy(path, f.files.target); // only borrowed while loading
    *state = &f;
    int rc = coppice_load(&f.m, &o, &f.e);
    memset(path, 'x', sizeof path - 1);
    return rc;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    coppice_free(f->m);
    tiny_pair_remove(&f->files);
    return 0;
}

static struct coppice_request request_of(int64_t n) {
    return (struct coppice_request){
        .size = sizeof(struct coppice_request), .max_tokens = n, .ignore_end = 1, .logit_hash = 1};
}

static struct coppice_result generate(struct coppice_sequence *s, const struct coppice_request *r) {
    struct coppice_result y = {.size = sizeof y};
    assert_int_equal(coppice_generate(s, r, &y, NULL), 0);
    return y;
}

// A new sequence of these tokens.
static struct coppice_sequence *sequence_of(struct fixture *f, const int32_t *ids, int64_t n) {
    struct coppice_sequence *s = NULL;
    assert_int_equal(coppice_sequence_create(&s, f->m, &f->e), 0);
    assert_int_equal(coppice_sequence_append(s, ids, n, &f->e), 0);
    return s;
}

// The next tokens of s are those of a fresh sequence with the same beginning.
static void assert_as_fresh(struct fixture *f, struct coppice_sequence *s) {
    struct coppice_request r = request_of(12);
    int64_t n = coppice_sequence_length(s);
    struct coppice_sequence *fresh = sequence_of(f, coppice_sequence_tokens(s), n);
    struct coppice_result a = generate(s, &r), b = generate(fresh, &r);
    assert_int_equal(a.logit_hash, b.logit_hash);
    assert_int_equal(a.tokens, b.tokens);
    assert_int_equal(b.prompt_tokens, n);
    assert_int_equal(coppice_sequence_length(s), n + a.tokens);
    assert_memory_equal(coppice_sequence_tokens(s), coppice_sequence_tokens(fresh),
                        (size_t)(n + a.tokens) * sizeof(int32_t));
    coppice_sequence_free(fresh);
}

static void test_version(void **state) {
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", COPPICE_VERSION_MAJOR, COPPICE_VERSION_MINOR,
             COPPICE_VERSION_PATCH);
    assert_string_equal(text, coppice_version());
}

static void test_info(void **state) {
    struct fixture *f = *state;
    struct coppice_info info = {.size = sizeof info};
    coppice_info(f->m, &info);
    assert_string_equal(info.architecture, "qwen35");
    assert_int_equal(info.vocabulary, 300);
    assert_int_equal(info.max_ctx, CONTEXT);
    assert_true(info.has_draft && info.has_tokenizer && info.device[0]);
    assert_true(coppice_is_end(f->m, info.eos));
    assert_false(coppice_is_end(f->m, 65));
    struct coppice_info part = {.size = offsetof(struct coppice_info, vocabulary), .bos = 77};
    coppice_info(f->m, &part); // of a program with an older header
    assert_string_equal(part.architecture, "qwen35");
    assert_int_equal(part.bos, 77);
}

// All ways of guessing give the engine's tokens from the engine's logits.
static void test_as_engine(void **state) {
    struct fixture *f = *state;
    struct session *plain = NULL;
    struct session_options o = session_options_default();
    o.model = f->files.target;
    o.device = "cpu";
    o.threads = 1;
    o.target.max_ctx = CONTEXT;
    assert_int_equal(session_open(&plain, &o, NULL), 0);
    for (int hot = 0; hot < 2; hot++) {
        struct request want;
        struct reply y;
        request_init(&want);
        want.prompt = f->prompt;
        want.n_prompt = N_PROMPT;
        want.max_tokens = TOKENS;
        want.ignore_eos = want.logit_hash = true;
        want.sample.temperature = hot ? 0.9 : 0;
        want.sample.frequency = hot ? 0.3 : 0;
        want.sample.seed = 5;
        assert_int_equal(session_generate(plain, &want, &y, NULL), 0);
        for (int how = COPPICE_SPECULATE_AUTO; how <= COPPICE_SPECULATE_OFF; how++) {
            struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT);
            struct coppice_request r = request_of(TOKENS);
            r.temperature = want.sample.temperature;
            r.frequency_penalty = want.sample.frequency;
            r.seed = 5;
            r.speculate = how;
            r.budget = how == COPPICE_SPECULATE_TREE ? COPPICE_BUDGET_AUTO : 0;
            if (how == COPPICE_SPECULATE_CHAIN) { // as many as pay, or are likely, may be none
                r.budget = 4;
                r.min_prob = -1;
            }
            struct coppice_result got = generate(s, &r);
            assert_int_equal(got.tokens, TOKENS);
            assert_int_equal(got.end, COPPICE_END_LENGTH);
            assert_int_equal(got.prompt_tokens, N_PROMPT);
            assert_int_equal(got.logit_hash, y.hash);
            assert_memory_equal(coppice_sequence_tokens(s) + N_PROMPT, y.ids,
                                sizeof(int32_t[TOKENS]));
            if (how == COPPICE_SPECULATE_OFF)
                assert_true(got.passes == TOKENS - 1 && got.guesses == 0);
            if (how == COPPICE_SPECULATE_CHAIN)
                assert_true(got.guesses > 0);
            coppice_sequence_free(s);
        }
        reply_fini(&y);
    }
    session_close(plain);
}

// Later turns run what they add and the last token of the turn before.
static void test_turns(void **state) {
    struct fixture *f = *state;
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT);
    for (int turn = 0; turn < 3; turn++) {
        struct coppice_request r = request_of(20);
        r.speculate = turn % 2 ? COPPICE_SPECULATE_TREE : COPPICE_SPECULATE_OFF;
        struct coppice_result y = generate(s, &r);
        assert_int_equal(y.prompt_tokens, turn ? 8 : N_PROMPT);
        assert_int_equal(coppice_sequence_ready(s), coppice_sequence_length(s) - 1);
        assert_int_equal(coppice_sequence_append(s, f->prompt + turn, 7, NULL), 0);
    }
    assert_as_fresh(f, s);
    coppice_sequence_free(s);
}

static void test_run(void **state) {
    struct fixture *f = *state;
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(coppice_sequence_run(s, NULL, NULL, NULL), 0);
        assert_int_equal(coppice_sequence_ready(s), N_PROMPT - 1);
        assert_int_equal(coppice_sequence_length(s), N_PROMPT);
    }
    struct coppice_request r = request_of(3);
    assert_int_equal(generate(s, &r).prompt_tokens, 1);
    coppice_sequence_free(s);
}

static void test_cut_and_fork(void **state) {
    struct fixture *f = *state;
    static const int64_t cuts[] = {75, 70, 64, 40, 33, 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT), *other = NULL;
        struct coppice_request r = request_of(TOKENS);
        generate(s, &r);
        assert_int_equal(coppice_sequence_fork(s, &other, NULL), 0);
        assert_int_equal(coppice_sequence_cut(s, cuts[i], NULL), 0);
        assert_int_equal(coppice_sequence_length(s), cuts[i]);
        assert_true(coppice_sequence_ready(s) <= cuts[i]);
        assert_as_fresh(f, s);
        assert_int_equal(coppice_sequence_length(other), N_PROMPT + TOKENS);
        assert_as_fresh(f, other);
        assert_int_equal(coppice_sequence_cut(s, coppice_sequence_length(s) + 1, &f->e),
                         COPPICE_ERR_USAGE);
        coppice_sequence_free(s);
        coppice_sequence_free(other);
    }
}

static void test_checkpoints(void **state) {
    struct fixture *f = *state;
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT), *other = NULL;
    struct coppice_checkpoint *empty = NULL, *c = NULL;
    struct coppice_request r = request_of(TOKENS);
    assert_int_equal(coppice_checkpoint_create(&empty, s, NULL), 0); // nothing was run
    generate(s, &r);
    assert_int_equal(coppice_checkpoint_create(&c, s, NULL), 0);
    assert_true(coppice_checkpoint_bytes(c) > coppice_checkpoint_bytes(empty));
    assert_int_equal(coppice_sequence_cut(s, 3, NULL), 0);
    assert_int_equal(coppice_sequence_create(&other, f->m, NULL), 0);
    struct coppice_sequence *both[] = {s, other};
    for (int i = 0; i < 4; i++) {
        struct coppice_sequence *to = both[i / 2];
        assert_int_equal(coppice_checkpoint_restore(c, to, NULL), 0);
        assert_int_equal(coppice_sequence_length(to), N_PROMPT + TOKENS);
        assert_int_equal(coppice_sequence_ready(to), (N_PROMPT + TOKENS - 1) / 32 * 32);
        assert_as_fresh(f, to);
    }
    assert_int_equal(coppice_checkpoint_restore(empty, s, NULL), 0);
    assert_int_equal(coppice_sequence_length(s), N_PROMPT);
    assert_int_equal(coppice_sequence_ready(s), 0);
    assert_as_fresh(f, s);
    coppice_sequence_free(s);
    char path[64];
    struct coppice_checkpoint *saved[] = {empty, c}, *loaded = NULL;
    snprintf(path, sizeof path, "/tmp/coppice-api-%d-point", (int)getpid());
    for (int i = 0; i < 2; i++) { // the second replaces the first
        assert_int_equal(coppice_checkpoint_save(saved[i], path, NULL), 0);
        assert_int_equal(coppice_checkpoint_load(&loaded, f->m, path, NULL), 0);
        assert_int_equal(coppice_checkpoint_restore(loaded, other, NULL), 0);
        assert_int_equal(coppice_sequence_length(other), N_PROMPT + (i ? TOKENS : 0));
        assert_int_equal(coppice_sequence_ready(other), i ? (N_PROMPT + TOKENS - 1) / 32 * 32 : 0);
        assert_as_fresh(f, other);
        coppice_checkpoint_free(loaded);
    }
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(coppice_checkpoint_load(&loaded, f->m, path, &f->e), COPPICE_ERR_FORMAT);
    assert_non_null(strstr(f->e.text, path));
    unlink(path);
    assert_int_equal(coppice_checkpoint_load(&loaded, f->m, path, &f->e), COPPICE_ERR_IO);
    assert_int_equal(coppice_checkpoint_save(c, "/no/such/folder/point", &f->e), COPPICE_ERR_IO);
    assert_int_equal(coppice_checkpoint_restore(c, other, NULL), 0); // outlives its sequence
    assert_as_fresh(f, other);
    coppice_sequence_free(other);
    coppice_checkpoint_free(c);
    coppice_checkpoint_free(empty);
}

struct heard {
    int32_t ids[TOKENS];
    char text[16 * TOKENS];
    int64_t n, bytes, stop_at, total;
    int calls;
    double logprob; // sum
};

static int hear(void *arg, const struct coppice_piece *p) {
    struct heard *h = arg;
    if (p->n)
        memcpy(h->ids + h->n, p->ids, (size_t)p->n * sizeof *p->ids);
    memcpy(h->text + h->bytes, p->text, p->bytes);
    assert_int_equal(p->text[p->bytes], '\0');
    for (int64_t i = 0; p->logprobs && i < p->n; i++) {
        assert_true(p->logprobs[i] <= 0 && p->logprobs[i] > -100);
        h->logprob += (double)p->logprobs[i];
    }
    h->n += p->n;
    h->bytes += (int64_t)p->bytes;
    return h->stop_at && h->n >= h->stop_at;
}

static int count(void *arg, int64_t done, int64_t total) {
    struct heard *h = arg;
    assert_true(done < total);
    h->total = total;
    return h->calls++ == 0 && h->stop_at < 0;
}

static void test_callbacks(void **state) {
    struct fixture *f = *state;
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT);
    struct heard h = {0};
    struct coppice_request r = request_of(TOKENS);
    char text[sizeof h.text];
    r.tokens = hear;
    r.progress = count;
    r.arg = &h;
    r.temperature = 1.2;
    generate(s, &r);
    const int32_t *ids = coppice_sequence_tokens(s) + N_PROMPT;
    assert_int_equal(h.n, TOKENS);
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.total, N_PROMPT);
    assert_memory_equal(h.ids, ids, sizeof h.ids);
    int64_t bytes = coppice_detokenize(f->m, ids, TOKENS, 0, text, sizeof text, NULL);
    assert_int_equal(bytes, h.bytes);
    assert_memory_equal(text, h.text, (size_t)bytes);
    coppice_sequence_free(s);

    s = sequence_of(f, f->prompt, N_PROMPT);
    h = (struct heard){.stop_at = 10};
    r.budget = 2;
    struct coppice_result y = generate(s, &r);
    assert_int_equal(y.end, COPPICE_END_CALLER);
    assert_in_range(y.tokens, 10, 13);
    assert_int_equal(coppice_sequence_length(s), N_PROMPT + y.tokens);
    coppice_sequence_free(s);

    s = sequence_of(f, f->prompt, N_PROMPT);
    h = (struct heard){.stop_at = -1};
    y = generate(s, &r);
    assert_int_equal(y.end, COPPICE_END_CALLER);
    assert_int_equal(y.tokens, 0);
    assert_int_equal(coppice_sequence_length(s), N_PROMPT);
    assert_as_fresh(f, s);
    coppice_sequence_free(s);
}

static struct heard hear_all(struct fixture *f, struct coppice_request r) {
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT);
    struct heard h = {0};
    r.tokens = hear;
    r.arg = &h;
    generate(s, &r);
    coppice_sequence_free(s);
    return h;
}

// A forbidden token never comes, a favoured one always does, and the log-probabilities are the
// model's own, with guesses or without.
static void test_bias_and_logprobs(void **state) {
    struct fixture *f = *state;
    struct coppice_request r = request_of(TOKENS);
    float bias[2] = {-INFINITY, 0};
    r.logprobs = 1;
    struct heard h = hear_all(f, r);
    const int32_t ids[2] = {h.ids[0], 77};
    r.speculate = COPPICE_SPECULATE_OFF;
    assert_true(h.logprob < 0 && h.logprob == hear_all(f, r).logprob);
    r = request_of(TOKENS);
    r.bias_ids = ids;
    r.bias = bias;
    r.n_bias = 2;
    for (int favoured = 0; favoured < 2; favoured++) {
        bias[1] = favoured ? 1000 : 0;
        h = hear_all(f, r);
        for (int i = 0; i < TOKENS; i++)
            assert_true(favoured ? h.ids[i] == 77 : h.ids[i] != ids[0]);
    }
}

static void test_text(void **state) {
    struct fixture *f = *state;
    int32_t ids[8];
    char text[32];
    const char *words = "the<|im_end|>";
    assert_int_equal(coppice_tokenize(f->m, words, strlen(words), COPPICE_SPECIAL, NULL, 0, NULL),
                     3);
    assert_int_equal(coppice_tokenize(f->m, words, strlen(words), COPPICE_SPECIAL, ids, 8, NULL),
                     3);
    assert_true(ids[0] == 259 && ids[1] == 'e' && ids[2] == 258);
    assert_int_equal(coppice_tokenize(f->m, words, strlen(words), 0, ids, 2, NULL), 12);
    assert_int_equal(coppice_detokenize(f->m, (int32_t[]){259, 258, 101}, 3, 0, text, 32, NULL), 3);
    assert_string_equal(text, "the");
    assert_int_equal(
        coppice_detokenize(f->m, (int32_t[]){259, 258}, 2, COPPICE_SPECIAL, text, 4, NULL), 12);
    assert_memory_equal(text, "th<|", 4);
    assert_int_equal(coppice_detokenize(f->m, (int32_t[]){0xc3}, 1, 0, text, 32, NULL), 3);
    assert_string_equal(text, "\xef\xbf\xbd");
    assert_int_equal(coppice_tokenize(f->m, "ab\xff", 3, 0, ids, 8, &f->e), COPPICE_ERR_FORMAT);
    assert_non_null(strstr(f->e.text, "byte 2"));
    assert_int_equal(f->e.code, COPPICE_ERR_FORMAT);
}

static void refuse_load(struct coppice_load_options o, int code, const char *part) {
    struct coppice_error e = {0};
    struct coppice_model *m = NULL;
    assert_int_equal(coppice_load(&m, &o, &e), code);
    assert_null(m);
    assert_int_equal(e.code, code);
    if (!strstr(e.text, part))
        fail_msg("'%s' lacks '%s'", e.text, part);
    assert_int_equal(coppice_load(&m, &o, NULL), code); // also without a place for the sentence
}

static void test_refused_loads(void **state) {
    struct fixture *f = *state;
    struct coppice_load_options o = options_of(f);
    o.size = 0;
    refuse_load(o, COPPICE_ERR_USAGE, "sizeof(struct coppice_load_options)");
    o = options_of(f);
    o.model = NULL;
    refuse_load(o, COPPICE_ERR_USAGE, "no model");
    o.model = "/nonexistent/m.gguf";
    refuse_load(o, COPPICE_ERR_IO, "/nonexistent/m.gguf");
    o = options_of(f);
    o.kv_type_v = "f7";
    refuse_load(o, COPPICE_ERR_USAGE,
                "kv_type_v is f16, f32, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or tq3_0, not 'f7'");
    o = options_of(f);
    o.kv_type = "f8";
    refuse_load(o, COPPICE_ERR_USAGE, "'f8'");
    o = options_of(f);
    o.max_budget = 128;
    refuse_load(o, COPPICE_ERR_USAGE, "128");
    o = options_of(f);
    o.draft = f->files.target;
    refuse_load(o, COPPICE_ERR_MISMATCH, "qwen35 is not a DFlash draft");
    o = options_of(f);
    o.memory_limit = 1000;
    refuse_load(o, COPPICE_ERR_MEMORY, "may be taken");
}

// A program built with a newer header may set fields that this library does not have.
static void test_unknown_fields(void **state) {
    struct fixture *f = *state;
    struct {
        struct coppice_load_options o;
        int64_t more;
    } newer = {.o = options_of(f)};
    struct coppice_plan plan = {.size = sizeof plan};
    newer.o.size = sizeof newer;
    assert_int_equal(coppice_plan(&newer.o, &plan, &f->e), 0);
    newer.more = 1;
    assert_int_equal(coppice_plan(&newer.o, &plan, &f->e), COPPICE_ERR_USAGE);
    assert_non_null(strstr(f->e.text, "newer"));
}

static void test_plan(void **state) {
    struct fixture *f = *state;
    struct coppice_load_options o = options_of(f);
    struct coppice_plan plan = {.size = sizeof plan}, less = {.size = sizeof less};
    assert_int_equal(coppice_plan(&o, &plan, &f->e), 0);
    assert_true(plan.weights > 0 && plan.draft > 0 && plan.workspace > 0 && plan.kv_per_1k > 0);
    assert_true(plan.total > plan.weights + plan.draft + plan.workspace + plan.state);
    assert_int_equal(plan.max_ctx, CONTEXT);
    assert_int_equal(plan.available, 0);
    o.memory_limit = plan.total - 1;
    assert_int_equal(coppice_plan(&o, &less, &f->e), COPPICE_ERR_MEMORY);
    assert_int_equal(less.total, plan.total);
    assert_int_equal(less.available, plan.total - 1);
    o.memory_limit = plan.total;
    assert_int_equal(coppice_plan(&o, &less, &f->e), 0);
    o.model = f->files.draft;
    assert_true(coppice_plan(&o, &less, &f->e) < 0);
}

// The block in the model's own file is the draft of who names none; "auto" also takes a draft that
// lies next to the model, "none" neither.
static void test_found_draft(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *draft;
        int block, has;
    } cases[] = {{NULL, 0, 0}, {"none", 0, 0}, {"auto", 0, 1},
                 {NULL, 1, 1}, {"none", 1, 0}, {"auto", 1, 1}};
    char folder[] = "/tmp/coppice-api-XXXXXX", target[64], draft[64];
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    assert_non_null(mkdtemp(folder));
    snprintf(target, sizeof target, "%s/t.gguf", folder);
    snprintf(draft, sizeof draft, "%s/d.gguf", folder);
    assert_int_equal(tiny_draft_write(&t, &d, draft, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct coppice_load_options o = options_of(f);
        struct coppice_info info = {.size = sizeof info};
        struct coppice_plan plan = {.size = sizeof plan};
        struct coppice_model *m = NULL;
        t.nextn = cases[i].block;
        assert_int_equal(tiny_target_write(&t, target, NULL), 0);
        o.model = target;
        o.draft = cases[i].draft;
        assert_int_equal(coppice_plan(&o, &plan, &f->e), 0);
        assert_int_equal(plan.draft > 0, cases[i].has);
        assert_int_equal(coppice_load(&m, &o, &f->e), 0);
        coppice_info(m, &info);
        assert_int_equal(info.has_draft, cases[i].has);
        coppice_free(m);
    }
    unlink(target);
    unlink(draft);
    rmdir(folder);
}

static void refuse(struct coppice_sequence *s, struct coppice_request r, int code,
                   const char *part) {
    struct coppice_error e = {0};
    int64_t n = coppice_sequence_length(s);
    assert_int_equal(coppice_generate(s, &r, NULL, &e), code);
    if (!strstr(e.text, part))
        fail_msg("'%s' lacks '%s'", e.text, part);
    assert_int_equal(coppice_sequence_length(s), n);
}

static void test_refused_requests(void **state) {
    struct fixture *f = *state;
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT), *none = NULL;
    struct coppice_request r = request_of(5);
    assert_int_equal(coppice_sequence_create(&none, f->m, NULL), 0);
    refuse(none, r, COPPICE_ERR_USAGE, "empty");
    coppice_sequence_free(none);
    r.size = 3;
    refuse(s, r, COPPICE_ERR_USAGE, "coppice_request");
    r = request_of(-1);
    refuse(s, r, COPPICE_ERR_USAGE, "max_tokens");
    r = request_of(5);
    r.speculate = 9;
    refuse(s, r, COPPICE_ERR_USAGE, "9");
    r = request_of(5);
    r.budget = 64;
    refuse(s, r, COPPICE_ERR_USAGE, "64");
    r = request_of(5);
    r.top_p = 1.5;
    refuse(s, r, COPPICE_ERR_USAGE, "top-p");
    r = request_of(5);
    r.n_bias = 1;
    refuse(s, r, COPPICE_ERR_USAGE, "bias_ids");
    assert_int_equal(coppice_sequence_append(s, (int32_t[]){5, 300}, 2, &f->e),
                     COPPICE_ERR_MISMATCH);
    assert_int_equal(coppice_sequence_length(s), N_PROMPT);
    int32_t many[CONTEXT] = {0};
    assert_int_equal(coppice_sequence_append(s, many, CONTEXT, NULL), 0);
    refuse(s, request_of(5), COPPICE_ERR_LIMIT, "300");
    assert_int_equal(coppice_sequence_cut(s, N_PROMPT, NULL), 0);
    r = request_of(0);
    struct coppice_result y = generate(s, &r);
    assert_int_equal(y.end, COPPICE_END_CONTEXT);
    assert_int_equal(y.tokens, CONTEXT - N_PROMPT);
    coppice_sequence_free(s);
}

struct worker {
    const struct fixture *f;
    uint64_t hash;
    int rc;
};

// Loads, generates and frees; asserts nothing, since it is no thread of cmocka's.
static void *work(void *arg) {
    struct worker *w = arg;
    struct coppice_load_options o = options_of(w->f);
    struct coppice_request r = request_of(TOKENS);
    struct coppice_result y = {.size = sizeof y};
    struct coppice_model *m = NULL;
    struct coppice_sequence *s = NULL;
    o.threads = 2;
    w->rc = coppice_load(&m, &o, NULL);
    if (!w->rc)
        w->rc = coppice_sequence_create(&s, m, NULL);
    if (!w->rc)
        w->rc = coppice_sequence_append(s, w->f->prompt, N_PROMPT, NULL);
    if (!w->rc)
        w->rc = coppice_generate(s, &r, &y, NULL);
    w->hash = y.logit_hash;
    coppice_sequence_free(s);
    coppice_free(m);
    return NULL;
}

static void test_models_in_threads(void **state) {
    struct fixture *f = *state;
    enum { MODELS = 3 };
    struct worker w[MODELS];
    pthread_t threads[MODELS];
    struct coppice_sequence *s = sequence_of(f, f->prompt, N_PROMPT);
    struct coppice_request r = request_of(TOKENS);
    for (int i = 0; i < MODELS; i++) {
        w[i] = (struct worker){.f = f};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    }
    uint64_t hash = generate(s, &r).logit_hash; // meanwhile, in a model of its own
    for (int i = 0; i < MODELS; i++) {
        WAIT_JOIN(threads[i], NULL);
        assert_int_equal(w[i].rc, 0);
        assert_int_equal(w[i].hash, hash);
    }
    coppice_sequence_free(s);
}

// What passes cost is kept in the folder that is named, and nowhere without one.
static void test_price_folder(void **state) {
    struct fixture *f = *state, own = *f;
    char folder[] = "/tmp/coppice-api-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    for (int kept = 0; kept < 2; kept++) {
        struct coppice_load_options o = options_of(f);
        struct coppice_request r = request_of(TOKENS);
        o.price_folder = kept ? folder : NULL;
        assert_int_equal(coppice_load(&own.m, &o, &own.e), 0);
        struct coppice_sequence *s = sequence_of(&own, f->prompt, N_PROMPT);
        generate(s, &r);
        coppice_sequence_free(s);
        coppice_free(own.m);
        assert_int_equal(rmdir(folder), kept ? -1 : 0); // it holds a file
        if (!kept)
            assert_int_equal(mkdir(folder, 0700), 0);
    }
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_as_engine),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_cut_and_fork),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_bias_and_logprobs),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_refused_loads),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_found_draft),
        cmocka_unit_test(test_refused_requests),
        cmocka_unit_test(test_price_folder),
        cmocka_unit_test(test_models_in_threads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
