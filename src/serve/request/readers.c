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
#include "base/utf8.h"
#include "compress/prefill.h"
#include "serve/random_id.h"
static bool refuse_no_memory(struct api_error *x) {
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
    return p->model || refuse_no_memory(x);
}

bool field_read_prompt(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)l;
    enum json_kind k = json_kind_of(v);
    if (k != JSON_STRING && k != JSON_ARRAY)
        return api_refuse(x, f->name,
                          "prompt is %s and must be a string, an array of strings, or token ids",
                          api_kind_name(v));
    p->prompt = v;
    return true;
}

bool field_read_text(struct params *p, const struct field *f, const struct json *v,
                     const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_kind_of(v) != JSON_STRING)
        return api_refuse(x, f->name, "%s is %s and must be a string", f->name, api_kind_name(v));
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
                          api_kind_name(usage));
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
                          text ? "a fraction" : api_kind_name(v));
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
                          api_kind_name(v));
    if (n == 0) // stops nothing
        return true;
    int rc = stop_set_add(&p->stops, s, n, &e);
    if (rc == ERR_LIMIT)
        return api_refuse(x, f->name, "%s: %s", f->name, e.text);
    return rc == 0 || refuse_no_memory(x);
}

bool field_read_stop(struct params *p, const struct field *f, const struct json *v,
                     const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_kind_of(v) == JSON_STRING)
        return add_stop(p, f, v, x);
    if (json_kind_of(v) != JSON_ARRAY)
        return api_refuse(x, f->name, "%s is %s and must be a string or an array of strings",
                          f->name, api_kind_name(v));
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
    const char *what = !name ? "missing" : json_str(name, NULL) ? "empty" : api_kind_name(name);
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
                          list ? api_kind_name(list) : "missing");
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
        return api_refuse(x, f->name, "%s is %s and must be an object", place, api_kind_name(t));
    if (f->endpoints & (ENDPOINT_ANTHROPIC | ENDPOINT_COUNT))
        return true;
    if (!kind && (type || !chat)) // without one it is a function in a chat
        return api_refuse(x, f->name, "%s.type is %s and must be a string", place,
                          type ? api_kind_name(type) : "missing");
    if (kind && !strcmp(kind, "namespace") && !chat)
        return check_group(t, place, f, x);
    if (kind && strcmp(kind, "function") != 0 && strcmp(kind, "custom") != 0)
        return true; // a provider's own
    const char *inner = kind ? kind : "function";
    const struct json *body = json_get(t, inner);
    if (body && json_kind_of(body) != JSON_OBJECT)
        return api_refuse(x, f->name, "%s.%s is %s and must be an object", place, inner,
                          api_kind_name(body));
    if (body || chat)
        snprintf(place, sizeof place, "tools[%zu].%s", i, inner);
    const struct json *schema = json_get(body ? body : t, "parameters");
    if (schema && (body || chat) && json_kind_of(schema) != JSON_OBJECT &&
        json_kind_of(schema) != JSON_NULL)
        return api_refuse(x, f->name, "%s.parameters is %s and must be an object", place,
                          api_kind_name(schema));
    return check_name(body ? body : t, place, f, x);
}

bool field_read_tools(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)l;
    if (json_len(v) > PARAMS_MAX_TOOLS)
        return api_refuse(x, f->name, "tools has %zu elements and may have %d", json_len(v),
                          PARAMS_MAX_TOOLS);
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
                      word ? word : api_kind_name(v));
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
    if (json_len(v) > PARAMS_MAX_TOOLS)
        return api_refuse(x, f->name, "functions has %zu elements and may have %d", json_len(v),
                          PARAMS_MAX_TOOLS);
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
                      word ? word : api_kind_name(v));
}

bool field_read_modalities(struct params *p, const struct field *f, const struct json *v,
                           const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    for (size_t i = 0; i < json_len(v); i++) {
        const char *s = json_str(json_at(v, i), NULL);
        if (!s || strcmp(s, "text") != 0)
            return api_refuse(x, f->name,
                              "modalities asks for %.40s, and this model writes text only",
                              s ? s : api_kind_name(json_at(v, i)));
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
                          api_kind_name(type));
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

bool field_read_system(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    enum json_kind k = json_kind_of(v);
    return k == JSON_STRING || k == JSON_ARRAY ||
           api_refuse(x, f->name, "system is %s and must be a string or an array of text blocks",
                      api_kind_name(v));
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
                      s ? "'" : "", s ? s : api_kind_name(v), s ? "'" : "");
}

// Kinds that this server has never heard of leave it to the model whether it thinks.
bool field_read_anthropic_thinking(struct params *p, const struct field *f, const struct json *v,
                                   const struct params_limits *l, struct api_error *x) {
    const char *type = json_str(json_get(v, "type"), NULL);
    if (!type)
        return api_refuse(x, f->name, "thinking.type is %s and must be a string",
                          json_get(v, "type") ? api_kind_name(json_get(v, "type")) : "missing");
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
                          api_kind_name(format));
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
                          api_kind_name(one));
    if (name && !json_str(name, NULL) && json_kind_of(name) != JSON_NULL)
        return api_refuse(x, f->name, "tool_choice.name is %s and must be a string",
                          api_kind_name(name));
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

