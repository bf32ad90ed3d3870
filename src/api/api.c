// SPDX-License-Identifier: Apache-2.0
// The public interface (coppice.h) over sessions, transcripts and snapshots of the engine. Results
// go into callers' arrays and structs, whose size the caller states; what does not fit is counted,
// what is unknown is refused. Tokens are handed on as whole characters.
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/batch/transcript.h"
#include "engine/session/named_drafts.h"
#include "engine/session/near_draft.h"
#include "engine/session/session.h"

struct coppice_model {
    struct session *s;
    char *target;     // paths: the session borrows them
    struct str found; // a draft that nobody named
    struct named_drafts drafts;
    int max_budget;
};

struct coppice_sequence {
    struct coppice_model *m;
    struct transcript *t;
};

struct coppice_checkpoint {
    struct snapshot *b;
};

_Static_assert((int)COPPICE_ERR_USAGE == (int)ERR_USAGE && (int)COPPICE_ERR_IO == (int)ERR_IO &&
                   (int)COPPICE_ERR_FORMAT == (int)ERR_FORMAT &&
                   (int)COPPICE_ERR_UNSUPPORTED == (int)ERR_UNSUPPORTED &&
                   (int)COPPICE_ERR_MISMATCH == (int)ERR_MISMATCH &&
                   (int)COPPICE_ERR_MEMORY == (int)ERR_MEMORY &&
                   (int)COPPICE_ERR_LIMIT == (int)ERR_LIMIT &&
                   (int)COPPICE_ERR_STATE == (int)ERR_STATE &&
                   (int)COPPICE_ERR_DEVICE == (int)ERR_DEVICE,
               "codes go out as they are");
_Static_assert((int)COPPICE_END_STOP == (int)END_STOP &&
                   (int)COPPICE_END_LENGTH == (int)END_LENGTH &&
                   (int)COPPICE_END_CONTEXT == (int)END_CONTEXT &&
                   (int)COPPICE_END_CALLER == (int)END_CALLER,
               "so do reasons");
_Static_assert(sizeof((struct err *)0)->text <= sizeof((struct coppice_error *)0)->text,
               "a sentence fits");

const char *coppice_version(void) {
    return COPPICE_VERSION;
}

int api_result(int rc, const struct err *from, struct coppice_error *to) {
    if (rc < 0 && to) {
        to->code = rc;
        memcpy(to->text, from->text, sizeof from->text);
    }
    return rc;
}

int api_take(void *to, size_t bytes, const void *from, const char *name, struct err *e) {
    const unsigned char *b = from;
    size_t size;
    if (!from)
        return err_set(e, ERR_USAGE, "struct %s is missing", name);
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > 1 << 16)
        return err_set(e, ERR_USAGE, "the size in struct %s is %zu; set it to sizeof(struct %s)",
                       name, size, name);
    for (size_t i = bytes; i < size; i++)
        if (b[i])
            return err_set(e, ERR_USAGE,
                           "struct %s sets a field that version " COPPICE_VERSION
                           " of the library does not know; install a newer one",
                           name);
    memset(to, 0, bytes);
    memcpy(to, from, min_size(size, bytes));
    return 0;
}

void api_give(void *to, const void *from, size_t bytes) {
    size_t size;
    if (!to)
        return;
    memcpy(&size, to, sizeof size);
    if (size < sizeof size || size > 1 << 16)
        return;
    memset((unsigned char *)to + sizeof size, 0, size - sizeof size);
    memcpy((unsigned char *)to + sizeof size, (const unsigned char *)from + sizeof size,
           min_size(size, bytes) - sizeof size);
}

enum { DEFAULT_BUDGET = 63 };

// `own` speaks for keys, or for values, alone; NULL leaves it to `both`.
static int kv_type(const char *own, const char *what, const char *both, enum kv_codec_id *out,
                   struct err *e) {
    if (own)
        return kv_codec_by_name(own, what, out, e);
    return both && strcmp(both, "auto") != 0 ? kv_codec_by_name(both, "kv_type", out, e) : 0;
}

