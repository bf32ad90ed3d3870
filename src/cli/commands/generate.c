// SPDX-License-Identifier: Apache-2.0
// `coppice generate`: continues a prompt. Text streams to standard output as it is chosen; with
// --json one object comes at the end instead. What it cost goes to standard error.
#include <stdlib.h>

#include "cli/chat/dialog.h"
#include "cli/models/compression.h"
#include "cli/models/decode.h"

// Streams the text of new tokens.
struct stream {
    const struct tokenizer *t; // NULL: ids are printed instead
    bool quiet;                // --json: nothing before the end
    struct utf8_stream utf8;
    struct str bytes, text;
    bool any;
    int rc; // first failed write
    struct err *e;
};

static void stream_ids(struct stream *s, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++, s->any = true)
        str_printf(&s->text, "%s%d", s->any ? "," : "", ids[i]);
}

static void stream_flush(struct stream *s) {
    if (s->text.failed || s->bytes.failed)
        s->rc = err_set(s->e, ERR_MEMORY, "no memory for the text of the reply");
    else if (s->text.len && !s->rc)
        s->rc = cli_write(s->text.data, s->text.len, s->e);
    str_clear(&s->text);
}

static int stream_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct stream *s = arg;
    if (!s->quiet) {
        str_clear(&s->bytes);
        for (int64_t i = 0; s->t && i < n; i++)
            tokenizer_decode(s->t, ids[i], false, &s->bytes);
        if (!s->t)
            stream_ids(s, ids, n);
        else if (s->bytes.len)
            utf8_stream_push(&s->utf8, s->bytes.data, s->bytes.len, &s->text);
        stream_flush(s);
    }
    return s->rc || cli_interrupted();
}

static int stream_end(struct stream *s) {
    if (!s->quiet) {
        utf8_stream_end(&s->utf8, &s->text);
        str_putc(&s->text, '\n');
        stream_flush(s);
    }
    str_fini(&s->bytes);
    str_fini(&s->text);
    return s->rc;
}

static void report_cost(const struct request *r, const struct reply *y, double load) {
    const struct step_times *m = &y->ms;
    double decode = decode_ms(m);
    int64_t committed = y->n > 0 ? y->n - 1 : 0;
    fprintf(stderr, "%s: %lld prompt tokens in %.1f ms; %lld new tokens", speculate_name(r->how),
            (long long)r->n_prompt, m->prompt, (long long)y->n);
    if (y->steps > 0 && decode > 0)
        fprintf(stderr, ", %.1f tok/s, %lld passes, accept length %.2f",
                (double)committed * 1000 / decode, (long long)y->steps,
                (double)committed / (double)y->steps);
    fprintf(stderr, "; end: %s\n", end_reason_name(y->end));
    fprintf(stderr, "ms: load %.1f, draft %.1f, verify %.1f, sample %.1f, commit %.1f\n", load,
            m->draft, m->verify, m->sample, m->commit);
    if (r->logit_hash)
        fprintf(stderr, "logit hash %016llx\n", (unsigned long long)y->hash);
}

// The biases of --logit-bias; the caller frees them.
static int parse_bias(const char *text, struct sample_params *p, struct err *e) {
    int max = 1;
    for (const char *c = text; *c; c++)
        max += *c == ',';
    struct logit_bias *bias = calloc((size_t)max, sizeof *bias);
    if (!bias)
        return err_set(e, ERR_MEMORY, "no memory for %d biases", max);
    p->bias = bias;
    while (p->n_bias < max) {
        char *end, *rest;
        long long id = strtoll(text, &end, 10);
        float value = *end == ':' ? strtof(end + 1, &rest) : 0;
        if (end == text || *end != ':' || rest == end + 1 || (*rest && *rest != ',') ||
            id != (int32_t)id)
            return err_set(
                e, ERR_USAGE,
                "--logit-bias is a list of ID:BIAS, as in 42:-1.5,1000:-inf, not '%.40s'", text);
        bias[p->n_bias++] = (struct logit_bias){(int32_t)id, value};
        text = rest + 1;
    }
    return 0;
}

