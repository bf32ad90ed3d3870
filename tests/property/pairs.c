// SPDX-License-Identifier: Apache-2.0
// Random tiny model pairs; see pairs.h.
#include "property/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/mtp/mtp.h"
#include "ops/experts/pool.h"
#include "ops/experts/store.h"
#include "support/device.h"
#include "support/tiny_gguf.h"

static void choose_shape(struct tiny_shape *t, const struct pair *p, const char *level,
                         struct rng *g) {
    static const uint32_t types[] = {TYPE_F32,  TYPE_Q8_0, TYPE_Q4_K, TYPE_F16,
                                     TYPE_Q4_0, TYPE_BF16, TYPE_Q6_K, TYPE_Q8_0};
    static const int heads[][2] = {{2, 4}, {2, 2}, {1, 3}, {2, 6}};
    const int index = p->index;
    *t = tiny_shape_default();
    t->type = types[index % 8];
    t->vocab = 64 + (int)rng_below(g, 237);
    t->interval = index % 7 == 5 ? 1 : t->interval; // one in seven has no recurrent layers
    t->layers = 3 + (int)rng_below(g, 2);
    t->layers = index % 8 == 1 ? 8 : t->layers; // enough for pages in host memory
    t->key_heads = heads[index / 2 % 4][0];
    t->value_heads = heads[index / 2 % 4][1];
    t->heads = 2 + 2 * (int)rng_below(g, 2);
    t->state = 32;
    t->tied = rng_below(g, 2);
    t->fused = rng_below(g, 4) == 0;
    t->context = PAIR_CONTEXT;
    t->seed = (uint64_t)index * 2 + 1000;
    if (index % 5 == 2) { // one in five is a plain decoder
        static const enum tiny_form forms[] = {
            TINY_FORM_QWEN3,    TINY_FORM_LLAMA, TINY_FORM_QWEN2,  TINY_FORM_GEMMA4, TINY_FORM_GLM,
            TINY_FORM_DEEPSEEK, TINY_FORM_OSS,   TINY_FORM_LAGUNA, TINY_FORM_GEMMA3};
        enum { FORMS = sizeof forms / sizeof *forms };
        t->plain = true;
        if (!device_level(level))
            t->form = forms[index / 5 % FORMS];
        else if (index % 15 == 2)
            t->form = TINY_FORM_DEEPSEEK;
        t->interval = 1;
        bool half = t->form == TINY_FORM_GLM || t->form == TINY_FORM_DEEPSEEK ||
                    t->form == TINY_FORM_LAGUNA;
        t->rope_dims = half ? t->head_dim / 2 : t->head_dim;
        t->kv_heads = t->heads / 2;
        if (t->form == TINY_FORM_DEEPSEEK && device_level(level)) { // has kernels for such
            t->latent = 512;
            t->rope_dims = 64;
            t->heads = index % 2 ? 20 : t->heads;
        }
    }
    t->nextn = !t->plain || t->form == TINY_FORM_GLM || t->form == TINY_FORM_DEEPSEEK;
    t->nextn_own = index % 4 == 3;
    if (quant_format(t->type)->block == 256)
        t->dim = t->ffn = 256;
    bool gemma = t->form == TINY_FORM_GEMMA4; // half of them have experts, in one tensor or two
    if (gemma && index % 2 == 0)
        t->fused = false;
    if (t->form == TINY_FORM_GLM || t->form == TINY_FORM_DEEPSEEK || t->form == TINY_FORM_OSS ||
        t->form == TINY_FORM_LAGUNA || (gemma && index % 2) ||
        (index % 3 == 1 && t->form == TINY_FORM_QWEN3)) // most of one in three have experts
        tiny_shape_experts(t);
    // On a device those whose files are soon written have so many that slots can be lent.
    if (t->experts && t->form != TINY_FORM_DEEPSEEK && !p->brief && device_level(level) &&
        quant_format(t->type)->block < 256)
        t->experts = t->type == TYPE_F32 ? 200 : t->type == TYPE_Q8_0 ? 640 : 400;
}

