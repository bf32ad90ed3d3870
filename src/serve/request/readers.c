// SPDX-License-Identifier: Apache-2.0
// Request fields that need more than a check of kind and range; see readers.h. Each reads one
// value into the parameters, or refuses it with its field's name.
#include "serve/request/readers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "compress/adapt.h"
#include "serve/random_id.h"
#include "serve/request/tools.h"

static bool no_memory(struct api_error *x) {
    api_fail(x, 503, NULL, "no memory to read the request");
    return false;
}

bool field_read_model(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)l;
    size_t n;
    const char *s = json_str(v, &n);
    if (n > PARAMS_MAX_MODEL)
        return api_refuse(x, f->name, "model has %zu bytes and may have %d at most", n,
                          PARAMS_MAX_MODEL);
    if (memchr(s, 0, n))
        return api_refuse(x, f->name, "model holds a NUL character");
    free(p->model);
    p->model = strdup(s);
    return p->model || no_memory(x);
}

bool field_read_prompt(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)l;
    enum json_kind k = json_kind_of(v);
    if (k != JSON_STRING && k != JSON_ARRAY)
        return api_refuse(x, f->name,
                          "prompt is %s and must be a string, an array of strings, or token ids",
                          fields_kind_name(v));
    p->prompt = v;
    return true;
}

bool field_read_text(struct params *p, const struct field *f, const struct json *v,
                     const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_kind_of(v) != JSON_STRING)
        return api_refuse(x, f->name, "%s is %s and must be a string", f->name,
                          fields_kind_name(v));
    p->text = v;
    return true;
}

bool field_read_stream_options(struct params *p, const struct field *f, const struct json *v,
                               const struct params_limits *l, struct api_error *x) {
    (void)l;
    const struct json *usage = json_get(v, "include_usage");
    if (json_kind_of(usage) != JSON_NULL && json_kind_of(usage) != JSON_BOOL)
        return api_refuse(x, "stream_options.include_usage",
                          "%s.include_usage is %s and must be true or false", f->name,
                          fields_kind_name(usage));
    p->include_usage = json_bool(usage, false);
    return true;
}

// 0, which some clients send for "the likeliest", is the smallest set there is.
bool field_read_top_p(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l, (void)x;
    double d = json_num(v, 1);
    p->sample.top_p = d > 1e-9 ? d : 1e-9;
    return true;
}

bool field_read_top_k(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l, (void)x;
    p->sample.top_k = max_i64((int64_t)json_num(v, 0), 0);
    return true;
}

// Any 64 bits, signed or not; -1 is the word of other servers for a random one.
bool field_read_seed(struct params *p, const struct field *f, const struct json *v,
                     const struct params_limits *l, struct api_error *x) {
    (void)l;
    const char *text = json_number_text(v);
    char *end = NULL;
    double d = json_num(v, 0.5);
    if (json_kind_of(v) == JSON_DOUBLE && fabs(d) < 0x1p63 && d == floor(d)) { // 1.0
        p->sample.seed = d == -1 ? random_seed() : (uint64_t)(int64_t)d;
        return true;
    }
    if (json_kind_of(v) != JSON_INT)
        return api_refuse(x, f->name, "seed is %s and must be an integer",
                          text ? "a fraction" : fields_kind_name(v));
    if (!text) {
        api_fail(x, 503, NULL, "out of memory for the body");
        return false;
    }
    errno = 0;
    uint64_t seed = text[0] == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    if (errno || *end)
        return api_refuse(x, f->name, "seed is beyond 64 bits");
    p->sample.seed = text[0] == '-' && seed == UINT64_MAX ? random_seed() : seed;
    return true;
}

static bool add_stop(struct params *p, const struct field *f, const struct json *v,
                     struct api_error *x) {
    struct err e = {0};
    size_t n;
    const char *s = json_str(v, &n);
    if (!s)
        return api_refuse(x, f->name, "%s holds %s and must hold strings", f->name,
                          fields_kind_name(v));
    if (n == 0) // stops nothing
        return true;
    int rc = stop_set_add(&p->stops, s, n, &e);
    if (rc == ERR_LIMIT)
        return api_refuse(x, f->name, "%s: %s", f->name, e.text);
    return rc == 0 || no_memory(x);
}

