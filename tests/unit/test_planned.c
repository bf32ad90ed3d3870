// SPDX-License-Identifier: Apache-2.0
// What plans say of keys and values is what sequences take, with windows and without: a model that
// is given exactly what its plan needs for a context decodes to the last token of it, and as many
// requests are taken up at once as fill their memory to the end without a preemption. And
// of every architecture each part of a plan is what its loads, sequences and texts allocate.
#include <stdio.h>
#include <string.h>

#include "base/memory/slabs.h"
#include "base/num.h"
#include "compress/score/score.h"
#include "engine/batch/batch.h"
#include "ops/exec.h"
#include "unit/engine_rig.h"
#include "unit/test.h"

enum { CONTEXT = 960, ROWS = 512, LONGEST = CONTEXT - 20 };

static const struct {
    enum tiny_form form;
    bool qwen35;
    int draft_window;
} kinds[] = {{TINY_FORM_QWEN3, true, 0},      {TINY_FORM_QWEN3, true, 24},
             {TINY_FORM_QWEN3, false, 24},    {TINY_FORM_GEMMA4, false, 0},
             {TINY_FORM_GEMMA4, false, 24},   {TINY_FORM_OSS, false, 0},
             {TINY_FORM_OSS, false, 24},      {TINY_FORM_LAGUNA, false, 0},
             {TINY_FORM_DEEPSEEK, false, 24}, {TINY_FORM_GEMMA3, false, 0}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct session *open_pair(const struct tiny_pair *files, int64_t max_ctx, int64_t memory) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct err e = {0};
    o.model = files->target;
    o.draft = files->draft;
    o.threads = 2;
    o.make_plan = true;
    o.target.max_ctx = max_ctx;
    o.target.memory_limit = memory;
    if (session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    return s;
}

// Texts of several lengths that go on to the end of the context, guessed in all ways, together with
// the same in as much memory as there is.
static void fill(struct session *s, struct session *open) {
    static const enum speculate ways[] = {SPECULATE_TREE, SPECULATE_LOOKUP, SPECULATE_OFF};
    static const int lengths[] = {LONGEST, 513, 130, 1};
    static int32_t prompt[LONGEST];
    struct rng g = {5};
    for (int i = 0; i < LONGEST; i++)
        prompt[i] = i % 200 < 100 ? i % 50 : (int32_t)rng_below(&g, 250);
    for (int i = 0; i < 4; i++) {
        struct request r;
        struct reply a = {0}, b = {0};
        struct err e = {0};
        request_init(&r);
        r.prompt = prompt;
        r.n_prompt = lengths[i];
        r.max_tokens = CONTEXT - lengths[i];
        r.ignore_eos = r.logit_hash = true;
        r.how = ways[i % 3];
        if (session_generate(s, &r, &a, &e))
            fail_msg("%s", e.text);
        assert_int_equal(session_generate(open, &r, &b, &e), 0);
        assert_int_equal(a.n, CONTEXT - lengths[i]);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.ids, b.ids, (size_t)a.n * sizeof *a.ids);
        assert_int_equal(a.hash, b.hash);
        reply_fini(&a);
        reply_fini(&b);
    }
}

static void the_planned_context_is_reached(void **state) {
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct tiny_shape t =
            kinds[i].qwen35 ? tiny_shape_default() : tiny_shape_form(kinds[i].form);
        struct tiny_pair files;
        assert_int_equal(tiny_pair_write_as(&files, "planned", &t, kinds[i].draft_window), 0);
        struct session *open = open_pair(&files, CONTEXT, 0);
        const struct memory_plan *p = session_plan(open);
        int64_t kv = plan_kv(p, CONTEXT), windows = 0, expected = 0;
        for (int k = 0; k < p->kv.n; k++) { // of a window a page of slack and two begun ones
            const struct kv_need *n = &p->kv.of[k];
            int64_t held = n->window ? (n->window + n->late + ROWS + 2 * 64 - 1 + 63) / 64 : 15;
            windows += n->window > 0;
            expected += held * n->page_bytes;
        }
        const bool windowed = kinds[i].draft_window || t.form == TINY_FORM_GEMMA4 ||
                              t.form == TINY_FORM_OSS || t.form == TINY_FORM_LAGUNA ||
                              t.form == TINY_FORM_GEMMA3;
        assert_int_equal(windows > 0, windowed);
        assert_int_equal(kv, expected);
        struct session *s = open_pair(&files, 0, plan_total(p));
        assert_int_equal(session_plan(s)->context, CONTEXT);
        assert_int_equal(session_kv_limit(s), kv);
        fill(s, open);
        assert_true(session_kv_used(s) <= kv);
        session_close(s);
        session_close(open);
        tiny_pair_remove(&files);
    }
}

