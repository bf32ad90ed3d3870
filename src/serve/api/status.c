// SPDX-License-Identifier: Apache-2.0
// The state of the server for people, load balancers and Prometheus; see handlers.h.
#include "serve/api/handlers.h"

#include <stdio.h>
#include <string.h>

// By kind, in the order in which they are counted.
static void put_drafts(const struct service *s, struct json_writer *w) {
    jw_key_begin(w, "drafts", '[');
    for (int i = 0; i < PRICE_DRAFTS && s->drafts[i]; i++)
        jw_cstr(w, s->drafts[i]);
    jw_end(w, ']');
}

// Where pages of keys and values are; one that is in several places counts in each.
static void put_pages(struct json_writer *w, struct engine_stats g) {
    jw_key_begin(w, "kv_pages", '{');
    jw_key_int(w, "device", g.pages);
    jw_key_int(w, "host", g.cache.pages + g.kv_host.pages);
    jw_key_int(w, "disk", g.cache.file_pages);
    jw_end(w, '}');
}

void api_health(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    struct json_writer w = {0};
    struct api_error why = {0};
    if (!service_ready(s, &why)) {
        if (why.status == 500) // for a load balancer it is away, whatever the reason
            why.status = 503;
        service_refuse(x, &why);
        return;
    }
    jw_begin(&w, '{');
    jw_key_str(&w, "status", "ok");
    jw_key_str(&w, "speculate", speculate_name(s->limits.how));
    answer_view(&w, &s->view);
    put_drafts(s, &w);
    put_pages(&w, engine_stats(s->engine));
    jw_end(&w, '}');
    service_json(x, 200, &w);
}

static void put_defaults(const struct service *s, struct json_writer *w) {
    const struct sample_params *p = &s->limits.sample;
    jw_key_begin(w, "default_generation_settings", '{');
    jw_key_int(w, "n_ctx", s->n_ctx);
    jw_key_begin(w, "params", '{');
    jw_key_num(w, "temperature", p->temperature);
    jw_key_int(w, "top_k", p->top_k);
    jw_key_num(w, "top_p", p->top_p);
    jw_key_num(w, "min_p", p->min_p);
    jw_key_num(w, "repeat_penalty", p->repeat);
    jw_key_num(w, "presence_penalty", p->presence);
    jw_key_num(w, "frequency_penalty", p->frequency);
    jw_key_int(w, "repeat_last_n", p->window);
    jw_key_str(w, "speculate", speculate_name(s->limits.how));
    jw_end(w, '}');
    jw_end(w, '}');
}

static void put_tokenizer(const struct service *s, struct json_writer *w) {
    size_t n;
    if (s->chat) {
        const char *text = chat_template_text(s->chat, &n);
        jw_key_text(w, "chat_template", text, n);
    }
    jw_key(w, "bos_token");
    answer_token(w, s->tokenizer, tokenizer_bos(s->tokenizer));
    jw_key(w, "eos_token");
    answer_token(w, s->tokenizer, tokenizer_eos(s->tokenizer));
}

// By which lm-evaluation-harness finds that the server tokenises for it.
void api_tokenizer_info(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    struct json_writer w = {0};
    struct api_error why = {0};
    bool ready = service_ready(s, &why);
    if (ready && !s->tokenizer)
        api_fail(&why, 400, NULL, "the model's file has no tokenizer");
    if (!ready || !s->tokenizer) {
        service_refuse(x, &why);
        return;
    }
    jw_begin(&w, '{');
    put_tokenizer(s, &w);
    jw_end(&w, '}');
    service_json(x, 200, &w);
}

void api_props(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    struct json_writer w = {0};
    struct api_error why = {0};
    if (!service_ready(s, &why)) {
        service_refuse(x, &why);
        return;
    }
    jw_begin(&w, '{');
    put_defaults(s, &w);
    jw_key_int(&w, "total_slots", s->limits.slots);
    jw_key_str(&w, "model_alias", s->model);
    jw_key_str(&w, "model_path", s->model); // its location is not shown
    jw_key_str(&w, "arch", s->arch);
    jw_key_str(&w, "quantization", s->quantization);
    jw_key_int(&w, "n_ctx_train", s->n_ctx_train);
    jw_key_str(&w, "kv_type_k", s->kv_type_k);
    jw_key_str(&w, "kv_type_v", s->kv_type_v);
    answer_view(&w, &s->view);
    jw_key_int(&w, "n_vocab", s->limits.vocab);
    jw_key_bool(&w, "draft", s->limits.has_draft);
    put_drafts(s, &w);
    if (s->shorteners)
        jw_key_str(&w, "prefill_compression", prefill_mode_name(s->o->prefill.mode));
    if (s->chat)
        jw_key_str(&w, "reasoning", reasoning_name(chat_template_reasoning(s->chat)));
    if (s->tokenizer)
        put_tokenizer(s, &w);
    jw_key_begin(&w, "modalities", '{');
    jw_key_bool(&w, "vision", false);
    jw_key_bool(&w, "audio", false);
    jw_end(&w, '}');
    jw_end(&w, '}');
    service_json(x, 200, &w);
}

