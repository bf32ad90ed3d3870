// SPDX-License-Identifier: Apache-2.0
// When prompts are compressed, and what is told of it; see prefill.h.
#include "compress/prefill.h"

#include "compress/json_messages.h"

enum { THRESHOLD = 32000 };

struct prefill_options prefill_options_default(void) {
    return (struct prefill_options){.threshold = THRESHOLD, .compress = compress_options_default()};
}

void prefill_adapt(struct prefill_options *o, double keep) {
    o->compress.select.budget = SELECT_RATIO;
    o->compress.select.keep = keep;
    o->compress.adapted = true;
}

const char *prefill_skip(const struct prefill_options *o, const struct prefill_prompt *p) {
    bool fits = p->room == 0 || p->tokens <= p->room;
    if (o->mode == PREFILL_OFF)
        return "compression is off";
    if (p->tools)
        return "tools are present";
    if (o->mode == PREFILL_AUTO && p->tokens < o->threshold && fits)
        return "the prompt is shorter than the threshold";
    return NULL;
}

// A curve is over tokens of the target, which the compressor does not know.
static struct compress_options options_for(const struct prefill_options *o, int64_t tokens) {
    struct compress_options c = o->compress;
    if (c.select.budget == SELECT_CURVE) {
        c.select.keep = select_ratio(&c.select, tokens);
        c.select.budget = SELECT_RATIO;
    }
    return c;
}

static void fill_report(struct prefill_report *report, const struct prefill_options *o,
                        const struct compress_result *r) {
    report->adapted = o->compress.adapted && !r->reason ? o->compress.select.keep : 0;
    report->tried = true;
    report->from = r->from;
    report->to = r->to;
    report->ms = r->ms_encode + r->ms_score + r->ms_select;
    report->parked_ms = r->ms_turn;
    report->reason = r->reason;
}

// The kept messages as a value of their own.
static int rewrite(const struct json_messages *in, const struct compress_result *r, const char *gap,
                   struct json **out, struct err *e) {
    const struct json_rules rules = {.depth = 256, .big_integers = true};
    struct json_writer w = {0};
    json_messages_write(in, r, gap, &w);
    int rc = w.out.failed || !w.out.data
                 ? err_set(e, ERR_MEMORY, "no memory for the compressed messages")
                 : json_parse_with(out, w.out.data, w.out.len, &rules, e);
    str_fini(&w.out);
    return rc;
}

// Counts what the caller has not counted, and looks whether it is to be compressed then.
static int gate(const struct compressor *c, const struct prefill_options *o,
                const struct compress_conversation *v, int64_t *tokens,
                struct prefill_report *report, struct err *e) {
    *report = (struct prefill_report){0};
    if (*tokens >= 0)
        return 0;
    int rc = compress_count(c, v, tokens, e);
    const struct prefill_prompt p = {.tokens = *tokens};
    const char *reason = rc ? NULL : prefill_skip(o, &p);
    if (reason)
        *report = (struct prefill_report){
            .tried = true, .from = *tokens, .to = *tokens, .reason = reason};
    return rc;
}

int prefill_messages(struct compressor *c, const struct prefill_options *o,
                     const struct json *messages, int64_t tokens, struct json **out,
                     struct prefill_report *report, struct err *e) {
    struct json_messages in = {0};
    struct compress_result r = {0};
    *out = NULL;
    int rc = json_messages_read(&in, messages, e);
    if (!rc)
        rc = gate(c, o, &in.v, &tokens, report, e);
    if (!rc && !report->reason) {
        struct compress_options options = options_for(o, tokens);
        rc = compress_messages(c, &in.v, &options, &r, e);
        fill_report(report, o, &r);
        if (!rc && !r.reason)
            rc = rewrite(&in, &r, o->gap, out, e);
    }
    compress_result_fini(&r);
    json_messages_fini(&in);
    return rc;
}

int prefill_text(struct compressor *c, const struct prefill_options *o,
                 const struct compress_part *text, int64_t tokens, struct str *out,
                 struct prefill_report *report, struct err *e) {
    const struct compress_message m = {"user", text, 1};
    const struct compress_conversation v = {&m, 1};
    struct compress_result r = {0};
    int rc = gate(c, o, &v, &tokens, report, e);
    if (!rc && !report->reason) {
        struct compress_options options = options_for(o, tokens);
        rc = compress_text(c, text, NULL, &options, &r, e);
        fill_report(report, o, &r);
        if (!rc)
            compress_kept(&r, &v, 0, 0, o->gap, out);
    } else if (!rc)
        str_append(out, text->text, text->n);
    if (!rc && out->failed)
        rc = err_set(e, ERR_MEMORY, "no memory for the compressed text");
    compress_result_fini(&r);
    return rc;
}

void prefill_report_write(struct json_writer *w, const struct prefill_report *r) {
    jw_begin(w, '{');
    jw_key_int(w, "from", r->from);
    jw_key_int(w, "to", r->to);
    jw_key_num(w, "ms", (double)(int64_t)(r->ms * 1000 + 0.5) / 1000);
    jw_key(w, "reason");
    if (r->reason)
        jw_cstr(w, r->reason);
    else
        jw_null(w);
    if (r->parked_ms > 0)
        jw_key_num(w, "parked_ms", (double)(int64_t)(r->parked_ms * 1000 + 0.5) / 1000);
    if (r->adapted > 0) {
        jw_key_bool(w, "adapted", true);
        jw_key_num(w, "keep_ratio", r->adapted);
    }
    jw_end(w, '}');
}
