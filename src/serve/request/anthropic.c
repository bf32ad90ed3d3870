// SPDX-License-Identifier: Apache-2.0
// Request fields of Anthropic's interface; see readers.h.
#include <string.h>

#include "serve/request/readers.h"

bool field_read_system(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    enum json_kind k = json_kind_of(v);
    return k == JSON_STRING || k == JSON_ARRAY ||
           api_refuse(x, f->name, "system is %s and must be a string or an array of text blocks",
                      fields_kind_name(v));
}

// updates is a beta's word: notes between calls in clear, reasoning omitted. Models here write no
// such notes apart from their reasoning.
static bool read_display(struct params *p, const struct json *thinking, struct api_error *x) {
    static const char *const known[] = {"summarized", "omitted", "updates"};
    const struct json *v = json_get(thinking, "display");
    const char *s = json_str(v, NULL);
    if (json_kind_of(v) == JSON_NULL)
        return true;
    if (p->thinking == 0)
        return api_refuse(x, "thinking.display",
                          "thinking.display says how thinking is shown, and thinking.type is "
                          "disabled: leave display out");
    for (size_t i = 0; s && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(s, known[i])) {
            p->omits_thinking = i > 0;
            return true;
        }
    return api_refuse(x, "thinking.display",
                      "thinking.display is %s%.40s%s and must be summarized or omitted",
                      s ? "'" : "", s ? s : fields_kind_name(v), s ? "'" : "");
}

// Kinds that this server has never heard of leave it to the model whether it thinks.
bool field_read_anthropic_thinking(struct params *p, const struct field *f, const struct json *v,
                                   const struct params_limits *l, struct api_error *x) {
    const char *type = json_str(json_get(v, "type"), NULL);
    if (!type)
        return api_refuse(x, f->name, "thinking.type is %s and must be a string",
                          json_get(v, "type") ? fields_kind_name(json_get(v, "type")) : "missing");
    p->thinking = strcmp(type, "disabled") != 0;
    return read_display(p, v, x) && field_read_budget(p, f, json_get(v, "budget_tokens"), l, x);
}

bool field_read_output_config(struct params *p, const struct field *f, const struct json *v,
                              const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l;
    const struct json *effort = json_get(v, "effort"), *format = json_get(v, "format");
    size_t n;
    const char *s = json_str(effort, &n);
    if (effort && (!s || n >= sizeof p->effort))
        return api_refuse(x, "output_config.effort",
                          "output_config.effort must be low, medium, high, xhigh or max");
    if (s)
        memcpy(p->effort, s, n + 1);
    if (json_kind_of(format) != JSON_NULL && json_kind_of(format) != JSON_OBJECT)
        return api_refuse(x, "output_config.format",
                          "output_config.format is %s and must be an object",
                          fields_kind_name(format));
    return json_kind_of(format) != JSON_OBJECT ||
           field_read_format(p, "output_config.format", format, x);
}

bool field_read_anthropic_choice(struct params *p, const struct field *f, const struct json *v,
                                 const struct params_limits *l, struct api_error *x) {
    static const char *const known[] = {"auto", "any", "tool", "none"};
    const char *type = json_str(json_get(v, "type"), NULL);
    const struct json *one = json_get(v, "disable_parallel_tool_use"), *name = json_get(v, "name");
    (void)p, (void)l;
    if (one && json_kind_of(one) != JSON_BOOL && json_kind_of(one) != JSON_NULL)
        return api_refuse(x, f->name,
                          "tool_choice.disable_parallel_tool_use is %s and must be a boolean",
                          fields_kind_name(one));
    if (name && !json_str(name, NULL) && json_kind_of(name) != JSON_NULL)
        return api_refuse(x, f->name, "tool_choice.name is %s and must be a string",
                          fields_kind_name(name));
    for (size_t i = 0; type && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(type, known[i]))
            return true;
    return api_refuse(x, f->name, "tool_choice.type must be auto, any, tool or none");
}

// The SDK's runner of tools asks for a thread first and goes on without one at this very word.
// Passed over, its next request would have no more than the new turn.
bool field_read_thread(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)p, (void)v, (void)l;
    api_refuse(x, f->name,
               "thread is not supported: no conversations are kept here; send all messages "
               "without it");
    x->details = "thread_unsupported_request";
    return false;
}

// Clients that ask for it wait for a block of its own, and would keep an answer in its place.
bool field_read_compaction(struct params *p, const struct field *f, const struct json *v,
                           const struct params_limits *l, struct api_error *x) {
    (void)p, (void)v, (void)l;
    return api_refuse(x, f->name,
                      "compaction is not supported: conversations are not compacted here; ask for "
                      "a summary as an answer, and go on from that");
}