enum { PROMPT = 500, NEW = 100, MANY = 5 };

// Counts the streams that run, in the engine thread.
struct crowd {
    struct engine_rig rig;
    struct stream *s[MANY];
    int at_once;
};

static void count(void *arg) {
    struct crowd *c = arg;
    int n = 0;
    pthread_mutex_lock(&c->rig.gate); // open when all are in the queue
    for (int i = 0; i < MANY; i++) {
        enum stream_phase p = stream_progress(c->s[i]).phase;
        n += p == STREAM_READING || p == STREAM_DECODING;
    }
    c->at_once = n > c->at_once ? n : c->at_once;
    pthread_mutex_unlock(&c->rig.gate);
    rig_notice(&c->rig);
}

// pass: pages of a window besides those of three that decode; at_once: texts that fit.
static void as_many_join_as_fit(enum tiny_form form, int pass, int at_once) {
    static const int lengths[MANY] = {PROMPT, PROMPT, PROMPT, PROMPT, PROMPT};
    static struct crowd c;
    struct tiny_shape t = tiny_shape_form(form);
    c = (struct crowd){0};
    assert_int_equal(rig_open_as(&c.rig, "crowd", &t, lengths, MANY, NEW), 0);
    struct engine_options o = engine_options_default();
    o.slots = MANY;
    // Each text takes 600 tokens, 10 pages. A window of 48 has 4 while it decodes: with up to 33
    // tokens reserved, and slack.
    int windows = 0;
    for (int k = 0; k < c.rig.plan.kv.n; k++) {
        const struct kv_need *n = &c.rig.plan.kv.of[k];
        o.kv_limit += n->page_bytes * (n->window ? 3 * 4 + pass : 3 * 10);
        windows += n->window == TINY_WINDOW;
    }
    assert_int_equal(windows, 1);
    struct engine *g = rig_engine(&c.rig, &o);
    pthread_mutex_lock(&c.rig.gate);
    for (int i = 0; i < MANY; i++) {
        struct stream_options so = {.r = c.rig.r[i], .notify = count, .notify_arg = &c};
        so.r.max_tokens = NEW;
        assert_int_equal(engine_submit(g, &so, &c.s[i], NULL), 0);
    }
    pthread_mutex_unlock(&c.rig.gate);
    for (int i = 0; i < MANY; i++) {
        struct stream_end end = rig_end(&c.rig, c.s[i]);
        const int32_t *ids;
        if (end.rc)
            fail_msg("%s", end.err.text);
        assert_int_equal(stream_tokens(c.s[i], &ids), NEW);
        assert_memory_equal(ids, c.rig.alone[i].ids, (size_t)c.rig.alone[i].n * sizeof *ids);
    }
    struct engine_stats y = engine_stats(g);
    assert_int_equal(y.parkings, 0);
    assert_int_equal(y.failed, 0);
    assert_int_equal(c.at_once, at_once);
    engine_destroy(g);
    for (int i = 0; i < MANY; i++)
        stream_release(c.s[i]);
    rig_close(&c.rig);
}

static void as_many_join_as_their_windows_let(void **state) {
    (void)state;
    static const enum tiny_form forms[] = {TINY_FORM_GEMMA4, TINY_FORM_OSS, TINY_FORM_LAGUNA,
                                           TINY_FORM_GEMMA3};
    // A pass of 512 rows takes 7 pages more in windows, and 1 for each other prompt.
    for (int i = 0; i < 4; i++) {
        as_many_join_as_fit(forms[i], 7 + 2, 3);
        as_many_join_as_fit(forms[i], 0, 2);
    }
}

