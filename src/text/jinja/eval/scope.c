// SPDX-License-Identifier: Apache-2.0
// Scopes and assignment; see eval.h. A scope holds few variables, so it is searched from end to
// end.
#include <string.h>

#include "text/jinja/eval/eval.h"
#include "text/jinja/eval/iterate.h"

struct jinja_scope *jinja_scope_new(struct jinja_context *c, struct jinja_scope *parent) {
    struct jinja_scope *s = jinja_alloc(c, sizeof *s);
    if (s)
        *s = (struct jinja_scope){.parent = parent};
    return s;
}

enum { PER_STEP = 16 }; // slots that are looked at

int jinja_scope_set(struct jinja_context *c, struct jinja_scope *s, int id, struct jinja_value v) {
    for (int i = 0; i < s->n; i++) {
        if (s->slots[i].id != id)
            continue;
        s->slots[i].value = v;
        return jinja_charge(c, (size_t)i / PER_STEP);
    }
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 4;
        struct jinja_slot *slots = jinja_array(c, (size_t)cap, sizeof *slots);
        if (!slots)
            return c->e.code;
        if (s->n)
            memcpy(slots, s->slots, (size_t)s->n * sizeof *slots);
        s->slots = slots;
        s->cap = cap;
    }
    if (jinja_charge(c, (size_t)s->n / 4)) // the slots that were looked at
        return c->e.code;
    s->slots[s->n++] = (struct jinja_slot){.id = id, .value = v};
    return 0;
}

int jinja_lookup(struct jinja_context *c, int id, struct jinja_value *out) {
    size_t looked = 0;
    *out = c->globals[id];
    for (const struct jinja_scope *s = c->scope; s; looked += (size_t)s->n, s = s->parent)
        for (int i = 0; i < s->n; i++)
            if (s->slots[i].id == id) {
                *out = s->slots[i].value;
                return jinja_charge(c, (looked + (size_t)i) / PER_STEP);
            }
    return jinja_charge(c, looked / PER_STEP);
}

int jinja_assign(struct jinja_context *c, int id, struct jinja_value v) {
    if (c->scope)
        return jinja_scope_set(c, c->scope, id, v);
    c->globals[id] = v;
    return 0;
}

static int assign_tuple(struct jinja_context *c, const struct jinja_node *targets,
                        struct jinja_value v) {
    struct jinja_iter it;
    struct jinja_value item;
    int want = 0, got = 0;
    for (const struct jinja_node *t = targets; t; t = t->next)
        want++;
    int rc = jinja_iterate(c, v, &it);
    for (; !rc && targets; targets = targets->next, got++) {
        rc = jinja_next(c, &it, &item);
        if (rc == 0)
            return jinja_fail(c, ERR_USAGE, "not enough values to unpack (expected %d, got %d)",
                              want, got);
        rc = rc < 0 ? rc : jinja_assign_target(c, targets, item);
    }
    if (!rc && (rc = jinja_next(c, &it, &item)) > 0)
        rc = jinja_fail(c, ERR_USAGE, "too many values to unpack (expected %d)", want);
    return rc;
}

static int assign_attribute(struct jinja_context *c, const struct jinja_node *target,
                            struct jinja_value v) {
    struct jinja_value ns;
    int rc = jinja_lookup(c, target->id, &ns);
    if (rc)
        return rc;
    if (ns.kind != JINJA_NAMESPACE)
        return jinja_fail(c, ERR_USAGE, "cannot assign attribute on non-namespace object");
    if (target->value.as.s->bytes[0] == '_')
        return jinja_fail(c, ERR_USAGE, "a namespace cannot have the attribute '%.60s'",
                          target->value.as.s->bytes);
    return jinja_dict_set(c, ns.as.m, target->value, v);
}

int jinja_assign_target(struct jinja_context *c, const struct jinja_node *target,
                        struct jinja_value v) {
    if (target->type == NODE_NAME)
        return jinja_assign(c, target->id, v);
    if (target->type == NODE_NSREF)
        return assign_attribute(c, target, v);
    return assign_tuple(c, target->list, v);
}
