// SPDX-License-Identifier: Apache-2.0
// The loop variable; see loop.h.
#include "text/jinja/eval/loop.h"

#include <string.h>

#include "text/jinja/eval/callable.h"
#include "text/jinja/value/compare.h"

// The next item that takes part, from the source.
static int fetch(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value *out) {
    int rc;
    bool takes_part = true;
    if (loop->ended)
        return 0;
    while ((rc = jinja_next(c, &loop->it, out)) > 0) {
        int bad = loop->test ? loop->test(c, loop, *out, &takes_part) : 0;
        if (bad || takes_part)
            return bad ? bad : 1;
    }
    loop->ended = true;
    return rc;
}

static int peek(struct jinja_context *c, struct jinja_loop *loop) {
    struct jinja_value next;
    int rc = loop->after.kind ? 1 : fetch(c, loop, &next);
    if (rc > 0 && !loop->after.kind)
        loop->after = next;
    return rc;
}

int jinja_loop_next(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value *out) {
    int rc = peek(c, loop);
    if (rc <= 0)
        return rc;
    *out = loop->after;
    loop->after = (struct jinja_value){0};
    loop->before = loop->now;
    loop->now = *out;
    loop->index0++;
    return 1;
}

// How many items there are; the rest is read for that where the source does not tell.
static int know_length(struct jinja_context *c, struct jinja_loop *loop) {
    if (loop->length >= 0)
        return 0;
    if (!loop->test && jinja_has_length(loop->it.source))
        return jinja_length(c, loop->it.source, &loop->length);
    struct jinja_value rest = jinja_list(c, false), item;
    int rc = rest.kind ? 0 : c->e.code;
    while (!rc && (rc = fetch(c, loop, &item)) > 0)
        rc = jinja_push(c, rest.as.l, item);
    if (rc)
        return rc;
    loop->length = (int64_t)rest.as.l->n + loop->index0 + 1 + (loop->after.kind != 0);
    loop->it = (struct jinja_iter){.source = rest};
    loop->test = NULL;
    loop->ended = false;
    return 0;
}

static int cycle(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    const struct jinja_loop *loop = call->self.as.p;
    if (call->args->n == 0)
        return jinja_fail(c, ERR_USAGE, "loop.cycle() needs items");
    *out = call->args->pos[loop->index0 % call->args->n];
    return 0;
}

static int changed(struct jinja_context *c, const struct jinja_call *call,
                   struct jinja_value *out) {
    struct jinja_loop *loop = call->self.as.p;
    struct jinja_value now = jinja_tuple(c, (size_t)call->args->n);
    bool same = false;
    if (!now.kind)
        return c->e.code;
    for (int i = 0; i < call->args->n; i++)
        now.as.l->items[i] = call->args->pos[i];
    int rc = loop->changed.kind ? jinja_equal(c, loop->changed, now, &same) : 0;
    loop->changed = now;
    *out = jinja_bool(!same);
    return rc;
}

static int method(struct jinja_context *c, struct jinja_value self,
                  const struct jinja_builtin *what, struct jinja_value *out) {
    struct jinja_method *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return c->e.code;
    *m = (struct jinja_method){.self = self, .what = what};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .as.p = m};
    return 0;
}

static int neighbour(struct jinja_context *c, struct jinja_value item, const char *hint,
                     struct jinja_value *out) {
    *out = item.kind ? item : jinja_undefined(c, hint);
    return out->kind ? 0 : c->e.code;
}

enum attribute {
    INDEX,
    INDEX0,
    FIRST,
    LAST,
    LENGTH,
    REV,
    REV0,
    PREV,
    NEXT,
    DEPTH,
    DEPTH0,
    CYCLE,
    CHANGED
};

static int read_attribute(struct jinja_context *c, struct jinja_value self, enum attribute which,
                          struct jinja_value *out) {
    static const struct jinja_builtin methods[] = {{"cycle", cycle, NULL, 0},
                                                   {"changed", changed, NULL, 0}};
    struct jinja_loop *loop = self.as.p;
    int rc = 0;
    if (which == LENGTH || which == REV || which == REV0)
        rc = know_length(c, loop);
    else if (which == LAST || which == NEXT)
        rc = peek(c, loop);
    if (rc < 0)
        return rc;
    const int64_t numbers[] = {
        [INDEX] = loop->index0 + 1,
        [INDEX0] = loop->index0,
        [LENGTH] = loop->length,
        [REV] = loop->length - loop->index0,
        [REV0] = loop->length - loop->index0 - 1,
        [DEPTH] = loop->depth + 1,
        [DEPTH0] = loop->depth,
    };
    switch (which) {
    case FIRST:
        *out = jinja_bool(loop->index0 == 0);
        return 0;
    case LAST:
        *out = jinja_bool(loop->after.kind == 0);
        return 0;
    case PREV:
        return neighbour(c, loop->before, "there is no previous item", out);
    case NEXT:
        return neighbour(c, loop->after, "there is no next item", out);
    case CYCLE:
    case CHANGED:
        return method(c, self, methods + (which == CHANGED), out);
    default:
        *out = jinja_int(numbers[which]);
        return 0;
    }
}

int jinja_loop_attribute(struct jinja_context *c, struct jinja_value loop,
                         const struct jinja_string *name, struct jinja_value *out) {
    static const char *const names[] = {
        [INDEX] = "index",     [INDEX0] = "index0", [FIRST] = "first",    [LAST] = "last",
        [LENGTH] = "length",   [REV] = "revindex",  [REV0] = "revindex0", [PREV] = "previtem",
        [NEXT] = "nextitem",   [DEPTH] = "depth",   [DEPTH0] = "depth0",  [CYCLE] = "cycle",
        [CHANGED] = "changed",
    };
    for (int i = INDEX; i <= CHANGED; i++)
        if (strlen(names[i]) == name->n && memcmp(names[i], name->bytes, name->n) == 0)
            return read_attribute(c, loop, (enum attribute)i, out);
    *out = (struct jinja_value){0};
    return 0;
}