bool field_read_stop(struct params *p, const struct field *f, const struct json *v,
                     const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_kind_of(v) == JSON_STRING)
        return add_stop(p, f, v, x);
    if (json_kind_of(v) != JSON_ARRAY)
        return api_refuse(x, f->name, "%s is %s and must be a string or an array of strings",
                          f->name, fields_kind_name(v));
    for (size_t i = 0; i < json_len(v); i++)
        if (!add_stop(p, f, json_at(v, i), x))
            return false;
    return true;
}

bool field_read_n(struct params *p, const struct field *f, const struct json *v,
                  const struct params_limits *l, struct api_error *x) {
    p->n = (int64_t)json_num(v, 1);
    if (p->n > l->slots)
        return api_refuse(x, f->name, "n is %lld and the server has %d slots: ask for fewer",
                          (long long)p->n, l->slots);
    return true;
}

bool field_read_best_of(struct params *p, const struct field *f, const struct json *v,
                        const struct params_limits *l, struct api_error *x) {
    (void)l;
    int64_t best = (int64_t)json_num(v, 1);
    return best == p->n || api_refuse(x, f->name,
                                      "best_of is %lld and n is %lld: choosing among more answers "
                                      "than are sent is not supported",
                                      (long long)best, (long long)p->n);
}

bool field_read_suffix(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    size_t n;
    json_str(v, &n);
    return n == 0 || api_refuse(x, f->name, "suffix is not supported: leave it out");
}

// Whether a declaration has a name; place: where it stands.
static bool check_name(const struct json *declaration, const char *place, const struct field *f,
                       struct api_error *x) {
    const struct json *name = json_get(declaration, "name");
    size_t n = 0;
    if (json_str(name, &n) && n > 0)
        return true;
    const char *what = !name ? "missing" : json_str(name, NULL) ? "empty" : fields_kind_name(name);
    return api_refuse(x, f->name, "%s.name is %s and must be the name of the tool", place, what);
}

// A group of tools, each with a name of its own.
static bool check_group(const struct json *group, const char *place, const struct field *f,
                        struct api_error *x) {
    const struct json *list = json_get(group, "tools");
    char inner[96];
    if (!check_name(group, place, f, x))
        return false;
    if (json_kind_of(list) != JSON_ARRAY)
        return api_refuse(x, f->name, "%s.tools is %s and must be an array", place,
                          list ? fields_kind_name(list) : "missing");
    for (size_t i = 0; i < json_len(list); i++) {
        snprintf(inner, sizeof inner, "%s.tools[%zu]", place, i);
        if (!check_name(json_at(list, i), inner, f, x))
            return false;
    }
    return true;
}

// A function or a custom tool needs a name, beside its type or in the object of that name: without
// one the model would never see it. Tools of Messages have their own check.
static bool check_tool(const struct json *t, size_t i, const struct field *f, struct api_error *x) {
    const struct json *type = json_get(t, "type");
    const char *kind = json_str(type, NULL);
    const bool chat = f->endpoints & ENDPOINT_MESSAGES;
    char place[48];
    snprintf(place, sizeof place, "tools[%zu]", i);
    if (json_kind_of(t) != JSON_OBJECT)
        return api_refuse(x, f->name, "%s is %s and must be an object", place, fields_kind_name(t));
    if (f->endpoints & (ENDPOINT_ANTHROPIC | ENDPOINT_COUNT))
        return true;
    if (!kind && (type || !chat)) // without one it is a function in a chat
        return api_refuse(x, f->name, "%s.type is %s and must be a string", place,
                          type ? fields_kind_name(type) : "missing");
    if (kind && !strcmp(kind, "namespace") && !chat)
        return check_group(t, place, f, x);
    if (kind && strcmp(kind, "function") != 0 && strcmp(kind, "custom") != 0)
        return true; // a provider's own
    const char *inner = kind ? kind : "function";
    const struct json *body = json_get(t, inner);
    if (body && json_kind_of(body) != JSON_OBJECT)
        return api_refuse(x, f->name, "%s.%s is %s and must be an object", place, inner,
                          fields_kind_name(body));
    if (body || chat)
        snprintf(place, sizeof place, "tools[%zu].%s", i, inner);
    const struct json *schema = json_get(body ? body : t, "parameters");
    if (schema && (body || chat) && json_kind_of(schema) != JSON_OBJECT &&
        json_kind_of(schema) != JSON_NULL)
        return api_refuse(x, f->name, "%s.parameters is %s and must be an object", place,
                          fields_kind_name(schema));
    return check_name(body ? body : t, place, f, x);
}

