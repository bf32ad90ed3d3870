// SPDX-License-Identifier: Apache-2.0
// Loads a target model and its draft model on one device; see session.h.
#include "engine/session/session.h"
#include "engine/session/draft_hints.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory/machine.h"
#include "base/num.h"
#include "engine/session/learned.h"
#include "engine/session/plan.h"
#include "ops/parking.h"

// A pair that is parked fills its device to the brim: of its limit this part stays free.
enum { PARK_MARGIN = 32 };

struct lent_budget {
    struct budget *budget;
    bool lent; // to a request
};

struct session {
    struct session_options o;
    struct runtime *runtime, *own_runtime; // NULL: it is the caller's
    struct runtime_device *device;
    struct exec *cpu;                // of experts that are not the device's; NULL: none
    struct reservation *reservation; // NULL where nothing was planned
    struct kv_budget pages;          // of all sequences
    struct gguf *file;
    struct model *model;
    struct draft *drafts[PRICE_DRAFTS]; // NULL after the last,
    const char *paths[PRICE_DRAFTS];    // and where they come from
    struct tokenizer *tokenizer;
    struct structured_store *structured;
    struct drafter *drafters[PRICE_DRAFTS]; // as all members of a step call them
    struct price *price;                    // what passes and drafts take here,
    struct price *prompts;                  // and passes with pieces of prompts
    struct price_file prices;               // where it is kept
    struct expert_profile expert_profile;   // which experts are hot
    struct lent_budget *budgets;            // [n_budgets] what guesses of texts so far were worth
    int n_budgets;
    struct memory_plan plan;
    bool planned;
    double load_ms;
};

struct session_options session_options_default(void) {
    return (struct session_options){.device = "auto",
                                    .cpu_level = "auto",
                                    .cuda_path = CUDA_PATH_AUTO,
                                    .target = model_options_default(),
                                    .dflash = dflash_options_default(),
                                    .draft_vocab = {.rows = DRAFT_VOCAB_AUTO},
                                    .chunk = 0};
}

static int open_device(struct session *s, struct err *e) {
    const struct session_options *o = &s->o;
    struct device_options d = {.name = o->device,
                               .cpu_level = o->cpu_level,
                               .threads = o->threads,
                               .cuda_path = o->cuda_path,
                               .vram_limit = o->vram_limit,
                               .timing = o->timing,
                               .importance = o->importance,
                               .note = o->note,
                               .note_arg = o->note_arg};
    s->runtime = o->runtime;
    int rc = s->runtime ? 0 : runtime_create(&s->own_runtime, e);
    if (!s->runtime)
        s->runtime = s->own_runtime;
    return rc ? rc : runtime_device(s->runtime, &d, &s->device, e);
}

// The CPU that computes experts concurrently with a GPU. On a CPU the plan refuses.
static int open_cpu(struct session *s, struct err *e) {
    const struct session_options *o = &s->o;
    struct device_options d = {.name = "cpu", .cpu_level = o->cpu_level, .threads = o->threads};
    struct runtime_device *cpu;
    if (!o->cpu_experts || !exec_is_device(runtime_exec(s->device)))
        return 0;
    if (o->importance)
        return err_set(e, ERR_UNSUPPORTED,
                       "the inputs of experts on the CPU are not summed; leave out --cpu-experts");
    int rc = runtime_device(s->runtime, &d, &cpu, e);
    if (!rc)
        s->o.target.cpu = s->cpu = runtime_exec(cpu);
    return rc;
}

static bool lends(const struct session_options *o) {
    return o->park > 0 || o->lend > 0;
}

// Where the session's drafts are to come from; returns how many.
static int draft_sources(const struct session *s, struct draft_source out[PRICE_DRAFTS]) {
    const char *paths[PRICE_DRAFTS];
    int n = 0;
    if (s->o.draft)
        paths[n++] = s->o.draft;
    for (int i = 0; i < s->o.n_further && n < PRICE_DRAFTS; i++)
        paths[n++] = s->o.further[i];
    for (int i = 0; i < n; i++)
        out[i] = (struct draft_source){
            .path = paths[i], .dflash = &s->o.dflash, .vocab = s->o.draft_vocab};
    return n;
}

// Leaves the draft out that may be left out, whose error is *e.
static void drop_draft(struct session *s, struct err *e) {
    struct str line = {0};
    str_printf(&line, "the draft is left out: %s", e->text);
    if (s->o.note && !line.failed)
        s->o.note(s->o.note_arg, line.data);
    str_fini(&line);
    s->o.draft = NULL;
    *e = (struct err){0};
}