static void choose_draft(struct tiny_draft_shape *d, const struct tiny_shape *t, int index,
                         struct rng *g) {
    static const int blocks[] = {8, 16, 4, 2};
    *d = tiny_draft_default(t);
    d->block = blocks[rng_below(g, 4)];
    d->window = rng_below(g, 2) ? 24 : 0;
    d->dialect = (index + index / 9) % 3;
    d->type = rng_below(g, 2) ? TYPE_Q8_0 : TYPE_F32;
    d->seed = (uint64_t)index * 2 + 1001;
    d->laguna = t->form == TINY_FORM_LAGUNA || index % 9 == 4; // with gates
    d->yarn = t->form == TINY_FORM_DEEPSEEK || t->form == TINY_FORM_OSS || index % 9 == 7;
    d->biased = t->form == TINY_FORM_OSS || index % 9 == 1;
    d->own = index % 9 == 3 || (t->form == TINY_FORM_LAGUNA && index % 2);
    if (d->own || index % 9 == 5)
        d->dialect = TINY_UPSTREAM;
    if (index % 9 == 5)
        d->conv = 1 + index % 3;
    if (index % 9 == 7) { // JetSpec
        d->dialect = index / 9 % 2 ? TINY_UPSTREAM : TINY_BEELLAMA;
        d->causal = 1;
    }
    if (index % 9 == 2 || index % 9 == 8) { // of any dialect
        d->gru = 32 << index / 9 % 2;
        d->skip = (int)rng_below(g, 2);
        d->shift = rng_below(g, 2);
    }
    if (index % 3 == 0 && (!d->own || index / 9 % 2)) {
        d->dialect = TINY_UPSTREAM;
        d->markov = true;
        d->gated = index / 9 % 2;
        d->anchor = index % 9 == 6 ? 0 : -1;
    }
}

// The exec of backend i: on a CPU the last one has two threads, on a device that would choose
// wgmma it takes mma.sync, which must give the same bits.
static int open_exec(struct pair_backend *b, int i, const char *level, struct err *e) {
    bool last = i == PAIR_BACKENDS - 1;
    if (last && (!strcmp(level, "cuda") || !strcmp(level, "cuda:wgmma")) &&
        device_open(&b->x, "cuda:mma", 0, e) == 0)
        return 0;
    return device_open(&b->x, level, last ? 2 : 1, e);
}

// Passes of more rows than PAIR_FEW, as most prompts and groups have, borrow slots, if there is
// room for what they work with; in some pairs for the smaller passes only. Scratch of ops is there
// all the time, since on some paths it is more than all of these slots.
static int take_loan(struct model_options *o, struct pair *p, const struct pair_backend *b,
                     struct err *e) {
    enum { PASSES = 2 };
    static const int lent[PASSES] = {96, 256};
    struct model_options own = *o;
    struct model_lending l = {0};
    struct model_plan plan[1 + PASSES];
    struct expert_layout layout;
    int rc = 0;
    own.max_verify = PAIR_FEW;
    for (int i = 0; i <= PASSES && !rc; i++) {
        own.max_rows = i ? lent[i - 1] : PAIR_FEW;
        rc = model_plan(&plan[i], NULL, b->x, p->file, &own, e);
    }
    if (!rc)
        rc = exec_reserve(b->x, &plan[PASSES].limits, e);
    l.own = plan[0].rows;
    expert_layout_of(&layout, &own.experts, l.own);
    for (int i = 0; i < PASSES && !rc; i++) {
        struct expert_loan loan;
        struct err none;
        int64_t bytes = plan[1 + i].room;
        if (expert_layout_lend(&layout, &own.experts, bytes, &loan, &none) || !loan.slots)
            continue;
        l.pass[l.n].rows = lent[i];
        l.pass[l.n++].bytes = bytes;
    }
    if (rc || !l.n)
        return rc;
    own.max_rows = PAIR_FEW;
    own.lending = l;
    *o = own;
    p->lends = true;
    return 0;
}

