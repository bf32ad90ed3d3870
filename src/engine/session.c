// SPDX-License-Identifier: Apache-2.0
// Opening a pair; see session.h. Sizes are known from dry loads before anything large is loaded.
#include "engine/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "formats/quant.h"
#include "ops/observe/importance.h"
#include "ops/observe/timing.h"

struct lent_budget {
    struct budget *budget;
    bool lent; // to a request
};

struct session {
    struct session_options o;
    struct exec *x;
    struct gguf *file;
    struct model *model;
    struct dflash *draft;
    struct tokenizer *tokenizer;
    struct drafter *drafter;     // the draft as all members of a step ask it; NULL without a draft
    struct price *price;         // what passes and drafts take here
    struct lent_budget *budgets; // [n_budgets] what guesses of texts so far were worth
    int n_budgets;
    struct memory_plan plan;
    bool planned;
    bool rows_open; // the caller leaves the rows of a prompt's pass to the chunk
    double load_ms;
};

struct session_options session_options_default(void) {
    return (struct session_options){.device = "auto",
                                    .cpu_level = "auto",
                                    .cuda_path = CUDA_PATH_AUTO,
                                    .target = model_options_default(),
                                    .dflash = dflash_options_default(),
                                    .chunk = 0};
}

static void note(const struct session *s, const char *sentence) {
    if (sentence[0] && s->o.note)
        s->o.note(s->o.note_arg, sentence);
}

// The GPU of `choice`. With "auto" a GPU that fails to open is passed over: s->x stays NULL.
static int open_gpu(struct session *s, int device, bool may_pass, struct err *e) {
    struct cuda_options o = {.device = device,
                             .limit = s->o.vram_limit,
                             .path = s->o.cuda_path,
                             .vendor_gemm = s->o.vendor_gemm};
    int rc = exec_create_cuda(&s->x, &o, e);
    if (!may_pass || (rc != ERR_DEVICE && rc != ERR_MEMORY))
        return rc;
    char sentence[sizeof e->text];
    snprintf(sentence, sizeof sentence, "%.400s (the CPU is used)", e->text);
    note(s, sentence);
    return 0;
}

static int open_device(struct session *s, struct err *e) {
    struct device_request want;
    struct device_choice choice = {.device = DEVICE_CPU_NUMBER};
    int rc = device_request_parse(&want, s->o.device, e);
    if (!rc && want.want != DEVICE_CPU) {
        struct device_survey found;
        exec_survey_cuda(&found);
        rc = device_choose(&choice, &want, &found, e);
    }
    if (!rc)
        note(s, choice.note);
    if (!rc && choice.device >= 0)
        rc = open_gpu(s, choice.device, want.want == DEVICE_AUTO, e);
    if (!rc && !s->x && s->o.vendor_gemm)
        return err_set(e, ERR_UNSUPPORTED,
                       "--prompt-gemm vendor needs a GPU and the CPU is used; leave it out");
    return rc || s->x ? rc : exec_create_cpu(&s->x, s->o.cpu_level, s->o.threads, e);
}

// Bytes of 32 keys or values of a type.
static int fill_plan(struct session *s, struct err *e) {
    struct memory_plan *p = &s->plan;
    struct model_params params;
    struct model_plan t;
    struct dflash_plan d = {0};
    int rc = model_plan(&t, &params, s->x, s->file, &s->o.target, e);
    if (rc)
        return err_prefix(e, "%s", s->o.model);
    if (s->o.draft) {
        struct dflash_plan_args args = {s->x, s->file, &s->o.target, s->o.draft, &s->o.dflash};
        rc = dflash_plan(&d, &args, e);
    }
    if (rc)
        return rc;
    const struct model_options *o = &s->o.target;
    struct exec_memory m;
    exec_limits_join(&t.limits, &d.limits);
    exec_memory_of(s->x, &m);
    int64_t kv = t.kv_per_1k + d.kv_per_1k;
    int64_t own = kv_codec_bytes(o->codec_k, 32) + kv_codec_bytes(o->codec_v, 32);
    *p = (struct memory_plan){.weights = t.weights,
                              .draft = d.weights,
                              .scratch = t.scratch + d.scratch + exec_own_bytes(s->x, &t.limits),
                              .state = (t.recurrent + d.pending) * max_i64(o->max_seqs, 1),
                              .kv_per_1k = kv,
                              .window_per_1k = d.window_per_1k,
                              .window = d.window,
                              .kv_per_1k_q8 = kv / own * 2 * kv_codec_bytes(KV_Q8_0, 32),
                              .available = exec_is_device(s->x) ? m.free + m.used : o->memory_limit,
                              .trained = params.context};
    return 0;
}

