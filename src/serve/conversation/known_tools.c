// SPDX-License-Identifier: Apache-2.0
// Tools that Anthropic's models know by heart; see messages.h.
#include <string.h>

#include "serve/conversation/messages.h"

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

enum { KNOWN = sizeof known / sizeof known[0] };

static int find_known(const char *type) {
    for (int i = 0; type && i < KNOWN; i++)
        if (!strncmp(type, known[i].prefix, strlen(known[i].prefix)))
            return i;
    return -1;
}

bool conversation_knows_tool(const char *type) {
    return find_known(type) >= 0;
}

// All schemas, as an array.
static bool parse_schemas(struct json **out, struct api_error *x) {
    struct str s = {0};
    struct err e = {0};
    str_putc(&s, '[');
    for (int i = 0; i < KNOWN; i++) {
        str_puts(&s, i ? "," : "");
        for (const char *c = known[i].schema; *c; c++)
            str_putc(&s, *c == '\'' ? '"' : *c);
    }
    str_putc(&s, ']');
    bool ok = !s.failed && !json_parse(out, s.data, s.len, &e);
    if (!ok)
        api_fail(x, 503, NULL, "no memory for the tools");
    str_fini(&s);
    return ok;
}

bool conversation_know_tools(struct conversation *v, struct json **schemas, struct api_error *x) {
    *schemas = NULL;
    for (int i = 0; i < v->n_tools; i++) {
        struct conversation_tool *t = &v->tools[i];
        int own = t->kind == TOOL_OTHER ? find_known(json_str(json_get(t->raw, "type"), NULL)) : -1;
        struct words name = words_of(json_get(t->raw, "name"));
        if (own < 0 || !name.s)
            continue;
        if (!*schemas && !parse_schemas(schemas, x))
            return false;
        *t = (struct conversation_tool){.kind = TOOL_FUNCTION,
                                        .name = name,
                                        .description = words_of_text(known[own].description),
                                        .schema = json_at(*schemas, (size_t)own),
                                        .raw = t->raw};
    }
    return true;
}