static int check_load_options(const struct coppice_load_options *o, struct err *e) {
    if (!o->model)
        return err_set(e, ERR_USAGE, "no model is named; set the field model to a GGUF file");
    if (o->max_budget < 0 || o->max_budget > TREE_MAX_BUDGET)
        return err_set(e, ERR_USAGE, "max_budget is %d, not within 0 to %d", o->max_budget,
                       TREE_MAX_BUDGET);
    if (!(o->sparse_prefill >= 0 && o->sparse_prefill <= 1))
        return err_set(e, ERR_USAGE, "sparse_prefill is %g, not within 0 to 1", o->sparse_prefill);
    if (o->max_ctx < 0 || o->max_ctx > MODEL_MAX_CTX || o->memory_limit < 0 || o->threads < 0)
        return err_set(e, ERR_USAGE,
                       "max_ctx, memory_limit or threads is negative or too large; "
                       "0 means the default");
    return 0;
}

static int read_rope_scaling(const char *name, enum rope_scaling *out, struct err *e) {
    static const char *const names[] = {"none", "linear", "yarn"}; // from ROPE_UNSCALED on
    *out = 0;
    for (int i = 0; name && !*out && i < 3; i++)
        if (!strcmp(name, names[i]))
            *out = (enum rope_scaling)(ROPE_UNSCALED + i);
    return !name || *out
               ? 0
               : err_set(e, ERR_USAGE, "rope_scaling is '%.40s' and must be none, linear or yarn",
                         name);
}

// The bounds are those of the command line.
static int read_rope(const struct coppice_load_options *in, struct rope_options *r, struct err *e) {
    const struct {
        const char *name;
        double value, lo, hi;
    } numbers[] = {{"rope_scale", in->rope_scale, 0.001, 1000},
                   {"rope_freq_base", in->rope_freq_base, 1.001, 1e12},
                   {"yarn_orig_ctx", (double)in->yarn_orig_ctx, 0, 1 << 24},
                   {"yarn_ext_factor", in->yarn_ext_factor, -1, 1},
                   {"yarn_attn_factor", in->yarn_attn_factor, 0, 100},
                   {"yarn_beta_slow", in->yarn_beta_slow, 0, 1e6},
                   {"yarn_beta_fast", in->yarn_beta_fast, 0, 1e6}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value != 0 &&
            !(numbers[i].value >= numbers[i].lo && numbers[i].value <= numbers[i].hi))
            return err_set(e, ERR_USAGE, "%s is %g, neither 0 nor within %g to %g", numbers[i].name,
                           numbers[i].value, numbers[i].lo, numbers[i].hi);
    *r = (struct rope_options){.factor = (float)in->rope_scale,
                               .base = (float)in->rope_freq_base,
                               .trained = in->yarn_orig_ctx,
                               .has_ramp = in->yarn_ext_factor != 0,
                               .ramp = (float)(in->yarn_ext_factor > 0 ? in->yarn_ext_factor : 0),
                               .magnitude = (float)in->yarn_attn_factor,
                               .beta_slow = (float)in->yarn_beta_slow,
                               .beta_fast = (float)in->yarn_beta_fast};
    return read_rope_scaling(in->rope_scaling, &r->scaling, e);
}

