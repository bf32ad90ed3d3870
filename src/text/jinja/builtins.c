// SPDX-License-Identifier: Apache-2.0
// Rows by name, and how arguments reach their parameters; see builtins.h.
#include "text/jinja/builtins.h"

#include <string.h>

const struct jinja_builtin *jinja_find_row(const struct jinja_builtin *table,
                                           const struct jinja_string *name) {
    for (const struct jinja_builtin *row = table; row->name; row++)
        if (row->name[0] == name->bytes[0] && strlen(row->name) == name->n &&
            memcmp(row->name, name->bytes, name->n) == 0)
            return row;
    return NULL;
}

// The place of a name among the parameters, -1 when it is none of them.
static int parameter_place(const char *parameters, const struct jinja_string *name) {
    int place = 0;
    for (const char *p = parameters; *p; place++) {
        size_t n = strcspn(p, " ");
        if (n == name->n && memcmp(p, name->bytes, n) == 0)
            return place;
        p += n;
        p += *p == ' ';
    }
    return -1;
}

static int count_parameters(const char *parameters) {
    int n = *parameters != 0;
    for (const char *p = parameters; *p; p++)
        n += *p == ' ';
    return n;
}

static int bind_arguments(struct jinja_context *c, const struct jinja_builtin *b,
                          const struct jinja_args *args, struct jinja_call *call) {
    int max = count_parameters(b->parameters);
    if (args->n > max)
        return jinja_fail(c, ERR_USAGE, "%s() takes at most %d arguments, %d were given", b->name,
                          max, args->n);
    for (int i = 0; i < args->n; i++)
        call->a[i] = args->pos[i];
    for (int i = 0; i < args->n_named; i++) {
        const struct jinja_string *name = args->named[i].key.as.s;
        int place = parameter_place(b->parameters, name);
        if (place < 0)
            return jinja_fail(c, ERR_USAGE, "%s() takes no keyword argument '%.60s'", b->name,
                              name->bytes);
        if (call->a[place].kind)
            return jinja_fail(c, ERR_USAGE, "%s() got two values for argument '%.60s'", b->name,
                              name->bytes);
        call->a[place] = args->named[i].value;
    }
    for (int i = 0; i < b->required; i++)
        if (!call->a[i].kind)
            return jinja_fail(c, ERR_USAGE, "%s() needs %d argument%s (%s)", b->name, b->required,
                              b->required == 1 ? "" : "s", b->parameters);
    return 0;
}

int jinja_invoke(struct jinja_context *c, const struct jinja_builtin *b, struct jinja_value self,
                 const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_call call = {.name = b->name, .self = self, .args = args};
    int rc = b->parameters ? bind_arguments(c, b, args, &call) : 0;
    return rc ? rc : b->fn(c, &call, out);
}
