// SPDX-License-Identifier: Apache-2.0
// Ratios of sessions, messages from JSON and back, and when prompts are compressed.
#include "compress/prefill.h"

#include <string.h>

#include "base/hash.h"

static const double start = 0.10, least = 0.025, max = 0.20;

static struct adapt_session *find_session(struct adapt *a, uint64_t id) {
    for (int i = 0; i < a->n; i++)
        if (a->sessions[i].id == id)
            return &a->sessions[i];
    return NULL;
}

static struct adapt_session *make_session(struct adapt *a, uint64_t id) {
    struct adapt_session *s = &a->sessions[0];
    if (a->n < ADAPT_SESSIONS)
        s = &a->sessions[a->n++];
    else
        for (int i = 1; i < a->n; i++)
            s = a->sessions[i].used < s->used ? &a->sessions[i] : s;
    *s = (struct adapt_session){.id = id, .keep = start, .accepted = -1};
    return s;
}

uint64_t adapt_id(const char *name, size_t n) {
    uint64_t id = hash_bytes(name, n, 0);
    return id ? id : 1;
}

double adapt_share(int64_t tokens, int64_t passes) {
    return tokens > 0 && passes > 0 ? 1 - (double)passes / (double)tokens : -1;
}

double adapt_keep(struct adapt *a, uint64_t session) {
    struct adapt_session *s = find_session(a, session);
    if (!s)
        return start;
    s->used = ++a->clock;
    return s->keep;
}

void adapt_note(struct adapt *a, uint64_t session, double accepted) {
    struct adapt_session *s = find_session(a, session);
    if (!s)
        s = make_session(a, session);
    double share = accepted > 1 ? 1 : accepted > 0 ? accepted : 0; // what is no number: 0
    s->used = ++a->clock;
    s->accepted = s->accepted < 0 ? share : 0.7 * s->accepted + 0.3 * share;
    double step = s->accepted < 0.70 || s->accepted > 0.90 ? 0.01 : 0.005;
    if (s->accepted < 0.75)
        s->keep += step;
    else if (s->accepted > 0.85)
        s->keep -= step;
    s->keep = s->keep < least ? least : s->keep > max ? max : s->keep;
}

// Messages from JSON and back.

static bool is_text_part(const struct json *part) {
    const char *type = json_str(json_get(part, "type"), NULL);
    return type && !strcmp(type, "text");
}

static int refuse_message(size_t i, const char *what, struct err *e) {
    return err_set(e, ERR_FORMAT, "message %zu %s", i + 1, what);
}

static int read_parts(struct json_messages *m, const struct json *content, size_t i,
                      struct compress_message *out, struct err *e) {
    size_t n = json_kind_of(content) == JSON_ARRAY ? json_len(content) : 1;
    struct compress_part *parts = arena_array(&m->arena, n + 1, sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "no memory for %zu parts of a message", n);
    out->parts = parts;
    if (json_kind_of(content) == JSON_STRING) {
        parts[0].text = json_str(content, &parts[0].n);
        out->n_parts = 1;
        return 0;
    }
    for (size_t k = 0; k < n; k++) {
        const struct json *part = json_at(content, k);
        if (json_kind_of(part) != JSON_OBJECT)
            return refuse_message(i, "has a content with a part that is no object", e);
        if (!is_text_part(part))
            continue;
        struct compress_part *p = &parts[out->n_parts++];
        p->text = json_str(json_get(part, "text"), &p->n);
        if (!p->text)
            return refuse_message(i, "has a part of type text without a text", e);
    }
    return 0;
}

static int read_message(struct json_messages *m, size_t i, struct compress_message *out,
                        struct err *e) {
    const struct json *from = json_at(m->from, i), *content = json_get(from, "content");
    enum json_kind kind = json_kind_of(content);
    if (json_kind_of(from) != JSON_OBJECT)
        return refuse_message(i, "is no object", e);
    out->role = json_str(json_get(from, "role"), NULL);
    if (!out->role)
        return refuse_message(i, "has no role that is a text", e);
    if (kind == JSON_NULL)
        return 0;
    if (kind != JSON_STRING && kind != JSON_ARRAY)
        return refuse_message(i, "has a content that is neither a text nor an array of parts", e);
    return read_parts(m, content, i, out, e);
}