static int plan_pair_of(struct session *s, struct err *e) {
    struct draft_source drafts[PRICE_DRAFTS];
    const int n_drafts = draft_sources(s, drafts);
    struct pair_request r = {.device = s->device,
                             .file = s->file,
                             .model = s->o.model,
                             .drafts = drafts,
                             .n_drafts = n_drafts,
                             .target = s->o.target,
                             .slots = s->o.expert_profile.slots,
                             .cpu_experts = s->o.cpu_experts,
                             .max = s->o.expert_profile.vram,
                             .chunk = s->o.chunk,
                             .free_bytes = lends(&s->o) ? s->o.vram_limit / PARK_MARGIN : 0,
                             .kv_host = s->o.kv_host,
                             .always = s->o.make_plan || s->o.kv_host > 0};
    int rc = plan_pair(&s->plan, &s->planned, &r, e);
    s->o.target = r.target;
    s->o.target.lending.scorer = s->o.lend;
    s->o.chunk = r.chunk;
    return rc;
}

static void note_codec(const struct session *s, enum kv_codec_id id, int64_t f16, int64_t now) {
    struct str line = {0};
    const char *what = !s->o.choose_k ? "values" : s->o.choose_v ? "keys and values" : "keys";
    str_printf(&line, "%s are stored as %s", what, kv_codec_of(id)->name);
    if (!s->planned)
        str_printf(&line, ": no limit of memory is known");
    else if (id == KV_F16)
        str_printf(&line, ": a context of %lld tokens fits", (long long)now);
    else
        str_printf(&line, ": as f16 %lld tokens of context fit, and so %lld", (long long)f16,
                   (long long)now);
    if (s->o.note && !line.failed)
        s->o.note(s->o.note_arg, line.data);
    str_fini(&line);
}

static void set_codecs(struct session_options *o, enum kv_codec_id id) {
    o->target.codec_k = o->choose_k ? id : o->target.codec_k;
    o->target.codec_v = o->choose_v ? id : o->target.codec_v;
    o->dflash.codec_k = o->target.codec_k;
    o->dflash.codec_v = o->target.codec_v;
}

// Plans with the codecs that were requested, or with f16 where that fits and else with q8_0.
static int plan_codecs(struct session *s, struct err *e) {
    const struct session_options asked = s->o;
    const int rc = plan_pair_of(s, e);
    if ((!asked.choose_k && !asked.choose_v) || (rc && rc != ERR_MEMORY))
        return rc;
    const int64_t f16 = plan_longest(&s->plan);
    if (!rc && (!s->planned || asked.target.max_ctx || s->plan.context >= s->plan.trained)) {
        note_codec(s, KV_F16, f16, s->plan.context);
        return 0;
    }
    const struct session_options first = s->o;
    const struct memory_plan plan = s->plan;
    struct err why = {0};
    s->o = asked;
    set_codecs(&s->o, KV_Q8_0);
    int less = plan_pair_of(s, &why);
    if (!less && (rc || s->plan.context > plan.context)) {
        note_codec(s, KV_Q8_0, f16, s->plan.context);
        return 0;
    }
    s->o = first;
    s->plan = plan;
    if (rc && less == ERR_MEMORY)
        *e = why;
    if (!rc)
        note_codec(s, KV_F16, f16, plan.context);
    return rc;
}

// Plans, and fixes what was left open, before anything large is loaded.
static int make_plan(struct session *s, struct err *e) {
    const struct session_options asked = s->o;
    struct err why = {0};
    if (!s->o.draft || !s->o.draft_optional)
        return plan_codecs(s, e);
    if (!plan_codecs(s, &why))
        return 0;
    s->o = asked;
    s->o.draft = NULL;
    int rc = plan_codecs(s, e);
    if (!rc)
        drop_draft(s, &why);
    return rc;
}

static int make_host(struct session *s, struct err *e) {
    const struct kv_needs *kv = &s->plan.kv;
    const int64_t machine = machine_memory(), host = s->o.kv_host;
    int64_t page = 0;
    for (int i = 0; i < kv->n; i++)
        page += kv->of[i].staged ? kv->of[i].page_bytes : 0;
    if (!host)
        return 0;
    if (machine > 0 && host > machine)
        return err_set(e, ERR_LIMIT,
                       "%lld MiB of host memory for keys and values (--kv-host) are more than the "
                       "machine's memory of %lld MiB; give less",
                       (long long)(host >> 20), (long long)(machine >> 20));
    if (page > host)
        return err_set(e, ERR_LIMIT,
                       "%lld bytes of host memory for keys and values (--kv-host) are less than a "
                       "single page takes, %lld bytes; give at least that, or none",
                       (long long)host, (long long)page);
    return kv_host_create(&s->pages.host, runtime_exec(s->device), host, e);
}