// A device whose memory is taken in slabs and never touched.
struct device {
    struct slabs slabs;
    int64_t next;
    struct ops ops;
};
static struct device device;

static void *source_take(void *arg, size_t bytes) {
    struct device *d = arg;
    unsigned char *base = NULL;
    d->next += (int64_t)bytes;
    return base + d->next;
}

static void source_give(void *arg, void *p) {
    (void)arg;
    (void)p;
}

static void *take_block(struct exec *x, enum exec_arena arena, size_t bytes) {
    (void)x;
    return slabs_take(&device.slabs, arena, bytes);
}

static void give_block(struct exec *x, void *p) {
    (void)x;
    slabs_give(&device.slabs, p);
}

static int reserve_all(struct kv *kv, int n, int64_t tokens, struct err *e) {
    int rc = 0;
    for (int g = 0; !rc && g < n; g++)
        rc = kv_reserve(&kv[g], tokens, e);
    for (int g = 0; rc && g < n; g++)
        kv_release(&kv[g], (kv[g].len + KV_PAGE - 1) / KV_PAGE);
    return rc;
}

// As the engine does (engine/loop/admission.c): what free pages hold is given back where memory is
// missing.
static int grow(struct kv *kv, int n, int64_t tokens, struct kv_budget *b, struct err *e) {
    int rc = reserve_all(kv, n, tokens, e);
    if (rc == ERR_MEMORY) {
        kv_budget_trim(b);
        slabs_trim(&device.slabs);
        rc = reserve_all(kv, n, tokens, e);
    }
    for (int g = 0; !rc && g < n; g++)
        kv_advance(&kv[g], tokens);
    return rc;
}

// A prompt in pieces, then steps.
static int64_t next_step(int64_t len, int64_t prompt, int64_t step, struct rng *r) {
    if (len >= prompt)
        return 1 + rng_below(r, 33);
    int64_t n = rng_below(r, 2) ? step : 64 + rng_below(r, (uint32_t)step - 64);
    return min_i64(n, prompt - len);
}

static void drop(struct kv *kv, int n) {
    for (int g = 0; g < n; g++)
        kv_truncate(&kv[g], 0);
}

// A sequence goes to the end of the context, alone or together with one that begins again whenever
// pages or memory are spent. Alone it always finds room, unless the other has left its pages in
// disorder; then it does when it has begun again, too.
static void run_texts(struct kv kv[2][4], const struct memory_plan *p, struct kv_budget *b,
                      struct rng *r, int texts) {
    int64_t max = p->context, prompt[2] = {max / 4 * (1 + rng_below(r, 4)), 0};
    bool ordered = texts == 1;
    while (kv[0][0].len < max) {
        int i = ordered ? 0 : (int)rng_below(r, 2);
        struct err e = {0};
        if (kv[i][0].len == 0 && i)
            prompt[1] = 1 + (int64_t)rng_below(r, (uint32_t)max);
        int64_t n = next_step(kv[i][0].len, prompt[i], p->step, r);
        n = min_i64(n, max - kv[i][0].len);
        int rc = grow(kv[i], p->kv.n, n, b, &e);
        if (rc && !ordered) {
            drop(kv[1], p->kv.n);
            rc = i ? 0 : grow(kv[0], p->kv.n, n, b, &e);
        }
        if (rc == ERR_MEMORY && !ordered) {
            prompt[0] = kv[0][0].len;
            drop(kv[0], p->kv.n);
            kv_budget_trim(b);
            ordered = true;
            rc = 0;
        }
        if (rc)
            fail_msg("%lld of %lld tokens: %s", (long long)kv[i][0].len, (long long)max, e.text);
    }
    drop(kv[0], p->kv.n);
    drop(kv[1], p->kv.n);
    kv_budget_trim(b);
}

// Groups of layers: number, kv heads, length of a head, window.
struct layers {
    int n, heads, dim, window;
};