static void put_slot(const struct service *s, struct json_writer *w, int id,
                     const struct choice *k) {
    jw_begin(w, '{');
    jw_key_int(w, "id", id);
    jw_key_int(w, "n_ctx", s->n_ctx);
    jw_key_bool(w, "is_processing", k != NULL);
    if (k) {
        struct stream_progress p = stream_progress(k->stream);
        jw_key_str(w, "state", stream_phase_name(p.phase));
        jw_key_int(w, "choice", k->index);
        jw_key_int(w, "n_prompt", p.prompt);
        jw_key_int(w, "n_prompt_done", p.done);
        jw_key_int(w, "n_tokens", p.tokens);
        jw_key_str(w, "speculate", speculate_name(k->c->p.how));
    } else {
        jw_key_str(w, "state", "idle");
    }
    jw_end(w, '}');
}

// Ids of requests are not given: with one, its trees can be watched.
// Requests in progress first, those that wait among them, then the slots that are left.
void api_slots(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    struct json_writer w = {0};
    int id = 0;
    jw_begin(&w, '[');
    for (const struct completion *c = s->completions; c; c = c->next)
        for (int i = 0; c->prepared && i < c->n_choices; i++)
            if (c->choices[i].stream && !c->choices[i].ended)
                put_slot(s, &w, id++, &c->choices[i]);
    while (s->ready && id < s->limits.slots)
        put_slot(s, &w, id++, NULL);
    jw_end(&w, ']');
    service_json(x, 200, &w);
}

// A counter where its name ends in _total, else a gauge.
struct count {
    const char *name, *help;
    double value;
};
#define COUNT(name, help, value) {name, help, (double)(value)}

static void write_counts(struct str *out, const struct count *c, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool counter = strlen(c[i].name) > 6 && !strcmp(strchr(c[i].name, 0) - 6, "_total");
        metrics_head(out, c[i].name, counter ? "counter" : "gauge", c[i].help);
        metrics_value(out, c[i].name, "", c[i].value);
    }
}

// A histogram whose bins end at 2^i, or at i.
static void write_bins(struct str *out, const char *name, const char *help, const int64_t *count,
                       int n, bool powers, double sum) {
    int64_t all = 0;
    metrics_head(out, name, "histogram", help);
    for (int i = 0; i < n; i++) {
        all += count[i];
        str_printf(out, "%s_bucket{le=\"%lld\"} %lld\n", name, powers ? 1LL << i : (long long)i,
                   (long long)all);
    }
    str_printf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.0f\n%s_count %lld\n", name,
               (long long)all, name, sum, name, (long long)all);
}

static void write_requests(struct str *out, const struct engine_stats *g) {
    const struct count counts[] = {
        COUNT("coppice_requests_running", "Requests that the engine works on.", g->running),
        COUNT("coppice_requests_waiting", "Requests that wait for a slot.", g->waiting),
        COUNT("coppice_requests_parked", "Requests that rest until there is memory.", g->parked),
        COUNT("coppice_requests_reading", "Of these, requests whose prompt is being read.",
              g->reading),
        COUNT("coppice_slots", "Requests that can run together.", g->slots),
        COUNT("coppice_kv_bytes_used", "Bytes of pages of keys and values in use.",
              g->page_bytes_used),
        COUNT("coppice_kv_bytes_limit", "Bytes that these may take; 0: no limit.",
              g->page_bytes_limit),
    };
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
}

// Where pages are, and states of parked requests in host memory.
static void write_places(struct str *out, const struct engine_stats *g) {
    static const char name[] = "coppice_kv_pages";
    const struct count counts[] = {
        COUNT("coppice_kv_host_bytes",
              "Host memory that states of parked requests and pages of running ones take.",
              g->cache.held + g->kv_host.held),
        COUNT("coppice_kv_host_bytes_limit", "Memory that they may take (--kv-host).",
              g->cache.held_limit),
        COUNT("coppice_kv_host_moves_total", "States that moved there.", g->cache.holds),
        COUNT("coppice_kv_host_pages_out_total", "Pages of running requests that moved there.",
              g->kv_host.given_up),
        COUNT("coppice_kv_host_pages_back_total", "Pages of these that came back.",
              g->kv_host.brought_back),
    };
    metrics_head(out, name, "gauge", "Pages of keys and values by place, copies in each.");
    metrics_value(out, name, "place=\"device\"", (double)g->pages);
    metrics_value(out, name, "place=\"host\"", (double)(g->cache.pages + g->kv_host.pages));
    metrics_value(out, name, "place=\"disk\"", (double)g->cache.file_pages);
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
}