// The session's options of a caller's, checked.
static int read_load_options(const struct coppice_load_options *from, struct session_options *o,
                             int *budget, struct err *e) {
    struct coppice_load_options in;
    int rc = api_take(&in, sizeof in, from, "coppice_load_options", e);
    if (!rc)
        rc = check_load_options(&in, e);
    *o = session_options_default();
    if (!rc)
        rc = kv_type(in.kv_type_k, "kv_type_k", in.kv_type, &o->target.codec_k, e);
    if (!rc)
        rc = kv_type(in.kv_type_v, "kv_type_v", in.kv_type, &o->target.codec_v, e);
    if (!rc)
        rc = read_rope(&in, &o->target.rope, e);
    if (rc)
        return rc;
    const bool choose = in.kv_type && !strcmp(in.kv_type, "auto");
    o->choose_k = choose && !in.kv_type_k;
    o->choose_v = choose && !in.kv_type_v;
    if (in.sparse_prefill > 0)
        o->target.sparse =
            (struct sparse_rule){true, (float)in.sparse_prefill, SPARSE_SINKS, SPARSE_WINDOW};
    rc = view_rule_make(&o->target.view,
                        &(struct view_options){in.fa_window, in.kv_pool, in.kv_pool_policy}, e);
    if (rc)
        return rc;
    *budget = in.max_budget ? in.max_budget : DEFAULT_BUDGET;
    o->model = in.model;
    o->draft = in.draft;
    o->device = in.device ? in.device : o->device;
    o->cpu_level = in.cpu_level ? in.cpu_level : o->cpu_level;
    o->threads = in.threads;
    o->vram_limit = in.memory_limit;
    o->note = in.note;
    o->note_arg = in.note_arg;
    o->price_folder = in.price_folder;
    o->target.max_ctx = in.max_ctx;
    o->target.memory_limit = in.memory_limit;
    o->target.max_seqs = 1;
    o->target.max_verify = 1 + *budget;
    return 0;
}

// A draft that is left to be found: the block in the model's own file, or one next to it.
static int find_near_draft(struct session_options *o, bool beside, struct str *path,
                           struct err *e) {
    struct near_drafts d = {.o = o};
    const char *draft = NULL;
    int rc = near_draft_in_target(&d, e);
    if (!rc && beside && !d.of_target)
        rc = near_draft_beside(&d, e);
    struct err ignored;
    int chosen = near_draft_choose(&d, path, &draft, rc ? &ignored : e);
    o->draft = draft;
    o->draft_optional = true;
    return rc ? rc : chosen;
}

// The drafts that the options name or leave to be found. *path and *list: what the options may
// point at.
static int find_drafts(struct session_options *o, struct named_drafts *list, struct str *path,
                       struct err *e) {
    const char *named = o->draft;
    int rc = named_drafts_read(list, named, e);
    o->draft = NULL;
    if (!rc && (!named || list->find))
        rc = find_near_draft(o, list->find, path, e);
    if (!rc)
        named_drafts_use(list, o);
    return rc;
}

int coppice_plan(const struct coppice_load_options *options, struct coppice_plan *out,
                 struct coppice_error *error) {
    struct err e = {0};
    struct session_options o;
    struct memory_plan p = {0};
    struct str path = {0};
    struct named_drafts list = {0};
    int budget, rc = read_load_options(options, &o, &budget, &e);
    if (!rc)
        rc = find_drafts(&o, &list, &path, &e);
    if (!rc)
        rc = session_measure(&o, &p, &e);
    str_fini(&path);
    named_drafts_fini(&list);
    struct coppice_plan plan = {.weights = p.weights,
                                .draft = p.draft,
                                .workspace = p.scratch,
                                .state = p.state,
                                .kv_per_1k = kv_needs_per_1k(&p.kv),
                                .total = plan_total(&p),
                                .available = p.available,
                                .max_ctx = p.context,
                                .trained_ctx = p.trained,
                                .kv_windows = kv_needs_windows(&p.kv, p.context, p.step)};
    if (!rc || rc == ERR_MEMORY)
        api_give(out, &plan, sizeof plan);
    return api_result(rc, &e, error);
}

int coppice_load(struct coppice_model **out, const struct coppice_load_options *options,
                 struct coppice_error *error) {
    struct err e = {0};
    struct session_options o;
    struct coppice_model *m = NULL;
    int budget, rc = read_load_options(options, &o, &budget, &e);
    if (rc)
        return api_result(rc, &e, error);
    m = calloc(1, sizeof *m);
    if (m) {
        m->max_budget = budget;
        m->target = strdup(o.model);
    }
    if (!m || !m->target) {
        rc = err_set(&e, ERR_MEMORY, "no memory for a model's handle");
    } else {
        o.model = m->target;
        rc = find_drafts(&o, &m->drafts, &m->found, &e);
        if (!rc)
            rc = session_open(&m->s, &o, &e);
    }
    if (rc)
        coppice_free(m);
    else
        *out = m;
    return api_result(rc, &e, error);
}