static void fill_device(struct exec *x, const struct layers *of, int64_t available, bool q8,
                        struct rng *r) {
    struct memory_plan p = {.step = 2048, .trained = 262144, .slabs = true, .available = available};
    struct kv_budget b = {0};
    struct kv_pool *pool[4];
    struct kv kv[2][4];
    device.slabs = (struct slabs){.source = {source_take, source_give, &device}};
    device.slabs.limit = available + slabs_vain() / SLABS_ARENAS; // as is planned for an arena
    for (int g = 0; g < 4 && of[g].n; g++) {
        enum kv_codec_id codec = q8 ? KV_Q8_0 : KV_F16;
        struct kv_shape s = {of[g].n, of[g].heads, of[g].dim, of[g].dim, false, codec, codec};
        struct kv_layout l;
        assert_int_equal(kv_layout_init(&l, &s, NULL), 0);
        assert_int_equal(kv_pool_create(&pool[g], x, &l, 0, NULL), 0);
        kv_pool_join(pool[g], &b);
        kv_needs_add(&p.kv, &l, of[g].window, 0);
        for (int i = 0; i < 2; i++)
            kv_init(&kv[i][g], pool[g], of[g].window);
    }
    p.context = plan_longest(&p);
    assert_true(p.context > 0 && plan_total(&p) <= available);
    b.limit = plan_pages_in(&p, available);
    for (int round = 0; round < 4; round++)
        run_texts(kv, &p, &b, r, 1 + round / 2);
    for (int g = 0; g < p.kv.n; g++)
        kv_pool_destroy((kv_fini(&kv[0][g]), kv_fini(&kv[1][g]), pool[g]));
    slabs_fini(&device.slabs);
}

static void planned_pages_fit_a_devices_slabs(void **state) {
    (void)state;
    static const struct layers models[][4] = {
        {{12, 8, 64, 0}, {12, 8, 64, 128}},                                        // gpt-oss-20b
        {{10, 4, 512, 0}, {50, 16, 256, 1024}},                                    // Gemma 4 31B,
        {{10, 4, 512, 0}, {50, 16, 256, 1024}, {4, 8, 128, 2048}, {1, 8, 128, 0}}, // with its draft
        {{10, 8, 128, 0}, {30, 8, 128, 512}},                                      // Laguna XS.2
        {{16, 4, 256, 0}, {4, 8, 128, 2048}, {1, 8, 128, 0}}, // Qwen3.5-27B with its draft
        {{36, 8, 128, 0}},
        {{17, 8, 96, 0}}};
    struct exec *x = NULL;
    struct rng r = {21};
    assert_int_equal(exec_create_cpu(&x, "scalar", 1, NULL), 0);
    const struct ops *own = x->ops;
    device.ops = *own;
    device.ops.free = give_block;
    x->ops = &device.ops;
    x->alloc_in = take_block;
    for (int i = 0; i < 7 * 6; i++) {
        int64_t available = (4096 + (int64_t)rng_below(&r, 12000)) * (1 << 20);
        fill_device(x, models[i / 6], available, i % 2, &r);
    }
    x->ops = own;
    x->alloc_in = NULL;
    exec_destroy(x);
}

// What an exec of the CPU has allocated for all that run on it: bytes by arena, now and at most.
// Weights and activations are counted where their memory comes from (see the CMakeLists.txt of
// tests), not by the sizes that plans request.
enum { BLOCKS = 4096 };
static struct {
    struct ops ops;
    const struct ops *own;
    void *(*own_in)(struct exec *x, enum exec_arena arena, size_t bytes);
    int64_t now[EXEC_ARENAS], max[EXEC_ARENAS];
    int n;
    struct block {
        void *p;
        int64_t bytes;
        enum exec_arena arena;
    } block[BLOCKS];
} taken;
static bool weighing;
static int64_t weighed;

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__real_pages_alloc(void *pages, size_t bytes);
void *__wrap_pages_alloc(void *pages, size_t bytes);

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    weighed += weighing ? (int64_t)bytes : 0;
    return __real_aligned_alloc(alignment, bytes);
}