static void set_chunk(struct session *s, int rows) {
    s->o.chunk = rows;
    if (s->rows_open)
        s->o.target.max_rows = rows;
}

enum { ROWS = 512, DEVICE_ROWS = 3072, VENDOR_ROWS = 6144 };

// Rows of a prompt's pass. On a device many share the unpacking of the weights; 3072 are whole
// tiles of 192 and of 256 rows, and the vendor's library gains by more.
static int rows_for(const struct session *s) {
    if (!exec_is_device(s->x))
        return ROWS;
    return s->o.vendor_gemm ? VENDOR_ROWS : DEVICE_ROWS;
}

// Decides the context, and the rows of a prompt's pass where that is left open, before anything
// large is loaded. Fewer rows are taken where the context would not fit beside them.
static int settle(struct session *s, struct err *e) {
    bool open = s->o.chunk == 0, device = exec_is_device(s->x);
    s->rows_open = s->o.target.max_rows == 0;
    set_chunk(s, open ? rows_for(s) : s->o.chunk);
    if (!device && s->o.target.memory_limit <= 0 && !s->o.make_plan)
        return 0;
    int rc = fill_plan(s, e);
    if (!rc)
        rc = plan_settle(&s->plan, s->o.target.max_ctx, e);
    while (rc == ERR_MEMORY && open && s->o.chunk > ROWS) {
        set_chunk(s, s->o.chunk / 2);
        rc = fill_plan(s, e);
        if (!rc)
            rc = plan_settle(&s->plan, s->o.target.max_ctx, e);
    }
    if (rc)
        return rc;
    s->o.target.max_ctx = s->plan.context;
    s->planned = true;
    return 0;
}

static int make_drafter(struct session *s, struct err *e) {
    struct draft_config c = {.model = s->model,
                             .dflash = s->draft,
                             .max_k = TREE_MAX_K,
                             .max_members = model_max_seqs(s->model)};
    return drafter_create(&s->drafter, DRAFT_DFLASH, &c, e);
}

static int open_parts(struct session *s, struct err *e) {
    int rc = gguf_open(&s->file, s->o.model, e);
    if (!rc)
        rc = open_device(s, e);
    if (!rc && s->o.timing)
        rc = timing_prepare(s->x, e);
    if (!rc && s->o.importance)
        rc = importance_prepare(s->x, e);
    if (!rc)
        rc = settle(s, e);
    if (rc)
        return rc;
    if (gguf_find(s->file, "tokenizer.ggml.model"))
        rc = tokenizer_create(&s->tokenizer, s->file, e);
    if (!rc)
        rc = model_load(&s->model, s->x, s->file, &s->o.target, e);
    if (rc)
        return err_prefix(e, "%s", s->o.model);
    if (s->o.draft)
        rc = dflash_load(&s->draft, s->model, s->o.draft, &s->o.dflash, e);
    if (!rc)
        rc = price_create(&s->price, exec_is_device(s->x) ? PRICE_GPU : PRICE_CPU, e);
    return rc || !s->draft ? rc : make_drafter(s, e);
}