// Options besides those that all decoding commands have.
static int read_reply_options(const struct cli_args *a, struct request *r, struct err *e) {
    const struct options *o = &a->opt;
    bool json = options_flag(o, OPT_JSON);
    bool logprobs = options_given(o, OPT_LOGPROBS) || options_flag(o, OPT_PROMPT_LOGPROBS);
    r->logit_hash = json || options_flag(o, OPT_LOGIT_HASH);
    if (logprobs && !json)
        return err_set(e, ERR_USAGE, "log-probabilities are printed with --json only");
    if (options_given(o, OPT_LOGPROBS))
        r->logprobs = (int)options_int(o, OPT_LOGPROBS);
    r->prompt_logprobs = options_flag(o, OPT_PROMPT_LOGPROBS);
    const char *bias = options_str(o, OPT_LOGIT_BIAS);
    return bias ? parse_bias(bias, &r->sample, e) : 0;
}

static void write_logprob(struct json_writer *w, int32_t id, float logp) {
    jw_begin(w, '{');
    jw_key_int(w, "id", id);
    jw_key_num(w, "logprob", (double)logp);
}

// Those of tokens ids[n], the first of which are `none` without any.
static void write_logprobs(struct json_writer *w, const char *key, const struct logprobs *l,
                           const int32_t *ids, int64_t n, int none) {
    jw_key_begin(w, key, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i < none) {
            jw_null(w);
            continue;
        }
        struct token_logprobs p = logprobs_at(l, i - none);
        write_logprob(w, ids[i], p.chosen);
        jw_key_begin(w, "top", '[');
        for (int j = 0; j < p.n && p.ids[j] >= 0; j++) {
            write_logprob(w, p.ids[j], p.logp[j]);
            jw_end(w, '}');
        }
        jw_end(w, ']');
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

static int print_reply_json(const struct session *s, const struct request *r, const struct reply *y,
                            const struct prefill_report *report, struct err *e) {
    struct json_writer w = {0};
    struct str text = {0};
    const char *drafts[PRICE_DRAFTS];
    session_draft_names(s, drafts);
    decode_text(s, y->ids, y->n, &text);
    w.out.failed = text.failed;
    jw_begin(&w, '{');
    decode_json_memory(&w, s);
    decode_json_ids(&w, "prompt_ids", r->prompt, r->n_prompt);
    decode_json_ids(&w, "ids", y->ids, y->n);
    jw_key_text(&w, "text", text.data ? text.data : "", text.len);
    jw_key_str(&w, "speculate", speculate_name(r->how));
    jw_key(&w, "ms");
    decode_json_ms(&w, session_load_ms(s), &y->ms, y->total_ms);
    jw_key_int(&w, "steps", y->steps);
    decode_json_ids(&w, "accept_lengths", y->accepted, y->steps);
    jw_key_int(&w, "drafted", y->drafted);
    jw_key(&w, "guesses");
    guess_counts_json(&y->guesses, drafts, &w);
    decode_json_hash(&w, y->hash);
    if (r->logprobs >= 0)
        write_logprobs(&w, "logprobs", &y->logprobs, y->ids, y->n, 0);
    if (r->prompt_logprobs)
        write_logprobs(&w, "prompt_logprobs", &y->prompt_logprobs, r->prompt, r->n_prompt, 1);
    if (report->tried) {
        jw_key(&w, "compression");
        prefill_report_write(&w, report);
    }
    jw_key_str(&w, "end_reason", end_reason_name(y->end));
    jw_end(&w, '}');
    str_fini(&text);
    return cli_print_json(&w, e);
}

// The ids of a text, or of what stays of a long one.
static int text_prompt(const struct cli_args *a, const struct session *s,
                       const struct compression *k, struct token_list *out,
                       struct prefill_report *report, struct err *e) {
    struct prefill_prompt p = {.room = model_max_ctx(session_model(s)) - 1};
    struct str text = {0}, kept = {0};
    int rc = cli_read_text(a, &text, e);
    const struct compress_part part = {text.data ? text.data : "", text.len};
    if (!rc)
        rc = session_encode(s, part.text, part.n, out, e);
    p.tokens = (int64_t)out->count;
    const char *reason = prefill_skip(&k->options, &p);
    *report =
        (struct prefill_report){.tried = true, .from = p.tokens, .to = p.tokens, .reason = reason};
    if (!rc && !reason)
        rc = prefill_text(k->c, &k->options, &part, p.tokens, &kept, report, e);
    if (!rc && !report->reason) {
        token_list_fini(out);
        token_list_bound(out, p.room + 1);
        rc = session_encode(s, kept.data ? kept.data : "", kept.len, out, e);
    }
    report->from = p.tokens;
    report->to = (int64_t)out->count;
    str_fini(&text);
    str_fini(&kept);
    return rc;
}

// The ids of a text, or with --chat those of a conversation.
static int read_prompt(const struct cli_args *a, const struct session *s,
                       const struct compression *k, struct token_list *out,
                       struct prefill_report *report, struct err *e) {
    static const int with_chat[] = {OPT_MESSAGES,        OPT_SYSTEM,      OPT_TEMPLATE_FILE,
                                    OPT_TEMPLATE_KWARGS, OPT_TOOL_FORMAT, OPT_NO_THINKING};
    if (options_flag(&a->opt, OPT_CHAT))
        return dialog_prompt(a, s, k, out, report, e);
    for (size_t i = 0; i < sizeof with_chat / sizeof *with_chat; i++)
        if (options_given(&a->opt, with_chat[i]))
            return err_set(e, ERR_USAGE, "--%s is for conversations; give --chat as well",
                           cli_options[with_chat[i]].name);
    if (k->c && !options_given(&a->opt, OPT_IDS))
        return text_prompt(a, s, k, out, report, e);
    return decode_prompt(a, s, out, e);
}

static int generate_reply(const struct cli_args *a, struct session *s, const struct compression *k,
                          struct err *e) {
    struct prefill_report report = {0};
    struct token_list prompt = {0};
    struct request r;
    struct reply y = {0};
    bool json = options_flag(&a->opt, OPT_JSON);
    struct stream out = {.t = session_tokenizer(s), .quiet = json, .e = e};
    decode_request(a, s, &r);
    int rc = read_reply_options(a, &r, e);
    if (!rc)
        rc = decode_constraint(a, s, &r.constraint, e);
    if (!rc)
        rc = read_prompt(a, s, k, &prompt, &report, e);
    if (rc)
        goto out;
    if (!json)
        compression_show(&report);
    r.prompt = prompt.ids;
    r.n_prompt = (int64_t)prompt.count;
    r.tokens = stream_tokens;
    r.tokens_arg = &out;
    rc = session_generate(s, &r, &y, e);
    if (!rc)
        rc = stream_end(&out);
    else if (y.n > 0 && !out.rc)
        stream_end(&out); // what was said stays; the error follows on a line of its own
    if (!rc && !cli_interrupted())
        rc = json ? print_reply_json(s, &r, &y, &report, e)
                  : (report_cost(&r, &y, session_load_ms(s)), 0);
    decode_show_peak(a, s);
out:
    str_fini(&out.bytes);
    str_fini(&out.text);
    reply_fini(&y);
    token_list_fini(&prompt);
    constraint_drop(r.constraint);
    free((void *)r.sample.bias);
    return rc;
}

int cmd_generate(const struct cli_args *a, struct err *e) {
    struct compression k;
    struct session *s = NULL;
    int rc = decode_open_with_scorer(a, &k, &s, e);
    if (!rc) {
        cli_catch_interrupt();
        rc = generate_reply(a, s, &k, e);
    }
    session_close(s);
    compression_close(&k);
    return rc;
}
