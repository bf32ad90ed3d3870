// SPDX-License-Identifier: Apache-2.0
// Tools of Anthropic's interface; see anthropic_read.h.
#include <string.h>

#include "serve/anthropic_read.h"
#include "serve/fields.h"

// Tools whose schema Anthropic's models know by heart, and which clients run.
static const struct {
    const char *prefix, *description, *schema; // ' in place of "
} known[] = {
    {"bash_", "Runs a command in a shell that stays open, and gives back what it printed.",
     "{'type':'object','properties':{'command':{'type':'string','description':'The command.'},"
     "'restart':{'type':'boolean','description':'true: begin a new shell instead.'}}}"},
    {"text_editor_", "Looks at files and changes them.",
     "{'type':'object','properties':{'command':{'type':'string','enum':['view','create',"
     "'str_replace','insert']},'path':{'type':'string'},'file_text':{'type':'string'},'old_str':{"
     "'type':'string'},'new_str':{'type':'string'},'insert_line':{'type':'integer'},"
     "'insert_text':{'type':'string'},'view_range':{'type':'array','items':{'type':'integer'}}},"
     "'required':['command','path']}"},
    {"memory_", "Keeps notes in files below /memories.",
     "{'type':'object','properties':{'command':{'type':'string','enum':['view','create',"
     "'str_replace','insert','delete','rename']},'path':{'type':'string'},'file_text':{'type':"
     "'string'},'old_str':{'type':'string'},'new_str':{'type':'string'},'insert_line':{'type':"
     "'integer'},'insert_text':{'type':'string'},'old_path':{'type':'string'},'new_path':{'type':"
     "'string'},'view_range':{'type':'array','items':{'type':'integer'}}},'required':['command']}"},
};

static int find_known(const char *type) {
    for (size_t i = 0; type && i < sizeof known / sizeof known[0]; i++)
        if (!strncmp(type, known[i].prefix, strlen(known[i].prefix)))
            return (int)i;
    return -1;
}

// Where the writer stands, a value that is JSON already.
static void put_schema(struct json_writer *w, const char *schema) {
    struct str s = {0};
    struct json *v = NULL;
    for (const char *c = schema; *c; c++)
        str_putc(&s, *c == '\'' ? '"' : *c);
    w->out.failed |= s.failed || json_parse(&v, s.data, s.len, NULL) != 0;
    jw_value(w, v);
    json_free(v);
    str_fini(&s);
}

static void put_tool(struct json_writer *w, const struct json *tool, int own) {
    jw_begin(w, '{');
    jw_key_str(w, "type", "function");
    jw_key(w, "function");
    jw_begin(w, '{');
    jw_key(w, "name");
    jw_value(w, json_get(tool, "name"));
    if (own >= 0) {
        jw_key_str(w, "description", known[own].description);
        jw_key(w, "parameters");
        put_schema(w, known[own].schema);
    } else {
        if (json_get(tool, "description")) {
            jw_key(w, "description");
            jw_value(w, json_get(tool, "description"));
        }
        jw_key(w, "parameters");
        jw_value(w, json_get(tool, "input_schema"));
    }
    jw_end(w, '}');
    jw_end(w, '}');
}

bool anthropic_read_tools(const struct json *tools, struct json **out, struct api_error *x) {
    static const struct json_rules rules = {.depth = 300, .big_integers = true};
    struct json_writer w = {0};
    struct err e = {0};
    size_t n = 0;
    bool ok = true;
    *out = NULL;
    jw_begin(&w, '[');
    for (size_t i = 0; i < json_len(tools); i++) {
        const struct json *t = json_at(tools, i), *schema = json_get(t, "input_schema");
        int own = schema ? -1 : find_known(json_str(json_get(t, "type"), NULL));
        if (!schema && own < 0) // runs on Anthropic's servers, or is of a kind yet unknown
            continue;
        if (!json_str(json_get(t, "name"), NULL) ||
            (schema && json_kind_of(schema) != JSON_OBJECT)) {
            ok = api_refuse(x, "tools", "tools[%zu] must have a name and an object as input_schema",
                            i);
            break;
        }
        put_tool(&w, t, own);
        n++;
    }
    jw_end(&w, ']');
    if (ok && n > 0 && (w.out.failed || json_parse_with(out, w.out.data, w.out.len, &rules, &e))) {
        api_fail(x, 503, NULL, "no memory for the tools");
        ok = false;
    }
    str_fini(&w.out);
    return ok;
}
