// SPDX-License-Identifier: Apache-2.0
// See write.h. One writer follows the rows of formats.c for all families; line ends stand where the
// families' own templates have them.
#include "text/tools/write.h"

#include <string.h>

#include "base/json/json.h"

bool tool_family_describable(enum tool_family f) {
    return f != TOOLS_HARMONY;
}

static void put_json(struct str *out, const struct json *v) {
    struct json_writer w = {0};
    jw_value(&w, v);
    str_append(out, w.out.data ? w.out.data : "", w.out.len);
    out->failed |= w.out.failed;
    str_fini(&w.out);
}

// Tags around each argument.

struct tags {
    struct str *out;
    const struct tool_format *form;
};

static int put_tagged(void *arg, const char *key, size_t n, const struct json *v) {
    const struct tags *t = arg;
    const struct tool_format *f = t->form;
    size_t len = 0;
    const char *s = json_str(v, &len);
    str_puts(t->out, f->key);
    str_append(t->out, key, n);
    str_printf(t->out, "%s\n%s", f->key_end, f->value ? f->value : "");
    if (s)
        str_append(t->out, s, len);
    else
        put_json(t->out, v);
    str_printf(t->out, "%s%s\n", f->lines ? "\n" : "", f->value_end);
    return 0;
}

// Gemma's notation.

struct gemma {
    struct str *out;
    const char *quote;
    bool more; // members have come
};

static void put_gemma(struct gemma *g, const struct json *v);

static int put_gemma_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct gemma *g = arg, inner = {g->out, g->quote, false};
    str_puts(g->out, g->more ? "," : "");
    str_append(g->out, key, n);
    str_putc(g->out, ':');
    g->more = true;
    put_gemma(&inner, v);
    return 0;
}

static void put_gemma(struct gemma *g, const struct json *v) {
    size_t n = 0;
    const char *s = json_str(v, &n);
    if (s) {
        str_puts(g->out, g->quote);
        str_append(g->out, s, n);
        str_puts(g->out, g->quote);
    } else if (json_kind_of(v) == JSON_OBJECT) {
        struct gemma inner = {g->out, g->quote, false};
        str_putc(g->out, '{');
        json_each(v, put_gemma_member, &inner);
        str_putc(g->out, '}');
    } else if (json_kind_of(v) == JSON_ARRAY) {
        str_putc(g->out, '[');
        for (size_t i = 0; i < json_len(v); i++) {
            str_puts(g->out, i ? "," : "");
            put_gemma(g, json_at(v, i));
        }
        str_putc(g->out, ']');
    } else {
        put_json(g->out, v);
    }
}

// Arguments as an object; what is none becomes the member "input" of one.
static int read_object(struct json **out, const struct tool_call_text *call, struct err *e) {
    const struct json_rules rules = {.values = 1 << 20, .objects = 1 << 16, .big_integers = true};
    struct json_builder built = {0};
    struct json_writer w = {.builder = &built};
    int rc = json_parse_with(out, call->arguments, call->n_arguments, &rules, e);
    if (rc == ERR_MEMORY || (!rc && json_kind_of(*out) == JSON_OBJECT))
        return rc;
    json_free(rc ? NULL : *out);
    jw_begin(&w, '{');
    if (call->n_arguments)
        jw_key_text(&w, "input", call->arguments, call->n_arguments);
    jw_end(&w, '}');
    return json_built(&built, out, "the arguments of a call", e);
}

static int put_arguments(struct str *out, const struct tool_format *f,
                         const struct tool_call_text *call, struct err *e) {
    struct json *object = NULL;
    if (f->args == TOOL_ARGS_JSON || f->args == TOOL_ARGS_NAMED) {
        str_append(out, call->arguments, call->n_arguments);
        return 0;
    }
    int rc = read_object(&object, call, e);
    if (rc)
        return rc;
    struct tags tags = {out, f};
    if (f->args == TOOL_ARGS_TAGGED)
        json_each(object, put_tagged, &tags);
    else
        put_gemma(&(struct gemma){out, f->quote, false}, object);
    json_free(object);
    return 0;
}

// The marks in front of call i.
static void put_opening(struct str *out, const struct tool_format *f, int i) {
    bool each = f->own_section && !f->between;
    if (i > 0 && f->between) {
        str_printf(out, "%s ", f->between);
        return;
    }
    if (i > 0 && !f->adjacent)
        str_putc(out, '\n');
    if (f->section && !f->first_only && (i == 0 || each)) // a bare call is one without its mark
        str_printf(out, "%s%s", f->section, each ? "\n" : "");
    str_puts(out, f->list ? f->list : f->open);
}

static int put_call(struct str *out, enum tool_family family, const struct tool_call_text *call,
                    int i, struct err *e) {
    const struct tool_format *f = &tool_formats[family];
    bool named = f->args == TOOL_ARGS_NAMED, tagged = f->args == TOOL_ARGS_TAGGED;
    const char *line = named && f->close[0] ? "\n" : "";
    put_opening(out, f, i);
    if (named) {
        str_printf(out, "%s{\"name\": ", line);
        str_append(out, call->name_json, call->n_name_json);
        str_printf(out, ", \"%s\": ", f->arguments);
    } else {
        str_puts(out, f->prefix ? f->prefix : "");
        str_append(out, call->name, call->n_name);
        if (family == TOOLS_KIMI)
            str_printf(out, ":%d", i); // its ids have the number of the call
        str_printf(out, "%s%s", f->keep_end ? "" : f->name_end[0], tagged ? "\n" : "");
    }
    int rc = put_arguments(out, f, call, e);
    str_printf(out, "%s%s%s%s", named ? "}" : "", line, f->before_close ? f->before_close : "",
               f->close);
    return rc;
}

int tool_calls_write(struct str *out, enum tool_family f, const struct tool_call_text *calls, int n,
                     struct err *e) {
    const struct tool_format *form = &tool_formats[f];
    bool each = form->own_section && !form->between;
    int rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        rc = put_call(out, f, &calls[i], i, e);
        if (form->section_end && (each || i == n - 1))
            str_printf(out, "%s%s", each ? "\n" : "", form->section_end);
    }
    return rc;
}

void tool_description_begin(struct str *out) {
    str_puts(out, "# Tools\n\n"
                  "You can call functions to help with what the user asks. Their signatures are "
                  "within <tools></tools>, one JSON object a line:\n<tools>\n");
}

int tool_description_end(struct str *out, enum tool_family f, struct err *e) {
    static const char name[] = "function-name", arguments[] = "{\"argument-name\": \"value\"}";
    static const char json[] = "\"function-name\"";
    const struct tool_call_text example = {.name = name,
                                           .n_name = sizeof name - 1,
                                           .name_json = json,
                                           .n_name_json = sizeof json - 1,
                                           .arguments = arguments,
                                           .n_arguments = sizeof arguments - 1};
    str_puts(out, "</tools>\n\n"
                  "To call a function, write its name and its arguments in this form, once for "
                  "each call, and nothing after the last one:\n");
    int rc = tool_calls_write(out, f, &example, 1, e);
    str_puts(out, "\n\nResults of calls come within <tool_response></tool_response>.");
    return rc;
}
