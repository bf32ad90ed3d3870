// SPDX-License-Identifier: Apache-2.0
// What a relay changes of requests for text before they are sent. Members that are not changed are
// written again in their order, numbers as they were spelt; a body in which nothing is to be
// changed goes on byte for byte.
#include <string.h>

#include "serve/params.h"
#include "serve/relay_impl.h"

bool relay_body_wanted(const struct relay *r, const struct relayed *q) {
    return q->text && r->o.model;
}

struct rewrite {
    const struct relayed *q;
    struct json_writer w;
    bool model; // has been written
};

static int copy_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct rewrite *c = arg;
    (void)n;
    jw_key(&c->w, key);
    if (c->q->r->o.model && !strcmp(key, "model")) {
        jw_cstr(&c->w, c->q->r->o.model);
        c->model = true;
    } else {
        jw_value(&c->w, v);
    }
    return 0;
}

static bool write_again(struct relayed *q, const struct json *body) {
    struct rewrite c = {.q = q};
    jw_begin(&c.w, '{');
    json_each(body, copy_member, &c);
    if (q->r->o.model && !c.model) {
        jw_key(&c.w, "model");
        jw_cstr(&c.w, q->r->o.model);
    }
    jw_end(&c.w, '}');
    q->body = c.w.out;
    if (q->body.failed)
        api_fail(&q->error, 503, NULL, "no memory for the request's body");
    return !q->body.failed;
}

bool relay_body_make(struct relayed *q) {
    struct json *body = NULL;
    struct api_error unread;
    size_t n;
    const char *text = exchange_body(q->x, &n);
    bool ok = true;
    if (params_parse(text, n, &body, &unread) && json_kind_of(body) == JSON_OBJECT)
        ok = write_again(q, body);
    json_free(body);
    return ok;
}