// Reserves what was planned. Keys and values of all sequences together keep to their part of it.
static int claim_memory(struct session *s, struct err *e) {
    s->pages.limit = s->o.kv_limit;
    s->o.target.pages = &s->pages;
    int rc = make_host(s, e);
    if (rc || !s->planned)
        return rc;
    const int64_t available = runtime_available(s->device);
    struct reservation c =
        plan_reservation(&s->plan, available, s->o.model, s->own_runtime == NULL);
    rc = runtime_reserve(s->device, &c, s->plan.own, available, &s->reservation, e);
    int64_t left = s->plan.available > 0 ? plan_pages_in(&s->plan, c.bytes[ARENA_PAGES]) : 0;
    if (left > 0 && (s->o.kv_limit <= 0 || left < s->o.kv_limit))
        s->pages.limit = left;
    s->o.target.memory_limit = 0; // the plan has seen to it
    return rc;
}

static int make_drafters(struct session *s, struct err *e) {
    int rc = 0;
    for (int i = 0; i < PRICE_DRAFTS && s->drafts[i] && !rc; i++) {
        struct draft_config c = {.model = s->model,
                                 .draft = s->drafts[i],
                                 .max_k = TREE_MAX_K,
                                 .max_members = model_max_seqs(s->model)};
        rc = drafter_create(&s->drafters[i], DRAFT_MODEL, &c, e);
    }
    return rc;
}

static struct price_note note_of(const struct session *s) {
    return (struct price_note){s->o.note, s->o.note_arg};
}

// What is known of drafts with a pass for each depth before any was measured.
static struct price_drafts drafts_price(const struct session *s) {
    const double all = price_row_bytes(s->file, model_params_of(s->model));
    struct price_drafts out = {0};
    for (; out.n < PRICE_DRAFTS && s->drafts[out.n]; out.n++) {
        const struct draft_traits t = draft_traits(s->drafts[out.n]);
        out.of[out.n] =
            (struct price_draft){t.passes ? t.max_depth : 0, all > 0 ? t.pass_bytes / all : 0};
    }
    return out;
}

// Timed passes take longer than others, so what they cost is not for other sessions.
static int make_price(struct session *s, struct err *e) {
    struct exec *x = runtime_exec(s->device);
    struct price_subject subject = {.x = x,
                                    .model = s->file,
                                    .paths = s->paths,
                                    .drafts = s->drafts,
                                    .codec_k = s->o.target.codec_k,
                                    .codec_v = s->o.target.codec_v,
                                    .slots = session_experts(s).slots,
                                    .cpu_experts = s->o.target.cpu_experts,
                                    .cpu = s->cpu,
                                    .sparse = s->o.target.sparse,
                                    .view = s->o.target.view};
    struct price_note note = note_of(s);
    enum price_kind kind = exec_is_device(x) ? PRICE_GPU : PRICE_CPU;
    const struct price_experts experts = price_experts_of(s->file, model_params_of(s->model));
    const struct price_drafts drafts = drafts_price(s);
    int rc = price_create(&s->price, kind, &experts, &drafts, e);
    if (!rc)
        rc = price_create(&s->prompts, kind, &experts, &drafts, e);
    if (!rc && s->o.price_folder && !s->o.timing && !s->o.importance)
        price_file_open(&s->prices, s->o.price_folder, &subject, s->price, &note);
    return rc;
}

// Facts of the experts that cannot all be resident.
static void open_expert_profile(struct session *s) {
    const struct price_note n = note_of(s);
    if (s->o.expert_profile.keep && s->o.target.experts.n)
        expert_profile_open(&s->expert_profile, s->o.model, s->file, &s->o.target.experts,
                            s->o.target.cpu_experts, &n);
    s->o.target.uses = expert_profile_uses(&s->expert_profile);
}

// Files and devices, and the plan for them.
static int open_planned(struct session *s, const struct session_options *o, struct err *e) {
    s->o = *o;
    s->o.dflash.codec_k = o->target.codec_k;
    s->o.dflash.codec_v = o->target.codec_v;
    int rc = gguf_open(&s->file, s->o.model, e);
    if (!rc)
        rc = open_device(s, e);
    if (!rc)
        rc = open_cpu(s, e);
    if (!rc)
        rc = make_plan(s, e);
    return rc;
}