bool field_read_tools(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_len(v) > REQUEST_TOOLS_MAX)
        return api_refuse(x, f->name, "tools has %zu elements and may have %d", json_len(v),
                          REQUEST_TOOLS_MAX);
    for (size_t i = 0; i < json_len(v); i++)
        if (!check_tool(json_at(v, i), i, f, x))
            return false;
    p->tools = v;
    return true;
}

bool field_read_tool_choice(struct params *p, const struct field *f, const struct json *v,
                            const struct params_limits *l, struct api_error *x) {
    static const char *const words[] = {"none", "auto", "required"};
    const char *word = json_str(v, NULL);
    (void)l;
    p->tool_choice = v;
    if (json_kind_of(v) == JSON_OBJECT)
        return true;
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i]))
            return true;
    return api_refuse(x, f->name,
                      "tool_choice is %.40s and must be none, auto, required, or an object that "
                      "names a tool",
                      word ? word : fields_kind_name(v));
}

bool field_read_parallel(struct params *p, const struct field *f, const struct json *v,
                         const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l, (void)x;
    p->parallel = v;
    return true;
}

bool field_read_functions(struct params *p, const struct field *f, const struct json *v,
                          const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_len(v) > REQUEST_TOOLS_MAX)
        return api_refuse(x, f->name, "functions has %zu elements and may have %d", json_len(v),
                          REQUEST_TOOLS_MAX);
    if (json_len(v) > 0 && json_len(p->tools) > 0)
        return api_refuse(x, f->name,
                          "functions is the older form of tools: declare all of them in one");
    for (size_t i = 0; i < json_len(v); i++)
        if (!json_str(json_get(json_at(v, i), "name"), NULL))
            return api_refuse(x, f->name, "functions[%zu].name is missing", i);
    p->functions = json_len(v) > 0 ? v : NULL;
    return true;
}

// In the table behind functions.
bool field_read_function_call(struct params *p, const struct field *f, const struct json *v,
                              const struct params_limits *l, struct api_error *x) {
    const char *word = json_str(v, NULL);
    (void)l;
    p->function_call = v;
    if (json_kind_of(v) == JSON_OBJECT && !p->functions)
        return api_refuse(x, f->name, "function_call names a function, and functions has none");
    if (word ? !strcmp(word, "none") || !strcmp(word, "auto")
             : json_str(json_get(v, "name"), NULL) != NULL)
        return true;
    return api_refuse(x, f->name,
                      "function_call is %.40s and must be none, auto, or {\"name\": ...}",
                      word ? word : fields_kind_name(v));
}

bool field_read_modalities(struct params *p, const struct field *f, const struct json *v,
                           const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    for (size_t i = 0; i < json_len(v); i++) {
        const char *s = json_str(json_at(v, i), NULL);
        if (!s || strcmp(s, "text") != 0)
            return api_refuse(x, f->name,
                              "modalities asks for %.40s, and this model writes text only",
                              s ? s : fields_kind_name(json_at(v, i)));
    }
    return true;
}

bool field_read_generation_prompt(struct params *p, const struct field *f, const struct json *v,
                                  const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l, (void)x;
    p->open_reply = json_bool(v, true) ? 1 : -1;
    return true;
}