// On a device the first backend holds all experts, the second half of those that need not be there,
// the last none of these.
static int take_slots(struct model_options *o, struct pair *p, const struct pair_backend *b,
                      struct err *e) {
    struct model_plan plan;
    int i = (int)(b - p->b);
    if (!i || !exec_is_device(b->x))
        return 0;
    int rc = model_plan(&plan, NULL, b->x, p->file, o, e);
    if (rc || !plan.experts.n)
        return rc;
    int64_t min = expert_classes_min(&plan.experts), all = expert_classes_all(&plan.experts);
    rc = expert_classes_share(&plan.experts, i == 1 ? (min + all) / 2 : min, e);
    o->experts = plan.experts;
    return rc || i != 1 || p->brief ? rc : take_loan(o, p, b, e);
}

// In every other pair with experts those of the first layers are a CPU's, of one and two threads,
// and in one backend of the plainest kernels.
static int take_cpu(struct model_options *o, const struct pair *p, struct pair_backend *b,
                    struct err *e) {
    struct model_plan plan;
    int i = (int)(b - p->b);
    int rc = model_plan(&plan, NULL, b->x, p->file, o, e);
    if (rc || !plan.expert_layers || p->index % 2)
        return rc;
    o->cpu_experts = 1 + p->index / 2 % plan.expert_layers;
    rc = exec_create_cpu(&b->cpu, i == 1 ? "scalar" : "auto", 1 + i / 2, e);
    o->cpu = b->cpu;
    return rc;
}

// Where b[0] reads nothing, what it gives shows that reading changes no bit; where it does, all
// that is read can be compared.
static int open_hidden(struct pair_backend *b, const struct pair *p, struct err *e) {
    static const int32_t normed = MODEL_TAP_NORMED;
    if (p->index % 5 == 0 || (b == p->b && p->index % 5 < 3))
        return 0;
    b->hidden = calloc(1, sizeof *b->hidden);
    return b->hidden ? tap_reader_open(b->hidden, b->model, "hidden", &normed, 1, e)
                     : err_set(e, ERR_MEMORY, "no memory for a reader");
}

static int open_drafts(struct pair_backend *b, const struct pair *p, const char *const draft[2],
                       const enum kv_codec_id kv[2], struct err *e) {
    const struct dflash_options d = dflash_options_default();
    const struct mtp_options m = {.depth = 1 + p->index % 7,
                                  .codec_k = kv[0],
                                  .codec_v = kv[1],
                                  .vocab = {.rows = p->index % 3 == 2 ? 16 : 0}};
    const struct eagle3_options s = {
        .depth = m.depth, .codec_k = kv[0], .codec_v = kv[1], .vocab = m.vocab};
    const struct draft_source sources[] = {{.path = draft[0], .dflash = &d},
                                           {.path = DRAFT_OF_TARGET, .mtp = &m},
                                           {.path = draft[1], .eagle3 = &s}};
    const bool has[] = {true, p->block, p->eagle3};
    int rc = 0;
    for (int i = 0; i < PRICE_DRAFTS && !rc; i++) {
        if (!has[i])
            continue;
        rc = draft_open(&b->drafts[b->n_drafts], b->model, &sources[i], e);
        b->n_drafts += !rc;
    }
    return rc;
}

static int open_backend(struct pair_backend *b, struct pair *p, const enum kv_codec_id kv[2],
                        const char *const *draft, struct err *e) {
    struct model_options o = model_options_default();
    o.codec_k = kv[0];
    o.codec_v = kv[1];
    o.max_seqs = p->brief ? 2 : 16;
    o.view = (struct view_rule){.window = p->viewed ? KV_PAGE : 0, .chosen = p->chosen};
    if (p->brief)
        o.max_rows = o.max_verify = PAIR_FEW;
    int rc = 0;
    if (p->index % 8 == 1 && b != p->b)
        rc = kv_host_create(&b->pages.host, b->x, 64 << 20, e);
    o.pages = &b->pages;
    if (!rc)
        rc = take_cpu(&o, p, b, e);
    if (!rc)
        rc = take_slots(&o, p, b, e);
    if (!rc)
        rc = model_load(&b->model, b->x, p->file, &o, e);
    if (!rc)
        rc = open_hidden(b, p, e);
    return rc || !draft ? rc : open_drafts(b, p, draft, kv, e);
}