void *__wrap_pages_alloc(void *pages, size_t bytes) {
    void *p = __real_pages_alloc(pages, bytes);
    weighed += (int64_t)bytes;
    return p;
}

static void *note_taken(void *p, int64_t bytes, enum exec_arena arena) {
    assert_true(p && taken.n < BLOCKS);
    taken.block[taken.n++] = (struct block){p, bytes, arena};
    taken.now[arena] += bytes;
    taken.max[arena] = max_i64(taken.max[arena], taken.now[arena]);
    return p;
}

static void note_given(const void *p) {
    int i = taken.n - 1;
    while (i >= 0 && taken.block[i].p != p)
        i--;
    assert_true(i >= 0 || !p);
    if (!p)
        return;
    taken.now[taken.block[i].arena] -= taken.block[i].bytes;
    taken.block[i] = taken.block[--taken.n];
}

static void *counted_in(struct exec *x, enum exec_arena arena, size_t bytes) {
    return note_taken(taken.own->alloc(x, bytes), (int64_t)bytes, arena);
}

static void *counted_alloc(struct exec *x, size_t bytes) {
    return counted_in(x, ARENA_WORK, bytes);
}

static void counted_free(struct exec *x, void *p) {
    note_given(p);
    taken.own->free(x, p);
}

static int counted_weight(struct exec *x, const struct tensor *t, struct weight **out,
                          struct err *e) {
    weighed = 0;
    int rc = taken.own->weight_create(x, t, out, e);
    assert_int_equal(rc, 0);
    note_taken(*out, weighed, ARENA_WEIGHTS);
    return rc;
}

static void counted_weight_end(struct exec *x, struct weight *w) {
    note_given(w);
    taken.own->weight_destroy(x, w);
}

static int counted_act(struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e) {
    weighed = 0;
    weighing = true;
    int rc = taken.own->act_create(x, n, k, out, e);
    weighing = false;
    assert_int_equal(rc, 0);
    note_taken(*out, weighed, ARENA_WORK);
    return rc;
}

static void counted_act_end(struct exec *x, struct act *a) {
    note_given(a);
    taken.own->act_destroy(x, a);
}

static void count_from(struct exec *x) {
    memset(&taken, 0, sizeof taken);
    taken.own = x->ops;
    taken.ops = *x->ops;
    taken.own_in = x->alloc_in;
    taken.ops.alloc = counted_alloc;
    taken.ops.free = counted_free;
    taken.ops.weight_create = counted_weight;
    taken.ops.weight_destroy = counted_weight_end;
    taken.ops.act_create = counted_act;
    taken.ops.act_destroy = counted_act_end;
    x->ops = &taken.ops;
    x->alloc_in = counted_in;
}

static void count_to(struct exec *x) {
    assert_int_equal(taken.n, 0); // all of it has been given back
    x->ops = taken.own;
    x->alloc_in = taken.own_in;
}

enum { ARCHITECTURES = 12 };
static struct tiny_shape architecture(int i) {
    static const enum tiny_form forms[] = {TINY_FORM_QWEN3,    TINY_FORM_QWEN3,  TINY_FORM_QWEN3,
                                           TINY_FORM_QWEN3,    TINY_FORM_QWEN2,  TINY_FORM_LLAMA,
                                           TINY_FORM_GLM,      TINY_FORM_GEMMA4, TINY_FORM_OSS,
                                           TINY_FORM_DEEPSEEK, TINY_FORM_LAGUNA, TINY_FORM_GEMMA3};
    struct tiny_shape t = i < 2 ? tiny_shape_default() : tiny_shape_form(forms[i]);
    if (i == 1 || i == 3)
        tiny_shape_experts(&t);
    t.seed = (uint64_t)i;
    return t;
}