bool field_read_input(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    enum json_kind k = json_kind_of(v);
    return k == JSON_STRING || k == JSON_ARRAY ||
           api_refuse(x, f->name, "input is %s and must be a string or an array of items",
                      api_kind_name(v));
}

// Its kind is all that is looked at here; the interface reads it from the body.
bool field_read_noted(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)p, (void)f, (void)v, (void)l, (void)x;
    return true;
}

enum { PAIRS = 16, KEY_LONG = 64, TEXT_LONG = 512 };

static int check_pair(void *arg, const char *key, size_t n, const struct json *v) {
    struct api_error *x = arg;
    size_t len = 0, key_long = utf8_count(key, n);
    const char *s = json_str(v, &len);
    if (key_long > KEY_LONG)
        return !api_refuse(x, "metadata", "a key of metadata has %zu characters and may have %d",
                           key_long, KEY_LONG);
    if (!s)
        return !api_refuse(x, "metadata", "a value of metadata is %s and must be a string",
                           api_kind_name(v));
    if (utf8_count(s, len) > TEXT_LONG)
        return !api_refuse(x, "metadata", "a value of metadata has %zu characters and may have %d",
                           utf8_count(s, len), TEXT_LONG);
    return 0;
}

bool field_read_metadata(struct params *p, const struct field *f, const struct json *v,
                         const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    if (json_len(v) > PAIRS)
        return api_refuse(x, f->name, "metadata has %zu pairs and may have %d", json_len(v), PAIRS);
    return json_each(v, check_pair, x) == 0;
}

bool field_read_include(struct params *p, const struct field *f, const struct json *v,
                        const struct params_limits *l, struct api_error *x) {
    char place[32];
    (void)f, (void)l, (void)x;
    for (size_t i = 0; i < json_len(v); i++) {
        const char *what = json_str(json_at(v, i), NULL);
        bool chances = what && !strcmp(what, "message.output_text.logprobs");
        p->logprobs |= chances;
        if (chances || (what && !strcmp(what, "reasoning.encrypted_content")))
            continue;
        snprintf(place, sizeof place, "include[%zu]", i);
        params_ignore(p, place);
    }
    return true;
}

bool field_read_reasoning(struct params *p, const struct field *f, const struct json *v,
                          const struct params_limits *l, struct api_error *x) {
    static const char *const words[] = {"reasoning.summary", "reasoning.generate_summary"};
    const struct json *effort = json_get(v, "effort");
    if (json_kind_of(effort) != JSON_NULL && json_kind_of(effort) != JSON_STRING)
        return api_refuse(x, "reasoning.effort", "reasoning.effort is %s and must be a string",
                          api_kind_name(effort));
    for (int i = 0; i < 2; i++) {
        const struct json *summary = json_get(v, strchr(words[i], '.') + 1);
        if (json_kind_of(summary) != JSON_NULL && json_kind_of(summary) != JSON_STRING)
            return api_refuse(x, words[i], "%s is %s and must be a string", words[i],
                              api_kind_name(summary));
    }
    return !effort || field_read_effort(p, f, effort, l, x);
}

bool field_read_text_options(struct params *p, const struct field *f, const struct json *v,
                             const struct params_limits *l, struct api_error *x) {
    const struct json *format = json_get(v, "format");
    if (json_kind_of(format) != JSON_NULL && json_kind_of(format) != JSON_OBJECT)
        return api_refuse(x, "text.format", "text.format is %s and must be an object",
                          api_kind_name(format));
    (void)f, (void)l;
    return json_kind_of(format) != JSON_OBJECT || field_read_format(p, "text.format", format, x);
}

// Its row stands behind those of max_tokens.
bool field_read_cache_options(struct params *p, const struct field *f, const struct json *v,
                              const struct params_limits *l, struct api_error *x) {
    const struct json *prewarm = json_get(v, "prewarm");
    (void)f, (void)l;
    if (json_kind_of(prewarm) != JSON_NULL && json_kind_of(prewarm) != JSON_BOOL)
        return api_refuse(x, "prompt_cache_options.prewarm",
                          "prompt_cache_options.prewarm is %s and must be true or false",
                          api_kind_name(prewarm));
    p->prewarms = json_bool(prewarm, false);
    if (p->prewarms)
        p->max_tokens = 0;
    return true;
}

bool field_read_background(struct params *p, const struct field *f, const struct json *v,
                           const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    return !json_bool(v, false) ||
           api_refuse(x, f->name,
                      "background is not supported: answers are made while the client "
                      "waits; leave it out, or ask for a stream");
}

bool field_read_unkept(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    (void)p, (void)v, (void)l;
    return api_refuse(x, f->name,
                      "%s is not supported: nothing of that kind is kept here; send what is meant "
                      "as input",
                      f->name);
}