void coppice_free(struct coppice_model *m) {
    if (!m)
        return;
    session_close(m->s);
    free(m->target);
    named_drafts_fini(&m->drafts);
    str_fini(&m->found);
    free(m);
}

void coppice_info(const struct coppice_model *m, struct coppice_info *out) {
    const struct model *model = session_model(m->s);
    const struct model_params *p = model_params_of(model);
    const struct tokenizer *t = session_tokenizer(m->s);
    struct coppice_info info = {.architecture = p->arch,
                                .device = exec_label(model_exec(model)),
                                .vocabulary = p->vocab,
                                .max_ctx = model_max_ctx(model),
                                .bos = t ? tokenizer_bos(t) : -1,
                                .eos = t ? tokenizer_eos(t) : -1,
                                .has_tokenizer = t != NULL,
                                .has_draft = session_draft(m->s) != NULL,
                                .trained_ctx = p->context};
    api_give(out, &info, sizeof info);
}

static int find_tokenizer(const struct coppice_model *m, const struct tokenizer **t,
                          struct err *e) {
    *t = session_tokenizer(m->s);
    return *t ? 0
              : err_set(e, ERR_UNSUPPORTED,
                        "%s has no tokenizer; work with token ids, or take a file that has one",
                        m->target);
}

int64_t coppice_tokenize(const struct coppice_model *m, const char *text, size_t bytes, int flags,
                         int32_t *ids, int64_t capacity, struct coppice_error *error) {
    struct err e = {0};
    const struct tokenizer *t;
    struct token_list list = {0};
    int rc = find_tokenizer(m, &t, &e);
    if (!rc && (flags & COPPICE_ADD_BOS) && tokenizer_add_bos(t))
        rc = token_list_push(&list, tokenizer_bos(t), &e);
    if (!rc)
        rc = tokenizer_encode(t, text, bytes, flags & COPPICE_SPECIAL, &list, &e);
    int64_t n = (int64_t)list.count, fits = min_i64(n, capacity);
    if (!rc && fits > 0)
        memcpy(ids, list.ids, (size_t)fits * sizeof *ids);
    token_list_fini(&list);
    return rc ? api_result(rc, &e, error) : n;
}

int64_t coppice_detokenize(const struct coppice_model *m, const int32_t *ids, int64_t n, int flags,
                           char *text, int64_t capacity, struct coppice_error *error) {
    struct err e = {0};
    const struct tokenizer *t;
    struct str raw = {0}, whole = {0};
    struct utf8_stream stream = {0};
    int rc = find_tokenizer(m, &t, &e);
    for (int64_t i = 0; !rc && i < n; i++)
        tokenizer_decode(t, ids[i], flags & COPPICE_SPECIAL, &raw);
    if (raw.len)
        utf8_stream_push(&stream, raw.data, raw.len, &whole);
    utf8_stream_end(&stream, &whole);
    if (!rc && (raw.failed || whole.failed))
        rc = err_set(&e, ERR_MEMORY, "no memory for the text of %lld tokens", (long long)n);
    int64_t bytes = (int64_t)whole.len, fits = min_i64(bytes, capacity);
    if (!rc && fits > 0)
        memcpy(text, whole.data, (size_t)fits);
    if (!rc && bytes < capacity)
        text[bytes] = '\0';
    str_fini(&raw);
    str_fini(&whole);
    return rc ? api_result(rc, &e, error) : bytes;
}

int coppice_is_end(const struct coppice_model *m, int32_t id) {
    const struct tokenizer *t = session_tokenizer(m->s);
    return t && tokenizer_is_eog(t, id);
}

// A handle around t, which it takes over also when it fails.
static int wrap_transcript(struct coppice_sequence **out, struct coppice_model *m,
                           struct transcript *t, struct err *e) {
    struct coppice_sequence *s = malloc(sizeof *s);
    if (!s) {
        transcript_destroy(t);
        return err_set(e, ERR_MEMORY, "no memory for a sequence");
    }
    *s = (struct coppice_sequence){.m = m, .t = t};
    *out = s;
    return 0;
}

