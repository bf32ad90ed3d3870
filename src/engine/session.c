// SPDX-License-Identifier: Apache-2.0
// Loading a pair and running requests on it; see session.h. A request is a loop over step_run
// between limits: the token limit, the context and the tokenizer's end tokens.
#include "engine/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/quant.h"
#include "ops/observe/importance.h"
#include "ops/observe/timing.h"

struct session {
    struct session_options o;
    struct exec *x;
    struct gguf *file;
    struct model *model;
    struct dflash *draft;
    struct tokenizer *tokenizer;
    struct budget *budget; // NULL until a request wants its budgets chosen
    struct price *price;   // likewise
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

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
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
    exec_memory_of(s->x, &m);
    int64_t kv = t.kv_per_1k + d.kv_per_1k;
    int64_t own = kv_codec_bytes(o->codec_k, 32) + kv_codec_bytes(o->codec_v, 32);
    *p = (struct memory_plan){.weights = t.weights,
                              .draft = d.weights,
                              .scratch = t.scratch + d.scratch +
                                         exec_own_bytes(s->x, most(t.most_act, d.most_act)),
                              .state = (t.recurrent + d.pending) * most(o->max_seqs, 1),
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
    return rc;
}

int session_open(struct session **out, const struct session_options *o, struct err *e) {
    double start = step_clock();
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
    s->load_ms = step_clock() - start;
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
    budget_destroy(s->budget);
    price_destroy(s->price);
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

const char *speculate_name(enum speculate how) {
    static const char *const names[] = {"tree", "chain", "lookup", "off", "oracle"};
    return names[how];
}

void request_init(struct request *r) {
    *r = (struct request){.max_tokens = 256, .how = SPECULATE_OFF};
    r->tree = (struct tree_options){.budget = 22, .k = 8, .max_depth = TREE_MAX_DEPTH};
    sample_params_init(&r->sample);
}

void reply_fini(struct reply *r) {
    free(r->ids);
    free(r->accepted);
    *r = (struct reply){0};
}

// One request in progress.
struct run {
    struct session *s;
    const struct request *r;
    struct reply *out;
    struct sequence *seq;
    struct step *step;
    struct drafter *drafters[STEP_MAX_DRAFTERS];
    int n_drafters;
    struct budget *budget; // NULL: a fixed one
    int64_t max_new;       // new tokens that limit and context allow
};

static bool is_stop(void *arg, int32_t id) {
    const struct run *u = arg;
    return !u->r->ignore_eos && u->s->tokenizer && tokenizer_is_eog(u->s->tokenizer, id);
}

static int check_request(const struct session *s, const struct request *r, struct err *e) {
    int64_t vocab = model_params_of(s->model)->vocab, ctx = model_max_ctx(s->model);
    if (r->n_prompt < 1)
        return err_set(e, ERR_USAGE, "the prompt is empty; give at least one token");
    for (int64_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return err_set(e, ERR_MISMATCH,
                           "token id %d at place %lld of the prompt is not within 0 to %lld",
                           r->prompt[i], (long long)i, (long long)vocab - 1);
    if (r->n_prompt >= ctx)
        return err_set(e, ERR_LIMIT,
                       "the prompt of %lld tokens leaves no room in a context of %lld; shorten it "
                       "or raise --max-ctx",
                       (long long)r->n_prompt, (long long)ctx);
    const struct sequence *p = r->in_place ? r->in_place : r->prefix;
    if (p && (sequence_len(p) >= r->n_prompt ||
              (sequence_len(p) && memcmp(sequence_tokens(p), r->prompt,
                                         (size_t)sequence_len(p) * sizeof *r->prompt) != 0)))
        return err_set(e, ERR_USAGE,
                       "the %lld tokens run before are not the beginning of a prompt of %lld",
                       (long long)sequence_len(p), (long long)r->n_prompt);
    bool needs_draft = r->how == SPECULATE_TREE || r->how == SPECULATE_CHAIN;
    if (needs_draft && !s->draft)
        return err_set(e, ERR_USAGE,
                       "--speculate %s needs a draft model; give one with -d or use lookup",
                       speculate_name(r->how));
    return 0;
}

static int add_drafter(struct run *u, enum draft_kind kind, struct err *e) {
    struct draft_config c = u->r->oracle;
    c.model = u->s->model;
    c.dflash = u->s->draft;
    c.max_k = u->r->tree.k;
    int rc = drafter_create(&u->drafters[u->n_drafters], kind, &c, e);
    if (!rc)
        u->n_drafters++;
    return rc;
}

static int make_drafters(struct run *u, struct tree_options *tree, struct err *e) {
    int rc = 0;
    switch (u->r->how) {
    case SPECULATE_OFF:
        tree->budget = 0;
        break;
    case SPECULATE_CHAIN:
        tree->k = 1;
        rc = add_drafter(u, DRAFT_DFLASH, e);
        break;
    case SPECULATE_TREE:
        rc = add_drafter(u, DRAFT_DFLASH, e);
        if (!rc && !u->r->no_lookup)
            rc = add_drafter(u, DRAFT_LOOKUP, e);
        break;
    case SPECULATE_LOOKUP:
        rc = add_drafter(u, DRAFT_LOOKUP, e);
        break;
    case SPECULATE_ORACLE: // its guesses take the place of the draft's
        if (u->r->oracle.with_draft)
            rc = add_drafter(u, DRAFT_DFLASH, e);
        if (!rc)
            rc = add_drafter(u, DRAFT_ORACLE, e);
        break;
    }
    return rc;
}

// The session's chooser of budgets, if the request wants one and drafts at all.
static int find_budget(struct run *u, struct err *e) {
    if (!u->r->auto_budget || u->r->how == SPECULATE_OFF)
        return 0;
    struct session *s = u->s;
    bool gpu = exec_ops(model_exec(s->model))->sample_together;
    int rc = s->price ? 0 : price_create(&s->price, gpu ? PRICE_GPU : PRICE_CPU, e);
    if (!rc && !s->budget)
        rc = budget_create(&s->budget, e);
    if (rc)
        return rc;
    u->budget = s->budget;
    budget_begin(u->budget, NULL);
    return 0;
}

static int run_init(struct run *u, struct err *e) {
    int rc = find_budget(u, e);
    if (rc)
        return rc;
    struct step_config c = {.model = u->s->model,
                            .tree = u->r->tree,
                            .budget = u->budget,
                            .price = u->s->price,
                            .share_noise = !u->r->no_draft_noise,
                            .sample = u->r->sample,
                            .hash = u->r->logit_hash};
    rc = make_drafters(u, &c.tree, e);
    if (rc)
        return rc;
    memcpy(c.drafters, u->drafters, sizeof c.drafters);
    c.n_drafters = u->n_drafters;
    rc = step_create(&u->step, &c, e);
    u->seq = u->r->in_place;
    if (!rc && !u->seq)
        rc = u->r->prefix ? sequence_fork(u->r->prefix, &u->seq, e)
                          : model_sequence(u->s->model, &u->seq, e);
    if (rc)
        return rc;
    int64_t room = model_max_ctx(u->s->model) - u->r->n_prompt;
    u->max_new = u->r->max_tokens < room ? u->r->max_tokens : room;
    u->out->ids = calloc((size_t)u->max_new + 1, sizeof *u->out->ids);
    u->out->accepted = calloc((size_t)u->max_new + 1, sizeof *u->out->accepted);
    if (!u->out->ids || !u->out->accepted)
        return err_set(e, ERR_MEMORY, "no memory for %lld new tokens", (long long)u->max_new);
    return 0;
}

// What the request and the context still allow.
static struct walk_limits limits_of(struct run *u) {
    int64_t total = u->r->n_prompt + u->out->n;
    return (struct walk_limits){.tokens_left = u->r->max_tokens - u->out->n,
                                .context_left = model_max_ctx(u->s->model) - total,
                                .stop = is_stop,
                                .stop_arg = u};
}

// Takes over newly chosen tokens and shows them to the caller.
static void emit(struct run *u, const int32_t *ids, int64_t n, enum end_reason end) {
    memcpy(u->out->ids + u->out->n, ids, (size_t)n * sizeof *ids);
    u->out->n += n;
    u->out->end = end;
    if (u->r->tokens && u->r->tokens(u->r->tokens_arg, ids, n) && end == END_NONE)
        u->out->end = END_CALLER;
}

static int64_t chunk_of(const struct session *s) {
    return s->o.chunk < model_max_rows(s->model) ? s->o.chunk : model_max_rows(s->model);
}

// Runs the prompt in chunks; the last one chooses the first new token.
static int run_prompt(struct run *u, struct err *e) {
    int64_t n = u->r->n_prompt, done = sequence_len(u->seq), chunk = chunk_of(u->s);
    struct ddtree only = {.n = 1, .parent = {-1}};
    int32_t first = 0;
    while (done < n) {
        if (u->r->progress && u->r->progress(u->r->progress_arg, done, n)) {
            u->out->end = END_CALLER;
            return 0;
        }
        int64_t now = n - done < chunk ? n - done : chunk;
        bool last = done + now == n;
        int rc = step_feed(u->step, u->seq, u->r->prompt + done, now,
                           last && u->max_new ? &first : NULL, e);
        if (rc)
            return rc;
        done += now;
        u->out->fed += now;
    }
    if (u->max_new == 0) {
        u->out->end = END_LENGTH;
        return 0;
    }
    struct walk_limits l = limits_of(u);
    struct walk w;
    walk_tree(&only, &first, &l, &w);
    emit(u, w.chosen, 1, w.end);
    return 0;
}

static int run_steps(struct run *u, struct err *e) {
    struct reply *out = u->out;
    while (out->end == END_NONE) {
        struct walk_limits l = limits_of(u);
        struct walk w;
        int rc = step_run(u->step, u->seq, out->ids[out->n - 1], &l, &w, e);
        if (rc)
            return rc;
        out->accepted[out->steps++] = w.count;
        out->drafted += step_tree(u->step)->n - 1;
        emit(u, w.chosen, w.count, w.end);
    }
    return 0;
}

int session_prefill(struct session *s, const int32_t *prompt, int64_t n, struct sequence **out,
                    struct err *e) {
    struct request r;
    struct step_config c = {.model = s->model};
    struct step *step = NULL;
    struct sequence *seq = *out;
    int64_t done = seq ? sequence_len(seq) : 0;
    if (seq && done == n)
        return 0;
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = n;
    r.prefix = seq;
    c.sample = r.sample;
    int rc = check_request(s, &r, e);
    if (!rc)
        rc = step_create(&step, &c, e);
    if (!rc && !seq)
        rc = model_sequence(s->model, &seq, e);
    for (int64_t now; !rc && done < n; done += now) {
        now = n - done < chunk_of(s) ? n - done : chunk_of(s);
        rc = step_feed(step, seq, prompt + done, now, NULL, e);
    }
    step_destroy(step);
    if (rc && !*out)
        sequence_destroy(seq);
    else
        *out = seq;
    return rc;
}

int session_generate(struct session *s, const struct request *r, struct reply *out, struct err *e) {
    *out = (struct reply){0};
    int rc = check_request(s, r, e);
    if (rc)
        return rc;
    struct run u = {.s = s, .r = r, .out = out};
    rc = run_init(&u, e);
    double start = step_clock();
    if (!rc)
        rc = run_prompt(&u, e);
    if (!rc)
        rc = run_steps(&u, e);
    if (!rc)
        rc = exec_status(s->x, e);
    if (!rc) {
        out->total_ms = step_clock() - start;
        out->ms = step_times_of(u.step);
        out->hash = step_hash(u.step);
    }
    step_destroy(u.step);
    if (u.seq != r->in_place)
        sequence_destroy(u.seq);
    for (int i = 0; i < u.n_drafters; i++)
        drafter_destroy(u.drafters[i]);
    return rc;
}