static void write_cache(struct str *out, const struct engine_stats *g) {
    const struct count counts[] = {
        COUNT("coppice_prompt_tokens_total", "Tokens of prompts that were run.", g->prompt_tokens),
        COUNT("coppice_cached_tokens_total", "Tokens of prompts that had been run before.",
              g->cached_tokens),
        COUNT("coppice_cache_bytes", "Memory of the prefix cache and of what --kv-host holds.",
              g->cache.bytes),
        COUNT("coppice_cache_bytes_limit", "Memory that both may take; 0: there are none.",
              g->cache.limit),
        COUNT("coppice_cache_entries", "States of texts in it.", g->cache.entries),
        COUNT("coppice_cache_lookups_total",
              "Prompts, and texts of parked requests, looked up in it.", g->cache.lookups),
        COUNT("coppice_cache_hits_total", "Of these, those whose beginning was there.",
              g->cache.hits),
        COUNT("coppice_cache_evicted_total", "States dropped for others.", g->cache.evicted),
        COUNT("coppice_cache_files", "States that are files.", g->cache.files),
        COUNT("coppice_cache_disk_bytes", "Bytes of all files in the folder.", g->cache.disk_bytes),
        COUNT("coppice_cache_disk_bytes_limit", "Bytes that they may take; 0: no folder.",
              g->cache.disk_limit),
        COUNT("coppice_cache_files_written_total", "Files written.", g->cache.written),
        COUNT("coppice_cache_files_read_total", "States read from files.", g->cache.loaded),
        COUNT("coppice_cache_files_failed_total", "Files that could not be read or written.",
              g->cache.failed),
        COUNT("coppice_cache_refused_total", "States for which there was no room.",
              g->cache.refused),
    };
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
}

static void write_experts(struct str *out, const struct engine_stats *g) {
    const struct count counts[] = {
        COUNT("coppice_expert_slots", "Experts that a GPU holds where it cannot hold all.",
              g->experts.slots),
        COUNT("coppice_experts", "Experts of all layers of such a model.", g->experts.experts),
        COUNT("coppice_expert_slot_bytes", "Memory of the slots.", g->experts.slot_bytes),
        COUNT("coppice_expert_slots_lent", "Slots that are lent to a prompt or a scorer.",
              g->experts.lent.slots),
        COUNT("coppice_expert_loans_total", "How often slots were lent.", g->experts.lent.loans),
        COUNT("coppice_expert_given_total", "Slots that were lent, each time.",
              g->experts.lent.given),
        COUNT("coppice_expert_cpu_layers", "Layers whose experts the CPU computes.",
              g->experts.cpu_layers),
        COUNT("coppice_expert_cpu_bytes", "Memory of these experts on the host.",
              g->experts.cpu_bytes),
        COUNT("coppice_expert_hits_total", "Experts that a layer's pass found resident.",
              g->experts.count.hits),
        COUNT("coppice_expert_misses_total", "Experts that it had to bring.",
              g->experts.count.misses),
        COUNT("coppice_expert_bytes_total", "Bytes of experts that were brought.",
              g->experts.count.bytes),
        COUNT("coppice_expert_evictions_total", "Experts that made room for others.",
              g->experts.count.evictions),
        COUNT("coppice_expert_ahead_total", "Experts copied before their layer chose them.",
              g->experts.count.ahead),
    };
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
}

static void write_passes(struct str *out, const struct engine_stats *g) {
    const struct count counts[] = {
        COUNT("coppice_tokens_total", "New tokens.", g->tokens),
        COUNT("coppice_drafted_tokens_total", "Guesses that were verified.", g->drafted),
        COUNT("coppice_accepted_tokens_total", "Guesses that became tokens.", g->accepted),
        COUNT("coppice_passes_total", "Passes of the model.", g->passes),
        COUNT("coppice_pass_seconds_total", "Time that passes took.", g->pass_ms / 1e3),
        COUNT("coppice_parkings_total", "Requests that were parked for lack of memory.",
              g->parkings),
        COUNT("coppice_rerun_tokens_total", "Tokens run again after such a rest.", g->recomputed),
        COUNT("coppice_longest_gap_seconds",
              "The longest time between two steps of one running request.", g->gap_ms / 1e3),
    };
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
}