int coppice_sequence_create(struct coppice_sequence **out, struct coppice_model *m,
                            struct coppice_error *error) {
    struct err e = {0};
    struct transcript *t = NULL;
    int rc = transcript_create(&t, m->s, &e);
    if (!rc)
        rc = wrap_transcript(out, m, t, &e);
    return api_result(rc, &e, error);
}

void coppice_sequence_free(struct coppice_sequence *s) {
    if (!s)
        return;
    transcript_destroy(s->t);
    free(s);
}

int64_t coppice_sequence_length(const struct coppice_sequence *s) {
    return transcript_len(s->t);
}

const int32_t *coppice_sequence_tokens(const struct coppice_sequence *s) {
    return transcript_tokens(s->t);
}

int64_t coppice_sequence_ready(const struct coppice_sequence *s) {
    return transcript_ready(s->t);
}

int coppice_sequence_append(struct coppice_sequence *s, const int32_t *ids, int64_t n,
                            struct coppice_error *error) {
    struct err e = {0};
    return api_result(transcript_append(s->t, ids, n, &e), &e, error);
}

int coppice_sequence_cut(struct coppice_sequence *s, int64_t n, struct coppice_error *error) {
    struct err e = {0};
    return api_result(transcript_cut(s->t, n, &e), &e, error);
}

int coppice_sequence_fork(const struct coppice_sequence *s, struct coppice_sequence **out,
                          struct coppice_error *error) {
    struct err e = {0};
    struct transcript *t = NULL;
    int rc = transcript_fork(s->t, &t, &e);
    if (!rc)
        rc = wrap_transcript(out, s->m, t, &e);
    return api_result(rc, &e, error);
}

int coppice_checkpoint_create(struct coppice_checkpoint **out, const struct coppice_sequence *s,
                              struct coppice_error *error) {
    struct err e = {0};
    struct coppice_checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? transcript_save(s->t, &c->b, &e)
               : err_set(&e, ERR_MEMORY, "no memory for a checkpoint");
    if (rc)
        coppice_checkpoint_free(c);
    else
        *out = c;
    return api_result(rc, &e, error);
}

int coppice_checkpoint_restore(const struct coppice_checkpoint *c, struct coppice_sequence *s,
                               struct coppice_error *error) {
    struct err e = {0};
    return api_result(transcript_restore(s->t, c->b, &e), &e, error);
}

int coppice_checkpoint_save(const struct coppice_checkpoint *c, const char *path,
                            struct coppice_error *error) {
    struct err e = {0};
    return api_result(snapshot_write(c->b, path, &e), &e, error);
}

int coppice_checkpoint_load(struct coppice_checkpoint **out, struct coppice_model *m,
                            const char *path, struct coppice_error *error) {
    struct err e = {0};
    struct coppice_checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? snapshot_read(&c->b, m->s, path, &e)
               : err_set(&e, ERR_MEMORY, "no memory for a checkpoint");
    if (rc)
        coppice_checkpoint_free(c);
    else
        *out = c;
    return api_result(rc, &e, error);
}

int64_t coppice_checkpoint_bytes(const struct coppice_checkpoint *c) {
    return snapshot_bytes(c->b);
}

void coppice_checkpoint_free(struct coppice_checkpoint *c) {
    if (!c)
        return;
    snapshot_destroy(c->b);
    free(c);
}

// The state of a request's callbacks.
struct call {
    const struct coppice_request *r;
    const struct tokenizer *t; // NULL: none
    const struct reply *y;
    float logprobs[TREE_MAX_DEPTH + 1]; // of the tokens at hand
    struct utf8_stream utf8;
    struct str raw, text;
    bool no_memory;
};

static int give_piece(struct call *c, const int32_t *ids, int64_t n) {
    struct coppice_piece piece = {.ids = ids, .n = n, .text = "", .bytes = c->text.len};
    c->no_memory = c->raw.failed || c->text.failed;
    if (c->text.len)
        piece.text = c->text.data;
    for (int64_t i = 0; c->r->logprobs && i < n; i++)
        c->logprobs[i] = logprobs_at(&c->y->logprobs, c->y->n - n + i).chosen;
    piece.logprobs = c->r->logprobs && n ? c->logprobs : NULL;
    return c->no_memory || c->r->tokens(c->r->arg, &piece);
}

