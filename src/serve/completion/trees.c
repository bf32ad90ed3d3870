// SPDX-License-Identifier: Apache-2.0
// Trees of guesses as events; see write.h.
#include "serve/completion/write.h"

#include "serve/http/sse.h"

static void put_shorts(struct json_writer *w, const char *key, const int16_t *v, int n) {
    jw_key_begin(w, key, '[');
    for (int i = 0; i < n; i++)
        jw_int(w, v[i]);
    jw_end(w, ']');
}

static void put_nodes(struct json_writer *w, const struct tokenizer *t,
                      const struct tree_event *v) {
    jw_key_begin(w, "id", '[');
    for (int i = 0; i < v->n; i++)
        jw_int(w, v->id[i]);
    jw_end(w, ']');
    jw_key_begin(w, "token", '[');
    for (int i = 0; i < v->n; i++)
        answer_token(w, t, v->id[i]);
    jw_end(w, ']');
}

static void put_tree(struct completion *c, const struct choice *k, const struct tree_event *v,
                     int64_t lost) {
    struct json_writer *w = &c->s->json;
    jw_begin(w, '{');
    jw_key_str(w, "type", "tree");
    jw_key_int(w, "choice", k->index);
    jw_key_int(w, "step", v->step);
    jw_key_int(w, "tokens", v->token);
    put_nodes(w, c->s->tokenizer, v);
    put_shorts(w, "parent", v->parent, v->n);
    put_shorts(w, "path", v->on, v->path);
    jw_key(w, "bonus");
    answer_token(w, c->s->tokenizer, v->bonus);
    jw_key_int(w, "lost", lost);
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

static void put_trees_end(struct completion *c) {
    struct json_writer *w = &c->s->json;
    struct answer_totals t = completion_totals(c);
    jw_begin(w, '{');
    jw_key_str(w, "type", "end");
    answer_usage(w, &t);
    answer_timings(w, &t);
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

// Sends what is in c->s->out.
static void send_tree_events(struct completion *c) {
    struct str *out = &c->s->out;
    if (out->failed)
        completion_trees_drop(c);
    else if (out->len)
        exchange_write(c->watcher, out->data, out->len);
    str_clear(out);
    out->failed = false;
}

void completion_trees_drop(struct completion *c) {
    if (c->watcher)
        exchange_abort(c->watcher);
    c->watcher = NULL;
}

void completion_trees_advance(struct completion *c, bool ended) {
    struct tree_event v;
    int64_t lost = 0;
    for (int i = 0; i < c->n_choices && c->watcher; i++) {
        struct choice *k = &c->choices[i];
        while (c->watcher && exchange_backlog(c->watcher) <= EXCHANGE_FULL && k->stream &&
               stream_tree(k->stream, &v, &lost)) {
            put_tree(c, k, &v, lost);
            send_tree_events(c);
        }
    }
    if (!c->watcher || !ended || exchange_backlog(c->watcher) > EXCHANGE_FULL)
        return;
    put_trees_end(c);
    send_tree_events(c);
    if (c->watcher)
        exchange_end(c->watcher);
    c->watcher = NULL;
}
