// SPDX-License-Identifier: Apache-2.0
// Contexts, compiling and rendering; see jinja.h.
#include "text/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/container.h"
#include "text/jinja/eval.h"

enum { STEPS = 50000000, DEPTH = 1500, OUTPUT_MIB = 256, MEMORY_MIB = 512, SOURCE_MAX = 4 << 20 };

int jinja_context_create(struct jinja_context **out, const struct jinja_limits *limits,
                         struct err *e) {
    struct jinja_context *c = *out = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory to render a template");
    if (limits)
        c->limits = *limits;
    c->limits.steps = c->limits.steps ? c->limits.steps : STEPS;
    c->limits.depth = c->limits.depth ? c->limits.depth : DEPTH;
    c->limits.output = c->limits.output ? c->limits.output : (size_t)OUTPUT_MIB << 20;
    c->limits.memory = c->limits.memory ? c->limits.memory : (size_t)MEMORY_MIB << 20;
    struct jinja_value variables = jinja_dict(c, false);
    if (!variables.kind) {
        int rc = err_set(e, c->e.code, "%s", c->e.text);
        jinja_context_free(c);
        *out = NULL;
        return rc;
    }
    c->variables = variables.as.m;
    return 0;
}

void jinja_context_free(struct jinja_context *c) {
    if (!c)
        return;
    arena_fini(&c->arena);
    free(c->out.data);
    free(c->out.spans);
    free(c);
}

void jinja_context_clock(struct jinja_context *c, const struct tm *now) {
    c->now = *now;
    c->has_now = true;
}

void jinja_context_changes(struct jinja_context *c) {
    c->may_change = true;
}

void jinja_set(struct jinja_context *c, const char *name, struct jinja_value v) {
    struct jinja_value key = jinja_text(c, name);
    if (key.kind)
        jinja_dict_set(c, c->variables, key, v);
}

// Compiling.

int jinja_compile(struct jinja **out, const char *text, size_t n, struct err *e) {
    *out = NULL;
    if (n > SOURCE_MAX)
        return err_set(e, ERR_FORMAT, "a template of %zu bytes is too long; at most %d are read", n,
                       SOURCE_MAX);
    if (!utf8_valid(text, n))
        return err_set(e, ERR_FORMAT, "the template is not valid UTF-8");
    struct jinja *j = calloc(1, sizeof *j);
    int rc = j ? jinja_context_create(&j->store, NULL, e)
               : err_set(e, ERR_MEMORY, "no memory to compile a template");
    if (!rc) {
        rc = jinja_parse(j, text, n);
        if (rc)
            err_set(e, rc, "template: %s", j->store->e.text);
    }
    if (rc)
        jinja_free(j);
    else
        *out = j;
    return rc;
}

void jinja_free(struct jinja *j) {
    if (!j)
        return;
    jinja_context_free(j->store);
    free(j);
}

bool jinja_mentions(const struct jinja *j, const char *word) {
    return jinja_dict_text(j->words, word, strlen(word)) != NULL;
}

// Rendering.

// The variables that the template names, by place: those set, else functions.
static int set_globals(struct jinja_context *c, const struct jinja *j) {
    c->globals = jinja_array(c, j->ids->n, sizeof *c->globals);
    if (!c->globals)
        return c->e.code;
    for (size_t i = 0; i < j->ids->n; i++) {
        const struct jinja_entry *name = j->ids->entries + i;
        const struct jinja_entry *e = jinja_dict_find(c->variables, name->key, name->hash);
        const struct jinja_builtin *row = jinja_find_row(jinja_functions, name->key.as.s);
        c->globals[i] = (struct jinja_value){0};
        if (e)
            c->globals[i] = e->value;
        else if (row)
            c->globals[i] =
                (struct jinja_value){.kind = JINJA_FUNCTION, .as.p = (void *)(uintptr_t)row};
    }
    return 0;
}

static int copy_output(struct jinja_context *c, struct jinja_output *out) {
    size_t n = c->out.n_spans * sizeof *out->spans;
    out->spans = malloc(n ? n : 1);
    str_append(&out->text, c->out.data ? c->out.data : "", c->out.len);
    if (!out->spans || out->text.failed)
        return jinja_fail(c, ERR_MEMORY, "no memory for %zu bytes of rendered text", c->out.len);
    if (n)
        memcpy(out->spans, c->out.spans, n);
    out->n_spans = c->out.n_spans;
    return 0;
}

int jinja_failure(const struct jinja_context *c, struct err *e) {
    return c->e.code ? err_set(e, c->e.code, "%s", c->e.text) : 0;
}

int jinja_render(const struct jinja *j, struct jinja_context *c, struct jinja_output *out,
                 struct err *e) {
    jinja_output_fini(out);
    c->steps = 0;
    c->depth = 0;
    c->line = 0;
    c->scope = NULL;
    int rc = c->e.code;
    if (!rc)
        rc = set_globals(c, j);
    if (!rc)
        rc = jinja_run(c, j->body);
    if (!rc)
        rc = copy_output(c, out);
    jinja_drop(c, 0);
    if (rc) {
        jinja_output_fini(out);
        err_set(e, rc, c->line ? "the chat template, line %2$d: %1$s" : "%1$s", c->e.text, c->line);
        c->e = (struct err){0};
    }
    return rc;
}

void jinja_output_fini(struct jinja_output *o) {
    str_fini(&o->text);
    free(o->spans);
    *o = (struct jinja_output){0};
}