static int on_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct call *c = arg;
    str_clear(&c->raw);
    str_clear(&c->text);
    for (int64_t i = 0; c->t && i < n; i++)
        tokenizer_decode(c->t, ids[i], false, &c->raw);
    if (c->raw.len)
        utf8_stream_push(&c->utf8, c->raw.data, c->raw.len, &c->text);
    return give_piece(c, ids, n);
}

static int on_progress(void *arg, int64_t done, int64_t total) {
    const struct call *c = arg;
    return c->r->progress(c->r->arg, done, total);
}

static enum speculate speculation_of(const struct coppice_request *r, bool draft) {
    switch (r->speculate) {
    case COPPICE_SPECULATE_TREE:
        return SPECULATE_TREE;
    case COPPICE_SPECULATE_CHAIN:
        return SPECULATE_CHAIN;
    case COPPICE_SPECULATE_LOOKUP:
        return SPECULATE_LOOKUP;
    case COPPICE_SPECULATE_OFF:
        return SPECULATE_OFF;
    default:
        return speculate_auto(draft);
    }
}

static int check_request(const struct coppice_request *r, const struct coppice_model *m,
                         struct err *e) {
    if (r->max_tokens < 0)
        return err_set(e, ERR_USAGE, "max_tokens is %lld; 0 is as many as the context holds",
                       (long long)r->max_tokens);
    if (r->speculate < COPPICE_SPECULATE_AUTO || r->speculate > COPPICE_SPECULATE_OFF)
        return err_set(e, ERR_USAGE, "%d is no enum coppice_speculate", r->speculate);
    if (r->budget != COPPICE_BUDGET_AUTO && (r->budget < 0 || r->budget > m->max_budget))
        return err_set(
            e, ERR_USAGE,
            "a budget of %d guesses is not within 0 to %d; load with a larger max_budget",
            r->budget, m->max_budget);
    return 0;
}

static void fill_sampling(const struct coppice_request *r, struct sample_params *p) {
    p->temperature = r->temperature;
    p->top_k = r->top_k;
    p->top_p = r->top_p != 0 ? r->top_p : p->top_p;
    p->min_p = r->min_p;
    p->repeat = r->repeat_penalty != 0 ? r->repeat_penalty : p->repeat;
    p->frequency = r->frequency_penalty;
    p->presence = r->presence_penalty;
    p->window = r->penalty_window ? r->penalty_window : p->window;
    p->seed = r->seed;
}

// The biases as a sampler takes them; the caller frees them.
static int fill_bias(const struct coppice_request *r, struct sample_params *p, struct err *e) {
    if (r->n_bias < 0 || r->n_bias > SAMPLER_MAX_BIAS)
        return err_set(e, ERR_USAGE, "n_bias is %lld; it must be within 0 to %d",
                       (long long)r->n_bias, SAMPLER_MAX_BIAS);
    if (!r->n_bias)
        return 0;
    if (!r->bias_ids || !r->bias)
        return err_set(e, ERR_USAGE, "n_bias is %lld, and bias_ids or bias is missing",
                       (long long)r->n_bias);
    struct logit_bias *bias = malloc((size_t)r->n_bias * sizeof *bias);
    if (!bias)
        return err_set(e, ERR_MEMORY, "no memory for %lld biases", (long long)r->n_bias);
    for (int64_t i = 0; i < r->n_bias; i++)
        bias[i] = (struct logit_bias){r->bias_ids[i], r->bias[i]};
    p->bias = bias;
    p->n_bias = r->n_bias;
    return 0;
}