// In the table behind add_generation_prompt.
bool field_read_continue_final(struct params *p, const struct field *f, const struct json *v,
                               const struct params_limits *l, struct api_error *x) {
    (void)l;
    p->continue_last = json_bool(v, false) ? 1 : -1;
    if (p->continue_last > 0 && p->open_reply > 0)
        return api_refuse(x, f->name,
                          "continue_final_message and add_generation_prompt cannot both be true: "
                          "the last message goes on, or a new one begins");
    return true;
}

// Words that this server has never heard of are the template's affair.
bool field_read_effort(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)l;
    size_t n;
    const char *s = json_str(v, &n);
    if (n == 0)
        return true;
    if (n >= sizeof p->effort || memchr(s, 0, n))
        return api_refuse(x, f->name,
                          "reasoning_effort must be one word such as none, low, medium "
                          "or high");
    memcpy(p->effort, s, n + 1);
    p->thinking = strcmp(s, "none") != 0;
    return true;
}

bool field_read_session(struct params *p, const struct field *f, const struct json *v,
                        const struct params_limits *l, struct api_error *x) {
    (void)l;
    size_t n;
    const char *s = json_str(v, &n);
    if (n > PARAMS_MAX_SESSION)
        return api_refuse(x, f->name, "session_id has %zu bytes and may have %d at most", n,
                          PARAMS_MAX_SESSION);
    p->session = n ? adapt_id(s, n) : 0;
    return true;
}

bool field_read_thinking(struct params *p, const struct field *f, const struct json *v,
                         const struct params_limits *l, struct api_error *x) {
    const struct json *type = json_get(v, "type");
    const char *s = json_str(type, NULL);
    if (json_kind_of(type) != JSON_NULL && !s)
        return api_refuse(x, "thinking.type", "%s.type is %s and must be a string", f->name,
                          fields_kind_name(type));
    if (s && (!strcmp(s, "enabled") || !strcmp(s, "disabled")))
        p->thinking = s[0] == 'e'; // others, such as adaptive, leave it to the model
    return field_read_budget(p, f, json_get(v, "budget_tokens"), l, x);
}

bool field_read_budget(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (!v)
        return true;
    if (json_kind_of(v) != JSON_INT || json_int(v, -1) < 0)
        return api_refuse(x, f->name, "%s: the tokens must be an integer, 0 or more", f->name);
    p->thinking_tokens = json_int(v, -1);
    return true;
}

bool field_read_enable_thinking(struct params *p, const struct field *f, const struct json *v,
                                const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l, (void)x;
    p->thinking = json_bool(v, true);
    return true;
}

bool field_read_parse_special(struct params *p, const struct field *f, const struct json *v,
                              const struct params_limits *l, struct api_error *x) {
    (void)f, (void)l, (void)x;
    p->no_special = !json_bool(v, true);
    return true;
}

bool field_read_speculate(struct params *p, const struct field *f, const struct json *v,
                          const struct params_limits *l, struct api_error *x) {
    static const enum speculate ways[] = {SPECULATE_TREE, SPECULATE_CHAIN, SPECULATE_LOOKUP,
                                          SPECULATE_OFF};
    const char *s = json_str(v, NULL);
    size_t i = 0;
    while (i < sizeof ways / sizeof ways[0] && strcmp(s, speculate_name(ways[i])) != 0)
        i++;
    if (i == sizeof ways / sizeof ways[0])
        return api_refuse(x, f->name, "speculate is '%.40s' and must be tree, chain, lookup or off",
                          s);
    p->how = ways[i];
    if ((p->how == SPECULATE_TREE || p->how == SPECULATE_CHAIN) && !l->has_draft)
        return api_refuse(x, f->name,
                          "speculate is %s and no draft model is loaded: use lookup or "
                          "off",
                          s);
    return true;
}

bool field_read_extra(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    if (fields_read(p, fields_extra, fields_extra_count, v, ENDPOINT_TEXT, l, x))
        return true;
    char param[sizeof x->param];
    snprintf(param, sizeof param, "%s.%.60s", f->name, x->param);
    memcpy(x->param, param, sizeof param);
    return false;
}
