// SPDX-License-Identifier: Apache-2.0
// Requests that are kept with their answers, one JSON object a line; see write.h. A line holds the
// request as the engine had it, after all defaults: nothing of it depends on the server that
// reads it again (serve/keep/read.c).
#include "serve/completion/write.h"

#include <stdio.h>

#include "serve/completion/constraint.h"
#include "serve/keep/read.h"

static void put_ids(struct json_writer *w, const char *key, const int32_t *ids, int64_t n) {
    jw_key_begin(w, key, '[');
    for (int64_t i = 0; i < n; i++)
        jw_int(w, ids[i]);
    jw_end(w, ']');
}

// An object that is JSON already; nothing where it is empty.
static void put_object(struct json_writer *w, const char *key, const struct str *s) {
    if (!s->len || s->failed) {
        w->out.failed |= s->failed;
        return;
    }
    jw_key(w, key);
    str_append(&w->out, s->data, s->len);
    w->comma = true;
}

// Forbidden tokens have the bias null.
static void put_sampling(struct json_writer *w, const struct choice *k) {
    const struct params *p = &k->c->p;
    const struct sample_params *s = &p->sample;
    jw_key_begin(w, "sampling", '{');
    jw_key_num(w, "temperature", s->temperature);
    jw_key_int(w, "top_k", s->top_k);
    jw_key_num(w, "top_p", s->top_p);
    jw_key_num(w, "min_p", s->min_p);
    jw_key_num(w, "repeat", s->repeat);
    jw_key_num(w, "frequency", s->frequency);
    jw_key_num(w, "presence", s->presence);
    jw_key_int(w, "window", s->window);
    jw_key_int(w, "seed", (int64_t)s->seed);
    jw_key_int(w, "choice", k->index % (int)p->n);
    jw_key_begin(w, "bias", '[');
    for (int i = 0; i < p->n_bias; i++) {
        jw_begin(w, '[');
        jw_int(w, p->bias[i].id);
        jw_num(w, (double)p->bias[i].bias);
        jw_end(w, ']');
    }
    jw_end(w, ']');
    jw_end(w, '}');
}

static void put_stops(struct json_writer *w, const struct stop_set *s) {
    jw_key_begin(w, "stop", '[');
    for (int i = 0; i < s->n; i++)
        jw_str(w, s->bytes + s->start[i], (size_t)s->len[i]);
    jw_end(w, ']');
}

static void put_reply(struct json_writer *w, const struct choice *k) {
    const struct completion *c = k->c;
    const struct reply_rules r = completion_reply_rules(k);
    jw_key_begin(w, "reply", '{');
    jw_key_str(w, "reasoning", reasoning_name(r.family));
    jw_key_bool(w, "inside", r.inside);
    jw_key_str(w, "calls", tool_formats[r.calls].name);
    jw_key_bool(w, "constrained", r.constrained);
    jw_key_bool(w, "only", r.only);
    jw_key_bool(w, "one_call", r.one_call);
    jw_key_bool(w, "keeps_stop", r.keeps_stop);
    jw_end(w, '}');
    put_object(w, "tools", &c->rules.tools);
    if (c->rules.tools.len)
        jw_key_bool(w, "tools_held", c->rules.tools_held);
    put_object(w, "format", &c->rules.format);
    put_object(w, "thinking", &c->rules.thinking);
}

static bool is_whole(bool ended, const struct stream_end *end) {
    return ended && end->reason != END_NONE && end->reason != END_CALLER;
}

// Without a hash where the engine has not ended it, since the server ends, or made none.
static void put_answer(struct json_writer *w, struct choice *k) {
    struct stream_end end = {0};
    char hash[17];
    bool ended = stream_ended(k->stream, &end);
    const int32_t *ids = NULL;
    int64_t n = stream_tokens(k->stream, &ids);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)end.hash);
    jw_key_begin(w, "answer", '{');
    jw_key_str(w, "end", is_whole(ended, &end) ? answer_finish(end.reason) : "cut");
    bool hashed = ended && (k->c->p.logit_hash || k->c->s->keep_hashes);
    jw_key_str(w, "logit_hash", hashed ? hash : NULL);
    put_ids(w, "tokens", ids, n);
    jw_end(w, '}');
}

static void put_line(struct json_writer *w, struct choice *k) {
    const struct completion *c = k->c;
    const struct params *p = &c->p;
    const struct token_list *prompt = &c->prompts[k->index / (int)p->n].tokens;
    jw_begin(w, '{');
    jw_key_int(w, KEEP_MARK, KEEP_VERSION);
    jw_key_str(w, "id", c->id);
    jw_key_int(w, "choice", k->index);
    jw_key_int(w, "created", c->created);
    jw_key_str(w, "path", c->d->path);
    jw_key_str(w, "speculate", speculate_name(p->how));
    keep_setup_write(w, &c->s->kept_by);
    jw_key_int(w, "max_tokens", k->max_tokens);
    jw_key_int(w, "min_tokens", p->min_tokens);
    jw_key_bool(w, "ignore_eos", p->ignore_eos);
    put_ids(w, "stop_token_ids", p->stop_ids, p->n_stop_ids);
    put_stops(w, &p->stops);
    put_sampling(w, k);
    put_reply(w, k);
    put_ids(w, "prompt", prompt->ids, (int64_t)prompt->count);
    put_answer(w, k);
    jw_end(w, '}');
    str_putc(&w->out, '\n');
}

// The first failure is said, and that it is over.
static void note_failure(struct service *s, const struct err *e) {
    struct str line = {0};
    bool fails = e->code != 0;
    if (fails == s->keep_fails)
        return;
    s->keep_fails = fails;
    if (fails)
        str_printf(&line, "coppice: --keep-requests: %s; what is answered meanwhile is not kept\n",
                   e->text);
    else
        str_printf(&line, "coppice: --keep-requests: %s is written again\n", s->o->keep_file);
    if (!line.failed && s->o->log.write)
        s->o->log.write(s->o->log.arg, line.data, line.len);
    str_fini(&line);
}

// Whether the choice has an answer, whole or cut off after a token, and no error in its place.
static bool has_answer(const struct choice *k) {
    struct stream_end end = {0};
    const int32_t *ids;
    if (!k->stream || k->max_tokens <= 0)
        return false;
    bool ended = stream_ended(k->stream, &end);
    return !(ended && end.rc) && (is_whole(ended, &end) || stream_tokens(k->stream, &ids) > 0);
}

void completion_keep(struct completion *c, const struct api_error *why) {
    struct service *s = c->s;
    bool failed = why && why->status && !c->disconnected;
    for (int i = 0; s->kept && !failed && i < c->n_choices; i++) {
        struct json_writer w = {0};
        struct err e = {0};
        if (!has_answer(&c->choices[i]))
            continue;
        put_line(&w, &c->choices[i]);
        if (w.out.failed)
            err_set(&e, ERR_MEMORY, "no memory for a request");
        else
            keep_file_add(s->kept, w.out.data, w.out.len, &e);
        note_failure(s, &e);
        str_fini(&w.out);
    }
}