// The constraint of the new text; *out: to be dropped, or NULL.
static int fill_constraint(const struct coppice_request *r, const struct session *s,
                           struct constraint **out, struct err *e) {
    static const enum structured_form forms[] = {STRUCTURED_GBNF, STRUCTURED_REGEX,
                                                 STRUCTURED_SCHEMA};
    static const char *const names[] = {"grammar", "regex", "json_schema"};
    const char *const texts[] = {r->grammar, r->regex, r->json_schema};
    int given = -1;
    *out = NULL;
    for (int i = 0; i < 3; i++) {
        if (texts[i] && given >= 0)
            return err_set(e, ERR_USAGE, "a reply is held to a %s or a %s, not to both",
                           names[given], names[i]);
        given = texts[i] ? i : given;
    }
    if (given < 0)
        return 0;
    struct structured w = {.form = forms[given], .text = texts[given], .n = strlen(texts[given])};
    int rc = structured_make(session_structured(s), &w, out, e);
    return rc ? err_prefix(e, "%s", names[given]) : 0;
}

static void fill_request(struct request *q, const struct coppice_request *r,
                         const struct coppice_model *m) {
    request_init(q);
    q->max_tokens = r->max_tokens ? r->max_tokens : INT64_MAX;
    q->ignore_eos = r->ignore_end;
    q->how = speculation_of(r, session_draft(m->s) != NULL);
    q->auto_budget = r->budget == COPPICE_BUDGET_AUTO || r->budget == 0;
    q->tree.budget = q->auto_budget ? m->max_budget : r->budget;
    if (q->tree.budget > m->max_budget)
        q->tree.budget = m->max_budget;
    if (r->min_prob != 0)
        q->tree.min_prob = r->min_prob > 0 ? r->min_prob : 0;
    else
        q->tree.min_prob = q->auto_budget ? 0 : 0.1;
    q->logit_hash = r->logit_hash;
    q->logprobs = r->logprobs && r->tokens ? 0 : -1;
    fill_sampling(r, &q->sample);
}

static void give_result(const struct reply *y, struct coppice_result *out) {
    struct coppice_result result = {.end = (int)y->end,
                                    .tokens = y->n,
                                    .prompt_tokens = y->fed,
                                    .passes = y->steps,
                                    .guesses = y->drafted,
                                    .prompt_ms = y->ms.prompt,
                                    .decode_ms =
                                        y->ms.draft + y->ms.verify + y->ms.sample + y->ms.commit,
                                    .logit_hash = y->hash};
    api_give(out, &result, sizeof result);
}

int coppice_generate(struct coppice_sequence *s, const struct coppice_request *request,
                     struct coppice_result *out, struct coppice_error *error) {
    struct err e = {0};
    struct coppice_request r;
    struct request q;
    struct reply y = {0};
    struct call c = {.r = &r, .t = session_tokenizer(s->m->s), .y = &y};
    int rc = api_take(&r, sizeof r, request, "coppice_request", &e);
    if (!rc)
        rc = check_request(&r, s->m, &e);
    if (rc)
        return api_result(rc, &e, error);
    fill_request(&q, &r, s->m);
    rc = fill_bias(&r, &q.sample, &e);
    if (!rc)
        rc = fill_constraint(&r, s->m->s, &q.constraint, &e);
    if (rc) {
        free((void *)q.sample.bias);
        return api_result(rc, &e, error);
    }
    q.tokens = r.tokens ? on_tokens : NULL;
    q.progress = r.progress ? on_progress : NULL;
    q.tokens_arg = q.progress_arg = &c;
    rc = transcript_generate(s->t, &q, &y, &e);
    free((void *)q.sample.bias);
    constraint_drop(q.constraint);
    str_clear(&c.text);
    utf8_stream_end(&c.utf8, &c.text);
    if (c.text.len && !c.no_memory)
        give_piece(&c, NULL, 0);
    if (!rc && c.no_memory)
        rc = err_set(&e, ERR_MEMORY, "no memory for the text of the reply");
    give_result(&y, out);
    str_fini(&c.raw);
    str_fini(&c.text);
    reply_fini(&y);
    return api_result(rc, &e, error);
}

int coppice_sequence_run(struct coppice_sequence *s, int (*progress)(void *, int64_t, int64_t),
                         void *arg, struct coppice_error *error) {
    struct err e = {0};
    struct request q;
    struct reply y;
    request_init(&q);
    q.max_tokens = 0;
    q.progress = progress;
    q.progress_arg = arg;
    int rc = transcript_generate(s->t, &q, &y, &e);
    reply_fini(&y);
    return api_result(rc, &e, error);
}