static void look_at_draft(const struct session *s, int which) {
    const struct draft_hints h = {.target = s->file,
                                  .model = s->o.model,
                                  .draft = s->paths[which],
                                  .loaded = s->drafts[which],
                                  .others = s->drafts[1] != NULL,
                                  .layers = model_params_of(s->model)->n_layers,
                                  .dflash = &s->o.dflash,
                                  .vocab = &s->o.draft_vocab,
                                  .note = s->o.note,
                                  .arg = s->o.note_arg};
    draft_hints(&h);
}

// Says that several guess, and which.
static void name_drafts(const struct session *s) {
    struct str line = {0};
    str_puts(&line, "drafts that guess together:");
    for (int i = 0; i < PRICE_DRAFTS && s->drafts[i]; i++)
        str_printf(&line, "%s %s", i ? "," : "", draft_traits(s->drafts[i]).name);
    if (s->o.note && !line.failed)
        s->o.note(s->o.note_arg, line.data);
    str_fini(&line);
}

// The first may be left out where nobody named it.
static int open_drafts(struct session *s, struct err *e) {
    struct draft_source source[PRICE_DRAFTS];
    const int n = draft_sources(s, source);
    int rc = 0, opened = 0;
    for (int i = 0; i < n && !rc; i++) {
        const bool optional = s->o.draft_optional && source[i].path == s->o.draft;
        rc = draft_open(&s->drafts[opened], s->model, &source[i], e);
        if (!rc) {
            s->paths[opened++] = source[i].path;
        } else if (optional) {
            drop_draft(s, e);
            rc = 0;
        }
    }
    for (int i = 0; !rc && i < opened; i++)
        look_at_draft(s, i);
    if (!rc && opened > 1)
        name_drafts(s);
    return rc;
}

// Says what to do about a context that the model was not trained for.
static void note_context(const struct session *s) {
    const struct model_params *p = model_params_of(s->model);
    const int64_t now = model_max_ctx(s->model);
    const bool scaled = p->rope.factor > 0 && p->rope.factor != 1;
    const double factor =
        (double)now / (double)p->context * (scaled ? (double)p->rope.factor : 1.0);
    struct str line = {0};
    if (now <= p->context)
        return;
    str_printf(
        &line,
        "a context of %lld tokens is longer than the %lld that the model is for, and answers "
        "get worse beyond them; %s--rope-scale %.2f slows positions down for it",
        (long long)now, (long long)p->context, scaled ? "" : "--rope-scaling yarn ",
        ceil(factor * 100) / 100);
    if (s->o.note && !line.failed)
        s->o.note(s->o.note_arg, line.data);
    str_fini(&line);
}

static int open_parts(struct session *s, const struct session_options *o, struct err *e) {
    int rc = open_planned(s, o, e);
    if (!rc)
        rc = claim_memory(s, e);
    if (rc)
        return rc;
    struct exec *x = runtime_exec(s->device);
    if (gguf_find(s->file, "tokenizer.ggml.model"))
        rc = tokenizer_create(&s->tokenizer, s->file, e);
    if (!rc && lends(&s->o))
        rc = exec_park_open(x, e);
    if (!rc) {
        open_expert_profile(s);
        rc = model_load(&s->model, x, s->file, &s->o.target, e);
    }
    if (rc)
        return err_prefix(e, "%s", s->o.model);
    rc = structured_store_create(&s->structured, s->tokenizer, model_params_of(s->model)->vocab, e);
    if (rc)
        return rc;
    note_context(s);
    rc = open_drafts(s, e);
    if (!rc && lends(&s->o))
        rc = exec_park_finish(x, s->o.park, e);
    if (!rc)
        rc = make_price(s, e);
    return rc ? rc : make_drafters(s, e);
}

int session_open(struct session **out, const struct session_options *o, struct err *e) {
    double start = clock_ms();
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a session");
    int rc = open_parts(s, o, e);
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
    struct session_options planned = *o;
    planned.make_plan = true;
    int rc = open_planned(s, &planned, e);
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
    struct price_note note = note_of(s);
    price_file_close(&s->prices, s->price, &note);
    if (s->model)
        expert_profile_keep(&s->expert_profile, model_experts(s->model), true, &note);
    expert_profile_close(&s->expert_profile);
    price_destroy(s->price);
    price_destroy(s->prompts);
    for (int i = 0; i < PRICE_DRAFTS; i++)
        drafter_destroy(s->drafters[i]);
    for (int i = PRICE_DRAFTS - 1; i >= 0; i--)
        draft_destroy(s->drafts[i]);
    model_destroy(s->model);
    kv_host_destroy(s->pages.host);
    structured_store_destroy(s->structured);
    if (s->tokenizer)
        tokenizer_destroy(s->tokenizer);
    if (s->device)
        runtime_release(s->device, s->reservation);
    runtime_destroy(s->own_runtime);
    if (s->file)
        gguf_close(s->file);
    free(s);
}