int json_messages_read(struct json_messages *m, const struct json *messages, struct err *e) {
    *m = (struct json_messages){.from = messages};
    if (json_kind_of(messages) != JSON_ARRAY)
        return err_set(e, ERR_FORMAT, "messages are an array of objects with role and content");
    size_t n = json_len(messages);
    struct compress_message *list = arena_array(&m->arena, n + 1, sizeof *list);
    if (!list)
        return err_set(e, ERR_MEMORY, "no memory for %zu messages", n);
    m->v = (struct compress_conversation){list, (int64_t)n};
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_message(m, i, &list[i], e);
    return rc;
}

// The current position: a message, and the number of its next text.
struct writing {
    const struct json_messages *m;
    const struct compress_result *r;
    const char *gap;
    struct json_writer *w;
    int64_t message, part;
};

static void write_text(struct writing *x) {
    struct str s = {0};
    compress_kept(x->r, &x->m->v, x->message, x->part++, x->gap, &s);
    jw_str(x->w, s.data ? s.data : "", s.len);
    x->w->out.failed |= s.failed;
    str_fini(&s);
}

static int write_part_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct writing *x = arg;
    (void)n;
    jw_key(x->w, key);
    if (!strcmp(key, "text"))
        write_text(x);
    else
        jw_value(x->w, v);
    return 0;
}

static void write_content(struct writing *x, const struct json *content) {
    if (json_kind_of(content) == JSON_STRING)
        write_text(x);
    else if (json_kind_of(content) != JSON_ARRAY)
        jw_value(x->w, content);
    else {
        jw_begin(x->w, '[');
        for (size_t k = 0; k < json_len(content); k++) {
            const struct json *part = json_at(content, k);
            if (is_text_part(part)) {
                jw_begin(x->w, '{');
                json_each(part, write_part_member, x);
                jw_end(x->w, '}');
            } else
                jw_value(x->w, part);
        }
        jw_end(x->w, ']');
    }
}

static int write_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct writing *x = arg;
    (void)n;
    jw_key(x->w, key);
    if (!strcmp(key, "content"))
        write_content(x, v);
    else
        jw_value(x->w, v);
    return 0;
}