// The sentence about an unknown architecture lists all that there are; each has its turn here.
static void no_architecture_is_missing(void **state) {
    (void)state;
    static const char path[] = "/tmp/coppice-planned-unknown.gguf";
    const struct model_options o = model_options_default();
    struct gguf_writer *w;
    struct gguf *g;
    struct model_plan p;
    struct err e = {0};
    assert_int_equal(gguf_writer_open(&w, path, &e), 0);
    gguf_put_str(w, "general.architecture", "elm", 3);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(model_plan(&p, NULL, NULL, g, &o, &e), ERR_UNSUPPORTED);
    gguf_close(g);
    remove(path);
    int listed = 0, known = 0;
    char *rest = strstr(e.text, "one of: ");
    assert_non_null(rest);
    for (char *name = strtok(rest + 8, ", "); name; name = strtok(NULL, ", ")) {
        listed++;
        for (int i = 0; i < ARCHITECTURES; i++) {
            struct tiny_shape t = architecture(i);
            known += !strcmp(tiny_arch(&t), name);
        }
    }
    assert_int_equal(listed, ARCHITECTURES);
    assert_int_equal(known, ARCHITECTURES);
}

enum { TEXT = 960, PIECE = 160, VARIANTS = 6 }; // the text ends with a piece

// A way to load a pair: without a draft, with one, with one that has a window.
static struct session_options variant(const struct tiny_pair *files, int i) {
    static const enum kv_codec_id codecs[][2] = {
        {KV_F16, KV_F16}, {KV_Q8_0, KV_Q8_0}, {KV_F32, KV_F32}};
    struct session_options o = session_options_default();
    o.model = files->target;
    o.draft = i % 3 ? files->draft : NULL;
    o.device = "cpu";
    o.make_plan = true;
    o.target.max_ctx = TEXT;
    o.target.max_rows = o.chunk = PIECE;
    o.target.max_seqs = 1 + i % 4;
    o.target.codec_k = codecs[i / 2][0];
    o.target.codec_v = codecs[i / 2][1];
    if (i % 2)
        o.target.sparse = (struct sparse_rule){.on = true, .alpha = 0.9f, .sinks = 1, .window = 2};
    return o;
}

// What plans say of a save of recurrent states is what one takes.
static void save(struct session *s, const struct session_options *o, const struct sequence *text) {
    struct model_plan p;
    struct err e = {0};
    struct checkpoint *c;
    const int64_t before = taken.now[ARENA_STATES];
    assert_int_equal(
        model_plan(&p, NULL, model_exec(session_model(s)), session_file(s), &o->target, &e), 0);
    assert_int_equal(sequence_checkpoint(text, &c, &e), 0);
    const int64_t more = taken.now[ARENA_STATES] - before;
    assert_true(o->draft ? more >= p.checkpoint : more == p.checkpoint);
    checkpoint_destroy(c);
    assert_int_equal(taken.now[ARENA_STATES], before);
}

// A prompt to the end of the context, then several texts that are guessed and go on to it.
static void texts(struct session *s, const struct session_options *o) {
    static int32_t prompt[TEXT];
    const struct memory_plan *p = session_plan(s);
    struct sequence *text = NULL;
    struct err e = {0};
    int64_t slack = 0;
    for (int i = 0; i < TEXT; i++)
        prompt[i] = 2 + i % 211;
    for (int i = 0; i < p->kv.n; i++) // windows may lie well, and a draft may have nothing waiting
        slack += p->kv.of[i].window ? (1 + (p->kv.of[i].late > 0)) * p->kv.of[i].page_bytes : 0;
    if (session_prefill(s, prompt, TEXT - 1, &text, &e))
        fail_msg("%s", e.text);
    assert_in_range(taken.max[ARENA_PAGES], plan_kv(p, TEXT) - slack, plan_kv(p, TEXT));
    save(s, o, text);
    sequence_destroy(text);
    session_trim(s);
    assert_int_equal(taken.now[ARENA_PAGES], 0);
    struct request r[4];
    struct reply y[4];
    const int n = o->target.max_seqs;
    for (int i = 0; i < n; i++) {
        request_init(&r[i]);
        r[i].prompt = prompt + 7 * i;
        r[i].n_prompt = 200 / n - 9 * i;
        r[i].max_tokens = 30;
        r[i].ignore_eos = true;
        r[i].how = o->draft ? SPECULATE_TREE : SPECULATE_LOOKUP;
    }
    assert_int_equal(session_generate_many(s, r, n, y, NULL, &e), 0);
    for (int i = 0; i < n; i++)
        reply_fini(&y[i]);
}