struct model *session_model(const struct session *s) {
    return s->model;
}

struct draft *session_draft(const struct session *s) {
    return s->drafts[0];
}

struct draft *const *session_drafts(const struct session *s) {
    return s->drafts;
}

void session_draft_names(const struct session *s, const char *names[PRICE_DRAFTS]) {
    for (int i = 0; i < PRICE_DRAFTS; i++)
        names[i] = s->drafts[i] ? draft_traits(s->drafts[i]).name : NULL;
}

const struct tokenizer *session_tokenizer(const struct session *s) {
    return s->tokenizer;
}

struct structured_store *session_structured(const struct session *s) {
    return s->structured;
}

const struct gguf *session_file(const struct session *s) {
    return s->file;
}

const struct memory_plan *session_plan(const struct session *s) {
    return s->planned ? &s->plan : NULL;
}

struct runtime_device *session_device(const struct session *s) {
    return s->device;
}

enum kv_codec_id session_codec(const struct session *s, bool values) {
    return values ? s->o.target.codec_v : s->o.target.codec_k;
}

int64_t session_kv_used(const struct session *s) {
    return s->pages.held - kv_budget_free_bytes(&s->pages);
}

int64_t session_kv_pages(const struct session *s) {
    return kv_budget_used(&s->pages);
}

int64_t session_kv_limit(const struct session *s) {
    return s->pages.limit;
}

struct kv_host_stats session_kv_host(const struct session *s) {
    return s->pages.host ? kv_host_stats_of(s->pages.host) : (struct kv_host_stats){0};
}

void session_kv_host_limit(struct session *s, int64_t limit) {
    if (s->pages.host)
        kv_host_limit(s->pages.host, limit);
}

void session_kv_host_trim(struct session *s) {
    kv_budget_trim_host(&s->pages);
}

// Of each page that goes to host memory a part stays on the device, as staging.
int64_t session_kv_room(const struct session *s) {
    const struct kv_host_stats h = session_kv_host(s);
    const struct kv_needs *kv = &s->plan.kv;
    int64_t staged = 0;
    for (int i = 0; i < kv->n; i++)
        if (kv->of[i].staged && (!staged || kv->of[i].staged < staged))
            staged = kv->of[i].staged;
    int64_t beyond = staged ? max_i64(h.limit - h.page_bytes, 0) / staged * (staged - 1) : 0;
    return session_kv_limit(s) - session_kv_used(s) + beyond;
}

int64_t session_trim(struct session *s) {
    int64_t bytes = kv_budget_trim(&s->pages);
    exec_trim(runtime_exec(s->device));
    return bytes;
}

int session_park(struct session *s, struct err *e) {
    int rc = model_vacate(s->model, e);
    if (!rc)
        exec_park(runtime_exec(s->device));
    return rc;
}

int session_unpark(struct session *s, struct err *e) {
    int rc = exec_unpark(runtime_exec(s->device), e);
    return rc ? rc : model_occupy(s->model, e);
}

void session_keep_experts(struct session *s) {
    const struct price_note n = note_of(s);
    expert_profile_keep(&s->expert_profile, model_experts(s->model), false, &n);
}

struct expert_use session_experts(const struct session *s) {
    struct expert_use u = {0};
    const struct expert_store *store = s->model ? model_experts(s->model) : NULL;
    u.cpu_layers = s->plan.cpu_layers;
    u.cpu_bytes = s->plan.cpu_experts;
    if (!store)
        return u;
    const struct expert_classes *c = expert_store_classes(store);
    for (int i = 0; i < c->n; i++)
        u.slots += c->c[i].slots;
    u.experts = (int64_t)expert_classes_layers(c) * c->experts;
    u.slot_bytes = expert_classes_held(c);
    expert_store_stats(store, &u.count);
    u.lent = expert_store_lent(store);
    return u;
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

struct drafter *const *session_drafters(const struct session *s) {
    return s->drafters;
}

struct price *session_price(const struct session *s) {
    return s->price;
}

struct price *session_prompt_price(const struct session *s) {
    return s->prompts;
}

int64_t session_pass_rows(const struct session *s, int64_t n) {
    return model_rows_for(s->model, n);
}

int64_t session_chunk(const struct session *s, int64_t n) {
    int64_t rows = session_pass_rows(s, n);
    return s->o.target.lending.n ? rows : min_i64(s->o.chunk, rows);
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