int session_open(struct session **out, const struct session_options *o, struct err *e) {
    double start = clock_ms();
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a session");
    s->o = *o;
    s->o.dflash.codec_k = o->target.codec_k;
    s->o.dflash.codec_v = o->target.codec_v;
    int rc = open_parts(s, e);
    if (rc) {
        session_close(s);
        return rc;
    }
    s->load_ms = clock_ms() - start;
    *out = s;
    return 0;
}

int session_measure(const struct session_options *o, struct memory_plan *out, struct err *e) {
    struct session *s = calloc(1, sizeof *s);
    *out = (struct memory_plan){0};
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a memory plan");
    s->o = *o;
    s->o.make_plan = true;
    s->o.dflash.codec_k = o->target.codec_k;
    s->o.dflash.codec_v = o->target.codec_v;
    int rc = gguf_open(&s->file, s->o.model, e);
    if (!rc)
        rc = open_device(s, e);
    if (!rc)
        rc = settle(s, e);
    *out = s->plan;
    session_close(s);
    return rc;
}

void session_close(struct session *s) {
    if (!s)
        return;
    for (int i = 0; i < s->n_budgets; i++)
        budget_destroy(s->budgets[i].budget);
    free(s->budgets);
    price_destroy(s->price);
    drafter_destroy(s->drafter);
    dflash_destroy(s->draft);
    model_destroy(s->model);
    if (s->tokenizer)
        tokenizer_destroy(s->tokenizer);
    if (s->x)
        exec_destroy(s->x);
    if (s->file)
        gguf_close(s->file);
    free(s);
}

struct model *session_model(const struct session *s) {
    return s->model;
}

struct dflash *session_draft(const struct session *s) {
    return s->draft;
}

const struct tokenizer *session_tokenizer(const struct session *s) {
    return s->tokenizer;
}

const struct memory_plan *session_plan(const struct session *s) {
    return s->planned ? &s->plan : NULL;
}

double session_load_ms(const struct session *s) {
    return s->load_ms;
}

int session_encode(const struct session *s, const char *text, size_t n, struct token_list *out,
                   struct err *e) {
    if (!s->tokenizer)
        return err_set(e, ERR_UNSUPPORTED, "%s has no tokenizer; give token ids with --ids",
                       s->o.model);
    int rc = 0;
    if (tokenizer_add_bos(s->tokenizer) && tokenizer_bos(s->tokenizer) >= 0)
        rc = token_list_push(out, tokenizer_bos(s->tokenizer), e);
    return rc ? rc : tokenizer_encode(s->tokenizer, text, n, true, out, e);
}

struct drafter *session_drafter(const struct session *s) {
    return s->drafter;
}

struct price *session_price(const struct session *s) {
    return s->price;
}

int64_t session_chunk(const struct session *s) {
    return s->o.chunk < model_max_rows(s->model) ? s->o.chunk : model_max_rows(s->model);
}

int session_take_budget(struct session *s, struct budget **out, struct err *e) {
    int i = 0;
    while (i < s->n_budgets && s->budgets[i].lent)
        i++;
    if (i == s->n_budgets) {
        struct lent_budget *more = realloc(s->budgets, (size_t)(i + 1) * sizeof *more);
        if (!more)
            return err_set(e, ERR_MEMORY, "no memory to choose budgets");
        s->budgets = more;
        more[i] = (struct lent_budget){0};
        int rc = budget_create(&more[i].budget, e);
        if (rc)
            return rc;
        s->n_budgets++;
    }
    s->budgets[i].lent = true;
    *out = s->budgets[i].budget;
    budget_begin(*out, i > 0 ? s->budgets[0].budget : NULL);
    return 0;
}

void session_give_budget(struct session *s, struct budget *b) {
    for (int i = 0; b && i < s->n_budgets; i++)
        if (s->budgets[i].budget == b)
            s->budgets[i].lent = false;
}