// Metrics that dashboards for llama-server read.
static void write_llama_server(struct str *out, const struct engine_stats *g) {
    const struct count counts[] = {
        COUNT("llamacpp:prompt_tokens_total", "As coppice_prompt_tokens_total.", g->prompt_tokens),
        COUNT("llamacpp:tokens_predicted_total", "As coppice_tokens_total.", g->tokens),
        COUNT("llamacpp:requests_processing", "As coppice_requests_running.", g->running),
        COUNT("llamacpp:requests_deferred", "As coppice_requests_waiting.", g->waiting),
    };
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
}

static void write_engine(struct str *out, const struct engine_stats *g) {
    write_requests(out, g);
    write_places(out, g);
    write_cache(out, g);
    write_experts(out, g);
    write_passes(out, g);
    write_llama_server(out, g);
    double accepted = 0;
    for (int i = 0; i < ENGINE_ACCEPT_BINS; i++)
        accepted += (double)i * (double)g->accept[i];
    write_bins(out, "coppice_pass_rows", "Rows of a pass.", g->rows, ENGINE_ROW_BINS, true,
               (double)g->pass_rows);
    write_bins(out, "coppice_accept_length", "Tokens that a request got out of one pass.",
               g->accept, ENGINE_ACCEPT_BINS, false, accepted);
}

// Guesses by drafter and depth, and passes by context. What has not happened is left out.
static void write_depths(struct str *out, const char *name, const char *help,
                         const int64_t of[GUESS_KINDS][TREE_MAX_DEPTH], const char *const *drafts) {
    metrics_head(out, name, "counter", help);
    for (enum guess_by by = 0; by < GUESS_KINDS; by++)
        for (int d = 0; d < TREE_MAX_DEPTH; d++) {
            char label[64];
            snprintf(label, sizeof label, "drafter=\"%s\",depth=\"%d\"", guess_by_name(by, drafts),
                     d + 1);
            if (of[by][d])
                metrics_value(out, name, label, (double)of[by][d]);
        }
}

static void write_spans(struct str *out, const char *name, const char *help, const int64_t *of) {
    metrics_head(out, name, "counter", help);
    for (int i = 0; i < GUESS_SPANS; i++) {
        char label[32];
        snprintf(label, sizeof label, "context=\"%s\"", guess_spans[i].name);
        if (of[i])
            metrics_value(out, name, label, (double)of[i]);
    }
}

static void write_guesses(struct str *out, const struct guess_counts *c,
                          const char *const *drafts) {
    write_depths(out, "coppice_guesses_verified_total",
                 "Guesses that were verified, by whose and how deep.", c->verified, drafts);
    write_depths(out, "coppice_guesses_accepted_total", "Those that became tokens.", c->accepted,
                 drafts);
    int64_t sums[2] = {0}; // of all drafts
    for (int i = 0; i < PRICE_DRAFTS; i++) {
        sums[0] += c->drafted_for[i];
        sums[1] += c->unknown[i];
    }
    const struct count counts[] = {
        COUNT("coppice_draft_tokens_total", "Tokens chosen where a draft guessed.", sums[0]),
        COUNT("coppice_draft_unknown_tokens_total", "Those that it can never guess.", sums[1]),
    };
    write_counts(out, counts, sizeof counts / sizeof counts[0]);
    write_spans(out, "coppice_context_passes_total",
                "Passes of requests after their prompts, by tokens of context.", c->passes);
    write_spans(out, "coppice_context_tokens_total", "Tokens that these gave.", c->tokens);
}

// How tokens are guessed where requests do not say.
static void write_speculation(struct str *out, const struct service *s) {
    char label[32];
    if (!s->ready)
        return;
    snprintf(label, sizeof label, "how=\"%s\"", speculate_name(s->limits.how));
    metrics_head(out, "coppice_speculation_info", "gauge",
                 "How tokens are guessed for requests that do not say: 1.");
    metrics_value(out, "coppice_speculation_info", label, 1);
}

void api_metrics(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    struct str out = {0};
    struct engine_stats g = engine_stats(s->engine);
    struct http_counts h = http_counts(s->http);
    const struct count counts[] = {
        COUNT("coppice_http_connections", "Open connections.", h.connections),
        COUNT("coppice_http_requests_total", "HTTP requests.", h.requests),
        COUNT("coppice_http_refused_total", "HTTP requests that were refused unread.", h.refused),
        COUNT("coppice_http_body_bytes", "Memory of request bodies and of what is made of them.",
              h.body_bytes),
    };
    metrics_write_build(&out, s->o->build);
    write_engine(&out, &g);
    write_guesses(&out, &g.guesses, s->drafts);
    write_speculation(&out, s);
    write_counts(&out, counts, sizeof counts / sizeof counts[0]);
    metrics_write(&s->metrics, &out);
    if (out.failed)
        exchange_reply(x, 500, NULL, NULL, 0);
    else
        exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    str_fini(&out);
}