static void each_part_is_what_is_planned(const struct tiny_pair *files, int how) {
    struct session_options o = variant(files, how);
    struct device_options d = {.name = "cpu", .threads = 2, .memory_limit = 1 << 30};
    struct runtime_device *cpu;
    struct session *s;
    struct sequence *text[4];
    struct err e = {0};
    assert_int_equal(runtime_create(&o.runtime, &e), 0);
    assert_int_equal(runtime_device(o.runtime, &d, &cpu, &e), 0);
    struct exec *x = runtime_exec(cpu);
    count_from(x);
    if (session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    const struct memory_plan *p = session_plan(s);
    assert_int_equal(taken.now[ARENA_WEIGHTS], p->weights + p->draft);
    assert_int_equal(taken.now[ARENA_WORK], p->scratch);
    assert_int_equal(taken.now[ARENA_STATES] + taken.now[ARENA_PAGES], 0);
    for (int i = 0; i < o.target.max_seqs; i++)
        assert_int_equal(model_sequence(session_model(s), &text[i], &e), 0);
    assert_int_equal(taken.now[ARENA_STATES], p->state);
    for (int i = 0; i < o.target.max_seqs; i++)
        sequence_destroy(text[i]);
    texts(s, &o);
    assert_int_equal(taken.now[ARENA_WEIGHTS], p->weights + p->draft);
    assert_int_equal(taken.max[ARENA_WORK], p->scratch); // a pass takes nothing more
    assert_int_equal(session_kv_limit(s), plan_kv(p, TEXT));
    assert_true(taken.max[ARENA_PAGES] <= session_kv_limit(s));
    session_close(s);
    count_to(x);
    runtime_destroy(o.runtime);
}

// All variants with quantised weights; with others and a head of its own half of them of some
// architectures and one of each other. A build that checks is slow, and has half of the former,
// whose odd numbers and even ones take turns.
enum { CHECKED = TEST_BRIEF && !TEST_LONG, SOME = TEST_LONG ? 1 : 4 };

static void every_architecture_takes_what_is_planned(void **state) {
    (void)state;
    for (int i = 0; i < ARCHITECTURES; i++) {
        for (int quantised = CHECKED; quantised < 2; quantised++) {
            struct tiny_shape t = architecture(i);
            struct tiny_pair files;
            t.type = quantised ? TYPE_Q8_0 : TYPE_F16;
            t.tied = quantised;
            assert_int_equal(tiny_pair_write_as(&files, "parts", &t, quantised ? 24 : 0), 0);
            const bool one = !quantised && i % SOME;
            const int step = one ? VARIANTS : CHECKED || !quantised ? 2 : 1;
            const int first = one ? i % VARIANTS : CHECKED ? i % 2 : quantised;
            for (int how = first; how < VARIANTS; how += step)
                each_part_is_what_is_planned(&files, how);
            tiny_pair_remove(&files);
        }
    }
}

// A scorer of a prompt of n tokens, and what its plan for them says.
static void scorer_takes_what_is_planned(const struct gguf *g, bool dense, int64_t n) {
    static int32_t ids[TEXT];
    static float out[TEXT];
    struct score_options o = score_options_default();
    struct score_plan p;
    struct scorer *s;
    struct exec *x;
    struct err e = {0};
    o.dense = dense;
    o.chunk = 128;
    for (int i = 0; i < TEXT; i++)
        ids[i] = i % 251;
    assert_int_equal(exec_create_cpu(&x, "auto", 2, &e), 0);
    count_from(x);
    assert_int_equal(score_plan_of(&p, x, g, &o, n, &e), 0);
    assert_int_equal(score_open(&s, x, g, &o, &e), 0);
    assert_int_equal(taken.now[ARENA_WEIGHTS], p.weights);
    assert_int_equal(taken.now[ARENA_WORK], p.chunk);
    const struct score_call c = {.ids = ids, .n = n, .query = n - 9, .out = out};
    assert_int_equal(s->kind->score(s, &c, &e), 0);
    assert_int_equal(taken.max[ARENA_WORK], p.total - p.weights);
    s->kind->destroy(s);
    count_to(x);
    exec_destroy(x);
}

static void scorers_take_what_is_planned(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_plain();
    struct tiny_pair files;
    struct gguf *g;
    t.type = TYPE_Q8_0;
    assert_int_equal(tiny_pair_write_as(&files, "scored", &t, 0), 0);
    assert_int_equal(gguf_open(&g, files.target, NULL), 0);
    for (int i = 0; i < 4; i++)
        scorer_takes_what_is_planned(g, i % 2, i < 2 ? TEXT - 64 : TEXT - 61);
    gguf_close(g);
    tiny_pair_remove(&files);
}

static void keep_note(void *arg, const char *sentence) {
    snprintf(arg, sizeof((struct err *)0)->text, "%s", sentence);
}

// Opens the pair with codecs that are chosen; the codec of values, and the note or the error in
// said.
static enum kv_codec_id chosen(const struct tiny_pair *files, int64_t max_ctx, int64_t memory,
                               bool keys, char *said) {
    struct session_options o = session_options_default();
    struct session *s;
    struct err e = {0};
    o.model = files->target;
    o.threads = 2;
    o.target.max_ctx = max_ctx;
    o.target.memory_limit = memory;
    o.choose_k = keys;
    o.choose_v = true;
    o.target.codec_k = keys ? KV_F16 : KV_Q4_0;
    o.note = keep_note;
    o.note_arg = said;
    said[0] = 0;
    if (session_open(&s, &o, &e)) {
        snprintf(said, sizeof e.text, "%s", e.text);
        return KV_CODEC_COUNT;
    }
    enum kv_codec_id k = session_codec(s, false), v = session_codec(s, true);
    assert_int_equal(k, keys ? v : KV_Q4_0);
    session_close(s);
    return v;
}

// --kv-type auto: f16 where the context fits so, else q8_0, never fewer bits; and it says so.
static void codecs_step_down(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_plain();
    struct tiny_pair files;
    struct err e;
    int64_t need[2];
    char said[sizeof e.text];
    assert_int_equal(tiny_pair_write_as(&files, "codecs", &t, 0), 0);
    for (int i = 0; i < 2; i++) {
        struct session_options o = session_options_default();
        struct memory_plan p;
        o.model = files.target;
        o.make_plan = true;
        o.target.max_ctx = CONTEXT;
        o.target.codec_k = o.target.codec_v = i ? KV_Q8_0 : KV_F16;
        assert_int_equal(session_measure(&o, &p, &e), 0);
        need[i] = plan_total(&p);
    }
    assert_int_equal(chosen(&files, CONTEXT, need[0], true, said), KV_F16);
    assert_non_null(strstr(said, "keys and values are stored as f16"));
    assert_int_equal(chosen(&files, CONTEXT, need[0] - 1, true, said), KV_Q8_0);
    assert_non_null(strstr(said, "keys and values are stored as q8_0: as f16"));
    assert_int_equal(chosen(&files, CONTEXT, need[1], true, said), KV_Q8_0);
    assert_int_equal(chosen(&files, CONTEXT, need[1] - 1, true, said), KV_CODEC_COUNT);
    assert_non_null(strstr(said, "too little"));
    assert_int_equal(chosen(&files, 0, need[1], true, said), KV_Q8_0); // the longer context
    assert_int_equal(chosen(&files, 0, 0, true, said), KV_F16);
    assert_non_null(strstr(said, "no limit of memory is known"));
    assert_int_equal(chosen(&files, CONTEXT, need[1], false, said), KV_Q8_0);
    assert_int_equal(strncmp(said, "values are stored as q8_0", 25), 0);
    tiny_pair_remove(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_step_down),
        cmocka_unit_test(no_architecture_is_missing),
        cmocka_unit_test(scorers_take_what_is_planned),
        cmocka_unit_test(every_architecture_takes_what_is_planned),
        cmocka_unit_test(the_planned_context_is_reached),
        cmocka_unit_test(planned_pages_fit_a_devices_slabs),
        cmocka_unit_test(as_many_join_as_their_windows_let),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
