// SPDX-License-Identifier: Apache-2.0
// Looking up rows; see tables.h. Filters and tests are looked up when a template is compiled.
#include "text/jinja/builtins/tables.h"

#include <string.h>

const struct jinja_builtin *jinja_find_row(const struct jinja_builtin *table,
                                           const struct jinja_string *name) {
    for (const struct jinja_builtin *row = table; row->name; row++)
        if (row->name[0] == name->bytes[0] && strlen(row->name) == name->n &&
            memcmp(row->name, name->bytes, name->n) == 0)
            return row;
    return NULL;
}

const struct jinja_builtin *jinja_find_filter(struct jinja_value name) {
    static const struct jinja_builtin *const tables[] = {jinja_filters_text, jinja_filters_list,
                                                         jinja_filters_other};
    const struct jinja_builtin *row = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !row; i++)
        row = jinja_find_row(tables[i], name.as.s);
    return row;
}

const struct jinja_builtin *jinja_find_test(struct jinja_value name) {
    return jinja_find_row(jinja_tests, name.as.s);
}
