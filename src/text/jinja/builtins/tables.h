// SPDX-License-Identifier: Apache-2.0
// The tables of filters, tests, functions and methods, one row each; and where to look a name up.
#ifndef COPPICE_TEXT_JINJA_BUILTINS_TABLES_H
#define COPPICE_TEXT_JINJA_BUILTINS_TABLES_H

#include "text/jinja/eval/callable.h"

// Each table ends in a row without a name.
extern const struct jinja_builtin jinja_filters_text[];
extern const struct jinja_builtin jinja_filters_list[];
extern const struct jinja_builtin jinja_filters_other[];
extern const struct jinja_builtin jinja_tests[];
extern const struct jinja_builtin jinja_functions[];
extern const struct jinja_builtin jinja_methods_string[];
extern const struct jinja_builtin jinja_methods_list[];
extern const struct jinja_builtin jinja_methods_tuple[];
extern const struct jinja_builtin jinja_methods_dict[];
extern const struct jinja_builtin jinja_methods_cycler[];

// Rows by name (a string); NULL when there is none.
const struct jinja_builtin *jinja_find_row(const struct jinja_builtin *table,
                                           const struct jinja_string *name);
const struct jinja_builtin *jinja_find_filter(struct jinja_value name);
const struct jinja_builtin *jinja_find_test(struct jinja_value name);

#endif