// All pairs of codecs in turn, every codec among any few that follow each other.
static void choose_codecs(int index, enum kv_codec_id kv[2]) {
    kv[0] = (enum kv_codec_id)(index % KV_CODEC_COUNT);
    kv[1] = (enum kv_codec_id)((index + index / KV_CODEC_COUNT) % KV_CODEC_COUNT);
}

int pair_open(struct pair *p, int index, const char *level, bool brief, struct err *e) {
    struct rng g = {(uint64_t)index * 77};
    struct tiny_shape t;
    struct tiny_draft_shape d;
    char target[64], draft[64], eagle3[64];
    const char *const drafts[2] = {draft, eagle3};
    if (!level)
        level = index % 23 == 3 ? "scalar" : "auto"; // with all types in turn
    enum kv_codec_id kv[2];
    choose_codecs(index, kv);
    *p = (struct pair){.index = index, .brief = brief, .viewed = index % 6 == 4};
    p->chosen = index % 12 == 4 || index % 16 == 9; // the latter with pages in host memory
    p->viewed = p->viewed || p->chosen;
    choose_shape(&t, p, level, &g);
    choose_draft(&d, &t, index, &g);
    p->vocab = t.vocab;
    p->block = t.nextn && index % 4 != 1; // else it is left alone
    p->eagle3 = index % 5 != 2 && (!p->block || (index % 2 && !brief));
    if (t.form == TINY_FORM_DEEPSEEK) // values are a part of the keys
        kv[1] = kv[0];
    snprintf(p->name, sizeof p->name, "pair %d: %s %s, KV %s/%s, %d/%d heads, B %d, %s", index,
             tiny_arch(&t), quant_format(t.type)->name, kv_codec_of(kv[0])->name,
             kv_codec_of(kv[1])->name, t.key_heads, t.value_heads, d.block, level);
    snprintf(target, sizeof target, "/tmp/coppice-exact-%d-t.gguf", (int)getpid());
    snprintf(draft, sizeof draft, "/tmp/coppice-exact-%d-d.gguf", (int)getpid());
    snprintf(eagle3, sizeof eagle3, "/tmp/coppice-exact-%d-e.gguf", (int)getpid());
    int rc = tiny_target_write(&t, target, e);
    if (!rc)
        rc = tiny_draft_write(&t, &d, draft, e);
    if (!rc && p->eagle3)
        rc = tiny_eagle3_write(&t, &d, eagle3, e);
    if (!rc)
        rc = gguf_open(&p->file, target, e);
    for (int i = 0; i < PAIR_BACKENDS && !rc; i++) {
        rc = open_exec(&p->b[i], i, level, e);
        if (!rc)
            rc = open_backend(&p->b[i], p, kv, i ? drafts : NULL, e);
    }
    unlink(target);
    unlink(draft);
    unlink(eagle3);
    return rc;
}

void pair_close(struct pair *p) {
    for (int i = 0; i < PAIR_BACKENDS; i++) {
        for (int k = 0; k < p->b[i].n_drafts; k++)
            draft_destroy(p->b[i].drafts[k]);
        if (p->b[i].hidden)
            tap_reader_close(p->b[i].hidden);
        free(p->b[i].hidden);
        model_destroy(p->b[i].model);
        kv_host_destroy(p->b[i].pages.host);
        exec_destroy(p->b[i].cpu);
        if (p->b[i].x)
            exec_destroy(p->b[i].x);
    }
    if (p->file)
        gguf_close(p->file);
    *p = (struct pair){0};
}
