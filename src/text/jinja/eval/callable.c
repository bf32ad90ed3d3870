// SPDX-License-Identifier: Apache-2.0
// How arguments reach the parameters of a filter, test, method or function; see callable.h.
#include "text/jinja/eval/callable.h"

#include <string.h>

struct jinja_value jinja_named(const struct jinja_args *args, const char *name) {
    for (int i = 0; i < args->n_named; i++)
        if (jinja_is_text(args->named[i].key, name))
            return args->named[i].value;
    return (struct jinja_value){0};
}

// The place of a name among the parameters, -1 when it is none of them.
static int place_of(const char *parameters, const struct jinja_string *name) {
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

static int count_of(const char *parameters) {
    int n = *parameters != 0;
    for (const char *p = parameters; *p; p++)
        n += *p == ' ';
    return n;
}

static int bind(struct jinja_context *c, const struct jinja_builtin *b,
                const struct jinja_args *args, struct jinja_call *call) {
    int most = count_of(b->parameters);
    if (args->n > most)
        return jinja_fail(c, ERR_USAGE, "%s() takes at most %d arguments, %d were given", b->name,
                          most, args->n);
    for (int i = 0; i < args->n; i++)
        call->a[i] = args->pos[i];
    for (int i = 0; i < args->n_named; i++) {
        const struct jinja_string *name = args->named[i].key.as.s;
        int place = place_of(b->parameters, name);
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
    int rc = b->parameters ? bind(c, b, args, &call) : 0;
    return rc ? rc : b->fn(c, &call, out);
}