void json_messages_write(const struct json_messages *m, const struct compress_result *r,
                         const char *gap, struct json_writer *w) {
    struct writing x = {.m = m, .r = r, .gap = gap, .w = w};
    jw_begin(w, '[');
    for (; x.message < m->v.n; x.message++) {
        x.part = 0;
        jw_begin(w, '{');
        json_each(json_at(m->from, (size_t)x.message), write_member, &x);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

void json_messages_fini(struct json_messages *m) {
    arena_fini(&m->arena);
    *m = (struct json_messages){0};
}

enum { THRESHOLD = 32000 };

struct prefill_options prefill_options_default(void) {
    return (struct prefill_options){.threshold = THRESHOLD, .compress = compress_options_default()};
}

void prefill_adapt(struct prefill_options *o, double keep) {
    o->compress.select.budget = SELECT_RATIO;
    o->compress.select.keep = keep;
    o->compress.adapted = true;
}

const char *prefill_mode_name(enum prefill_mode mode) {
    return mode == PREFILL_ALWAYS ? "always" : mode == PREFILL_AUTO ? "auto" : "off";
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

// A curve is over tokens of the target, which the compressor does not have.
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
static int rewrite_messages(const struct json_messages *in, const struct compress_result *r,
                            const char *gap, struct json **out, struct err *e) {
    struct json_builder built = {0};
    struct json_writer w = {.builder = &built};
    json_messages_write(in, r, gap, &w);
    built.failed |= w.out.failed;
    return json_built(&built, out, "the compressed messages", e);
}

// Counts what the caller has not counted, and looks whether it is to be compressed then.
static int count_and_skip(const struct compressor *c, const struct prefill_options *o,
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

// Compresses v. Sets report; r has the result where report->reason is NULL.
static int compress_whole(struct compressor *c, const struct prefill_options *o,
                          const struct compress_conversation *v, int64_t tokens,
                          struct compress_result *r, struct prefill_report *report, struct err *e) {
    int rc = count_and_skip(c, o, v, &tokens, report, e);
    if (rc || report->reason)
        return rc;
    struct compress_options options = options_for(o, tokens);
    rc = compress_messages(c, v, &options, r, e);
    fill_report(report, o, r);
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
        rc = compress_whole(c, o, &in.v, tokens, &r, report, e);
    if (!rc && !report->reason)
        rc = rewrite_messages(&in, &r, o->gap, out, e);
    compress_result_fini(&r);
    json_messages_fini(&in);
    return rc;
}

// The texts of a conversation, in the arena. False: no memory.
static bool list_texts(const struct conversation *v, struct arena *a,
                       struct compress_conversation *out) {
    struct conversation_message m = {0};
    size_t n = 0;
    while (conversation_next(v, &m))
        n++;
    struct compress_message *list = arena_array(a, n + 1, sizeof *list), *to = list;
    m = (struct conversation_message){0};
    for (; list && conversation_next(v, &m); to++) {
        struct compress_part *parts = arena_array(a, (size_t)m.n_parts + 1, sizeof *parts);
        if (!parts)
            return false;
        *to = (struct compress_message){.role = conversation_roles[m.turn->role], .parts = parts};
        for (int i = 0; i < m.n_parts; i++)
            if (m.parts[i].kind == PART_TEXT)
                parts[to->n_parts++] = (struct compress_part){m.parts[i].text.s, m.parts[i].text.n};
    }
    *out = (struct compress_conversation){list, (int64_t)n};
    return list != NULL;
}

// Replaces the texts by what stays of them; where memory is short, a text stays as it is.
static int rewrite_texts(struct conversation *v, const struct compress_conversation *in,
                         const struct compress_result *r, const char *gap, struct err *e) {
    struct conversation_message m = {0};
    for (int64_t k = 0; conversation_next(v, &m); k++)
        for (int64_t i = 0, part = 0; i < m.n_parts; i++) {
            struct str kept = {0};
            if (m.parts[i].kind != PART_TEXT)
                continue;
            compress_kept(r, in, k, part++, gap, &kept);
            struct words text = conversation_take(v, &kept);
            if (text.s)
                m.parts[i].text = text;
        }
    return v->failed ? err_set(e, ERR_MEMORY, "no memory for the compressed messages") : 0;
}

int prefill_conversation(struct compressor *c, const struct prefill_options *o,
                         struct conversation *v, int64_t tokens, struct prefill_report *report,
                         struct err *e) {
    struct compress_result r = {0};
    struct arena a = {0};
    struct compress_conversation in;
    *report = (struct prefill_report){0};
    int rc = list_texts(v, &a, &in)
                 ? compress_whole(c, o, &in, tokens, &r, report, e)
                 : err_set(e, ERR_MEMORY, "no memory for %d messages", v->n_turns);
    if (!rc && !report->reason)
        rc = rewrite_texts(v, &in, &r, o->gap, e);
    compress_result_fini(&r);
    arena_fini(&a);
    return rc;
}

int prefill_text(struct compressor *c, const struct prefill_options *o,
                 const struct compress_part *text, int64_t tokens, struct str *out,
                 struct prefill_report *report, struct err *e) {
    const struct compress_message m = {"user", text, 1};
    const struct compress_conversation v = {&m, 1};
    struct compress_result r = {0};
    int rc = count_and_skip(c, o, &v, &tokens, report, e);
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
    jw_key_str(w, "reason", r->reason);
    if (r->parked_ms > 0)
        jw_key_num(w, "parked_ms", (double)(int64_t)(r->parked_ms * 1000 + 0.5) / 1000);
    if (r->adapted > 0) {
        jw_key_bool(w, "adapted", true);
        jw_key_num(w, "keep_ratio", r->adapted);
    }
    jw_end(w, '}');
}
