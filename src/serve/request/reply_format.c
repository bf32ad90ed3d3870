// SPDX-License-Identifier: Apache-2.0
// Fields that say what form a reply must have, as several servers name them: see fields.h.
// They only take the text; serve/completion/constraint.h compiles it.
#include <stdio.h>
#include <string.h>

#include "serve/request/fields.h"

// Keeps the form; a request has one.
static bool take_format_text(struct params *p, const char *field, enum structured_form form,
                             struct str *text, struct api_error *x) {
    bool whole = !text->failed, first = !p->format_field[0];
    if (whole && first) {
        snprintf(p->format_field, sizeof p->format_field, "%s", field);
        p->format = form;
        p->format_text = *text;
        return true;
    }
    str_fini(text);
    if (whole)
        return api_refuse(x, field, "%s and %s both say what the reply must be: send one of them",
                          p->format_field, field);
    return api_no_memory(x);
}

static bool take_format_string(struct params *p, const char *field, enum structured_form form,
                               const struct json *v, struct api_error *x) {
    struct str text = {0};
    size_t n;
    const char *s = json_str(v, &n);
    if (!s)
        return api_refuse_kind(x, field, "", v, "a string");
    str_append(&text, s, n);
    return take_format_text(p, field, form, &text, x);
}

// A schema, or the text of one.
static bool take_format_schema(struct params *p, const char *field, const struct json *v,
                               struct api_error *x) {
    struct json_writer w = {0};
    if (json_kind_of(v) == JSON_STRING)
        return take_format_string(p, field, STRUCTURED_SCHEMA, v, x);
    if (json_kind_of(v) != JSON_OBJECT && json_kind_of(v) != JSON_BOOL)
        return api_refuse_kind(x, field, "", v, "an object");
    jw_value(&w, v);
    return take_format_text(p, field, STRUCTURED_SCHEMA, &w.out, x);
}

static void put_literal(struct str *out, const char *s, size_t n) {
    str_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            str_putc(out, '\\');
        if (s[i] == '\n')
            str_puts(out, "\\n");
        else if (s[i] == '\r')
            str_puts(out, "\\r");
        else
            str_putc(out, s[i]);
    }
    str_putc(out, '"');
}

// One of some texts, as a grammar.
static bool take_format_choice(struct params *p, const char *field, const struct json *v,
                               struct api_error *x) {
    struct str text = {0};
    if (json_kind_of(v) != JSON_ARRAY || json_len(v) == 0)
        return api_refuse(x, field, "%s must be an array of strings, one at least", field);
    str_puts(&text, "root ::= ");
    for (size_t i = 0; i < json_len(v); i++) {
        size_t n;
        const char *s = json_str(json_at(v, i), &n);
        if (!s) {
            str_fini(&text);
            return api_refuse(x, field, "%s[%zu] is %s and must be a string", field, i,
                              json_kind_name(json_at(v, i)));
        }
        str_puts(&text, i ? " | " : "");
        put_literal(&text, s, n);
    }
    return take_format_text(p, field, STRUCTURED_GBNF, &text, x);
}

static bool take_format_object(struct params *p, const char *field, struct api_error *x) {
    struct str none = {0};
    return take_format_text(p, field, STRUCTURED_OBJECT, &none, x);
}

// {"type": "text" | "json_object" | "json_schema", ..}: the schema stands next to the type, or in a
// member json_schema.
static bool take_response_format(struct params *p, const char *field, const struct json *v,
                                 struct api_error *x) {
    const struct json *type = json_get(v, "type"), *inner = json_get(v, "json_schema");
    const char *s = json_str(type, NULL);
    char at[48];
    snprintf(at, sizeof at, "%s.json_schema", field);
    if (!api_may_be(x, at, inner, JSON_OBJECT, "an object"))
        return false;
    snprintf(at, sizeof at, "%s.type", field);
    if (!s)
        return api_refuse_kind(x, at, "", type, "\"text\", \"json_object\" or \"json_schema\"");
    if (!strcmp(s, "text"))
        return true;
    if (!strcmp(s, "json_object") && !json_get(v, "schema"))
        return take_format_object(p, field, x);
    if (strcmp(s, "json_schema") != 0 && strcmp(s, "json_object") != 0)
        return api_refuse(x, at, "%s is \"%.40s\" and must be text, json_object or json_schema", at,
                          s);
    const struct json *schema = json_get(inner ? inner : v, "schema");
    bool within = inner || !strcmp(field, "response_format"); // where official clients have it
    p->format_strict |= json_bool(json_get(inner ? inner : v, "strict"), false);
    snprintf(at, sizeof at, "%s.%sschema", field, within ? "json_schema." : "");
    if (!schema)
        return api_refuse(x, at, "%s is missing", at);
    return take_format_schema(p, at, schema, x);
}

bool field_read_response_format(const struct reading *r) {
    return take_response_format(r->p, r->f->name, r->v, r->x);
}

bool field_read_format(struct params *p, const char *field, const struct json *v,
                       struct api_error *x) {
    return take_response_format(p, field, v, x);
}

// Clients with a field for it send an empty text or list where nothing was written into it: as if
// it were not there.
static bool says_nothing(const struct json *v) {
    size_t n = 0;
    if (json_kind_of(v) == JSON_STRING)
        json_str(v, &n);
    else
        n = json_kind_of(v) == JSON_ARRAY ? json_len(v) : json_kind_of(v) != JSON_NULL;
    return n == 0;
}

bool field_read_schema(const struct reading *r) {
    return says_nothing(r->v) || take_format_schema(r->p, r->f->name, r->v, r->x);
}

bool field_read_grammar(const struct reading *r) {
    return says_nothing(r->v) || take_format_string(r->p, r->f->name, STRUCTURED_GBNF, r->v, r->x);
}

bool field_read_regex(const struct reading *r) {
    return says_nothing(r->v) || take_format_string(r->p, r->f->name, STRUCTURED_REGEX, r->v, r->x);
}

bool field_read_choice(const struct reading *r) {
    return says_nothing(r->v) || take_format_choice(r->p, r->f->name, r->v, r->x);
}

bool field_read_structured(const struct reading *r) {
    const struct json *json = json_get(r->v, "json"), *regex = json_get(r->v, "regex"),
                      *choice = json_get(r->v, "choice"), *grammar = json_get(r->v, "grammar");
    return (says_nothing(json) ||
            take_format_schema(r->p, "structured_outputs.json", json, r->x)) &&
           (says_nothing(regex) ||
            take_format_string(r->p, "structured_outputs.regex", STRUCTURED_REGEX, regex, r->x)) &&
           (says_nothing(choice) ||
            take_format_choice(r->p, "structured_outputs.choice", choice, r->x)) &&
           (says_nothing(grammar) || take_format_string(r->p, "structured_outputs.grammar",
                                                        STRUCTURED_GBNF, grammar, r->x)) &&
           (!json_bool(json_get(r->v, "json_object"), false) ||
            take_format_object(r->p, "structured_outputs.json_object", r->x));
}
