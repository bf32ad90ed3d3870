// SPDX-License-Identifier: Apache-2.0
// Request fields that need more than a check of kind and range; see fields.h. Each reads one
// value into the parameters, or refuses it with its field's name.
#include "serve/request/fields.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "compress/prefill.h"

bool field_read_model(const struct reading *r) {
    size_t n;
    const char *s = json_str(r->v, &n);
    if (n > PARAMS_MAX_MODEL)
        return api_refuse(r->x, r->f->name, "model has %zu bytes and may have %d at most", n,
                          PARAMS_MAX_MODEL);
    if (memchr(s, 0, n))
        return api_refuse(r->x, r->f->name, "model holds a NUL character");
    free(r->p->model);
    r->p->model = strdup(s);
    return r->p->model || api_no_memory(r->x);
}

bool field_read_prompt(const struct reading *r) {
    enum json_kind k = json_kind_of(r->v);
    if (k != JSON_STRING && k != JSON_ARRAY)
        return api_refuse_kind(r->x, r->f->name, "", r->v,
                               "a string, an array of strings, or token ids");
    r->p->prompt = r->v;
    return true;
}

bool field_read_text(const struct reading *r) {
    if (json_kind_of(r->v) != JSON_STRING)
        return api_refuse_kind(r->x, r->f->name, "", r->v, "a string");
    r->p->text = r->v;
    return true;
}

bool field_read_stream_options(const struct reading *r) {
    const struct json *usage = json_get(r->v, "include_usage");
    r->p->include_usage = json_bool(usage, false);
    return api_may_be(r->x, "stream_options.include_usage", usage, JSON_BOOL, "true or false");
}

// 0, which some clients send for "the likeliest", is the smallest set there is.
bool field_read_top_p(const struct reading *r) {
    double d = json_num(r->v, 1);
    r->p->sample.top_p = d > 1e-9 ? d : 1e-9;
    return true;
}

bool field_read_top_k(const struct reading *r) {
    r->p->sample.top_k = max_i64((int64_t)json_num(r->v, 0), 0);
    return true;
}

// Any 64 bits, signed or not; -1 is the word of other servers for a random one.
bool field_read_seed(const struct reading *r) {
    const char *text = json_number_text(r->v);
    char *end = NULL;
    double d = json_num(r->v, 0.5);
    if (json_kind_of(r->v) == JSON_DOUBLE && fabs(d) < 0x1p63 && d == floor(d)) { // 1.0
        r->p->sample.seed = d == -1 ? random_seed() : (uint64_t)(int64_t)d;
        return true;
    }
    if (json_kind_of(r->v) != JSON_INT)
        return api_refuse(r->x, r->f->name, "seed is %s and must be an integer",
                          text ? "a fraction" : json_kind_name(r->v));
    if (!text) {
        api_fail(r->x, 503, NULL, "out of memory for the body");
        return false;
    }
    errno = 0;
    uint64_t seed = text[0] == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    if (errno || *end)
        return api_refuse(r->x, r->f->name, "seed is beyond 64 bits");
    r->p->sample.seed = text[0] == '-' && seed == UINT64_MAX ? random_seed() : seed;
    return true;
}

static bool add_stop(const struct reading *r, const struct json *v) {
    struct err e = {0};
    size_t n;
    const char *s = json_str(v, &n);
    if (!s)
        return api_refuse(r->x, r->f->name, "%s holds %s and must hold strings", r->f->name,
                          json_kind_name(v));
    if (n == 0) // stops nothing
        return true;
    int rc = stop_set_add(&r->p->stops, s, n, &e);
    if (rc == ERR_LIMIT)
        return api_refuse(r->x, r->f->name, "%s: %s", r->f->name, e.text);
    return rc == 0 || api_no_memory(r->x);
}

bool field_read_stop(const struct reading *r) {
    if (json_kind_of(r->v) == JSON_STRING)
        return add_stop(r, r->v);
    if (json_kind_of(r->v) != JSON_ARRAY)
        return api_refuse_kind(r->x, r->f->name, "", r->v, "a string or an array of strings");
    for (size_t i = 0; i < json_len(r->v); i++)
        if (!add_stop(r, json_at(r->v, i)))
            return false;
    return true;
}

bool field_read_n(const struct reading *r) {
    r->p->n = (int64_t)json_num(r->v, 1);
    if (r->p->n > r->l->slots)
        return api_refuse(r->x, r->f->name, "n is %lld and the server has %d slots: ask for fewer",
                          (long long)r->p->n, r->l->slots);
    return true;
}

bool field_read_best_of(const struct reading *r) {
    int64_t best = (int64_t)json_num(r->v, 1);
    return best == r->p->n ||
           api_refuse(r->x, r->f->name,
                      "best_of is %lld and n is %lld: choosing among more answers "
                      "than are sent is not supported",
                      (long long)best, (long long)r->p->n);
}

bool field_read_suffix(const struct reading *r) {
    size_t n;
    json_str(r->v, &n);
    return n == 0 || api_refuse(r->x, r->f->name, "suffix is not supported: leave it out");
}

// Whether a declaration has a name; place: where it stands.
static bool check_name(const struct reading *r, const struct json *declaration, const char *place) {
    const struct json *name = json_get(declaration, "name");
    size_t n = 0;
    if (json_str(name, &n) && n > 0)
        return true;
    const char *what = !name ? "missing" : json_str(name, NULL) ? "empty" : json_kind_name(name);
    return api_refuse(r->x, r->f->name, "%s.name is %s and must be the name of the tool", place,
                      what);
}

// A group of tools, each with a name of its own.
static bool check_group(const struct reading *r, const struct json *group, const char *place) {
    const struct json *list = json_get(group, "tools");
    char inner[96];
    if (!check_name(r, group, place))
        return false;
    if (json_kind_of(list) != JSON_ARRAY)
        return api_refuse(r->x, r->f->name, "%s.tools is %s and must be an array", place,
                          list ? json_kind_name(list) : "missing");
    for (size_t i = 0; i < json_len(list); i++) {
        snprintf(inner, sizeof inner, "%s.tools[%zu]", place, i);
        if (!check_name(r, json_at(list, i), inner))
            return false;
    }
    return true;
}

// A function or a custom tool needs a name, next to its type or in the object of that name: without
// one the model would never see it. Tools of Messages have their own check.
static bool check_tool(const struct reading *r, const struct json *t, size_t i) {
    const struct json *type = json_get(t, "type");
    const char *kind = json_str(type, NULL);
    const bool chat = r->f->endpoints & ENDPOINT_MESSAGES;
    char place[48];
    snprintf(place, sizeof place, "tools[%zu]", i);
    if (json_kind_of(t) != JSON_OBJECT)
        return api_refuse(r->x, r->f->name, "%s is %s and must be an object", place,
                          json_kind_name(t));
    if (r->f->endpoints & (ENDPOINT_ANTHROPIC | ENDPOINT_COUNT))
        return true;
    if (!kind && (type || !chat)) // without one it is a function in a chat
        return api_refuse(r->x, r->f->name, "%s.type is %s and must be a string", place,
                          type ? json_kind_name(type) : "missing");
    if (kind && !strcmp(kind, "namespace") && !chat)
        return check_group(r, t, place);
    if (kind && strcmp(kind, "function") != 0 && strcmp(kind, "custom") != 0)
        return true; // a provider's own
    const char *inner = kind ? kind : "function";
    const struct json *body = json_get(t, inner);
    if (body && json_kind_of(body) != JSON_OBJECT)
        return api_refuse(r->x, r->f->name, "%s.%s is %s and must be an object", place, inner,
                          json_kind_name(body));
    if (body || chat)
        snprintf(place, sizeof place, "tools[%zu].%s", i, inner);
    const struct json *schema = json_get(body ? body : t, "parameters");
    if (schema && (body || chat) && json_kind_of(schema) != JSON_OBJECT &&
        json_kind_of(schema) != JSON_NULL)
        return api_refuse(r->x, r->f->name, "%s.parameters is %s and must be an object", place,
                          json_kind_name(schema));
    return check_name(r, body ? body : t, place);
}

bool field_read_tools(const struct reading *r) {
    if (json_len(r->v) > PARAMS_MAX_TOOLS)
        return api_refuse(r->x, r->f->name, "tools has %zu elements and may have %d",
                          json_len(r->v), PARAMS_MAX_TOOLS);
    for (size_t i = 0; i < json_len(r->v); i++)
        if (!check_tool(r, json_at(r->v, i), i))
            return false;
    r->p->tools = r->v;
    return true;
}

bool field_read_tool_choice(const struct reading *r) {
    static const char *const words[] = {"none", "auto", "required"};
    const char *word = json_str(r->v, NULL);
    r->p->tool_choice = r->v;
    if (json_kind_of(r->v) == JSON_OBJECT)
        return true;
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i]))
            return true;
    return api_refuse(r->x, r->f->name,
                      "tool_choice is %.40s and must be none, auto, required, or an object that "
                      "names a tool",
                      word ? word : json_kind_name(r->v));
}

bool field_read_parallel(const struct reading *r) {
    r->p->parallel = r->v;
    return true;
}

bool field_read_functions(const struct reading *r) {
    if (json_len(r->v) > PARAMS_MAX_TOOLS)
        return api_refuse(r->x, r->f->name, "functions has %zu elements and may have %d",
                          json_len(r->v), PARAMS_MAX_TOOLS);
    if (json_len(r->v) > 0 && json_len(r->p->tools) > 0)
        return api_refuse(r->x, r->f->name,
                          "functions is the older form of tools: declare all of them in one");
    for (size_t i = 0; i < json_len(r->v); i++)
        if (!json_str(json_get(json_at(r->v, i), "name"), NULL))
            return api_refuse(r->x, r->f->name, "functions[%zu].name is missing", i);
    r->p->functions = json_len(r->v) > 0 ? r->v : NULL;
    return true;
}

// In the table after functions.
bool field_read_function_call(const struct reading *r) {
    const char *word = json_str(r->v, NULL);
    r->p->function_call = r->v;
    if (json_kind_of(r->v) == JSON_OBJECT && !r->p->functions)
        return api_refuse(r->x, r->f->name,
                          "function_call names a function, and functions has none");
    if (word ? !strcmp(word, "none") || !strcmp(word, "auto")
             : json_str(json_get(r->v, "name"), NULL) != NULL)
        return true;
    return api_refuse(r->x, r->f->name,
                      "function_call is %.40s and must be none, auto, or {\"name\": ...}",
                      word ? word : json_kind_name(r->v));
}

bool field_read_modalities(const struct reading *r) {
    for (size_t i = 0; i < json_len(r->v); i++) {
        const char *s = json_str(json_at(r->v, i), NULL);
        if (!s || strcmp(s, "text") != 0)
            return api_refuse(r->x, r->f->name,
                              "modalities requests %.40s, and this model writes text only",
                              s ? s : json_kind_name(json_at(r->v, i)));
    }
    return true;
}

bool field_read_generation_prompt(const struct reading *r) {
    r->p->open_reply = json_bool(r->v, true) ? 1 : -1;
    return true;
}

// In the table after add_generation_prompt.
bool field_read_continue_final(const struct reading *r) {
    r->p->continue_last = json_bool(r->v, false) ? 1 : -1;
    if (r->p->continue_last > 0 && r->p->open_reply > 0)
        return api_refuse(r->x, r->f->name,
                          "continue_final_message and add_generation_prompt cannot both be true: "
                          "the last message goes on, or a new one begins");
    return true;
}

// Words that are unknown here are left to the template.
static bool read_effort(const struct reading *r, const struct json *v) {
    size_t n;
    const char *s = json_str(v, &n);
    if (n == 0)
        return true;
    if (n >= sizeof r->p->effort || memchr(s, 0, n))
        return api_refuse(r->x, r->f->name,
                          "reasoning_effort must be one word such as none, low, medium "
                          "or high");
    memcpy(r->p->effort, s, n + 1);
    r->p->thinking = strcmp(s, "none") != 0;
    return true;
}

bool field_read_effort(const struct reading *r) {
    return read_effort(r, r->v);
}

bool field_read_session(const struct reading *r) {
    size_t n;
    const char *s = json_str(r->v, &n);
    if (n > PARAMS_MAX_SESSION)
        return api_refuse(r->x, r->f->name, "session_id has %zu bytes and may have %d at most", n,
                          PARAMS_MAX_SESSION);
    r->p->session = n ? adapt_id(s, n) : 0;
    return true;
}

static bool read_budget(const struct reading *r, const struct json *v) {
    if (!v)
        return true;
    if (json_kind_of(v) != JSON_INT || json_int(v, -1) < 0)
        return api_refuse(r->x, r->f->name, "%s: the tokens must be an integer, 0 or more",
                          r->f->name);
    r->p->thinking_tokens = json_int(v, -1);
    return true;
}

bool field_read_budget(const struct reading *r) {
    return read_budget(r, r->v);
}

bool field_read_thinking(const struct reading *r) {
    const struct json *type = json_get(r->v, "type");
    const char *s = json_str(type, NULL);
    if (!api_may_be(r->x, "thinking.type", type, JSON_STRING, "a string"))
        return false;
    if (s && (!strcmp(s, "enabled") || !strcmp(s, "disabled")))
        r->p->thinking = s[0] == 'e'; // others, such as adaptive, leave it to the model
    return read_budget(r, json_get(r->v, "budget_tokens"));
}

bool field_read_enable_thinking(const struct reading *r) {
    r->p->thinking = json_bool(r->v, true);
    return true;
}

bool field_read_parse_special(const struct reading *r) {
    r->p->no_special = !json_bool(r->v, true);
    return true;
}

bool field_read_speculate(const struct reading *r) {
    static const enum speculate ways[] = {SPECULATE_AUTO, SPECULATE_TREE, SPECULATE_CHAIN,
                                          SPECULATE_LOOKUP, SPECULATE_OFF};
    const char *s = json_str(r->v, NULL);
    size_t i = 0;
    while (i < sizeof ways / sizeof ways[0] && strcmp(s, speculate_name(ways[i])) != 0)
        i++;
    if (i == sizeof ways / sizeof ways[0])
        return api_refuse(r->x, r->f->name,
                          "speculate is '%.40s' and must be auto, tree, chain, lookup or off", s);
    r->p->how = ways[i] == SPECULATE_AUTO ? speculate_auto(r->l->has_draft) : ways[i];
    if ((r->p->how == SPECULATE_TREE || r->p->how == SPECULATE_CHAIN) && !r->l->has_draft)
        return api_refuse(r->x, r->f->name,
                          "speculate is %s and no draft model is loaded: use lookup or "
                          "off",
                          s);
    return true;
}

bool field_read_system(const struct reading *r) {
    enum json_kind k = json_kind_of(r->v);
    return k == JSON_STRING || k == JSON_ARRAY ||
           api_refuse_kind(r->x, r->f->name, "", r->v, "a string or an array of text blocks");
}

// updates is a beta's word: notes between calls in clear, reasoning omitted. Models here write no
// such notes apart from their reasoning.
static bool read_display(const struct reading *r) {
    static const char *const known[] = {"summarized", "omitted", "updates"};
    const struct json *v = json_get(r->v, "display");
    const char *s = json_str(v, NULL);
    if (json_kind_of(v) == JSON_NULL)
        return true;
    if (r->p->thinking == 0)
        return api_refuse(r->x, "thinking.display",
                          "thinking.display says how thinking is shown, and thinking.type is "
                          "disabled: leave display out");
    for (size_t i = 0; s && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(s, known[i])) {
            r->p->omits_thinking = i > 0;
            return true;
        }
    return api_refuse(r->x, "thinking.display",
                      "thinking.display is %s%.40s%s and must be summarized or omitted",
                      s ? "'" : "", s ? s : json_kind_name(v), s ? "'" : "");
}

// Kinds that this server has never heard of leave it to the model whether it thinks.
bool field_read_anthropic_thinking(const struct reading *r) {
    const char *type = json_str(json_get(r->v, "type"), NULL);
    if (!type)
        return api_refuse_kind(r->x, r->f->name, ".type", json_get(r->v, "type"), "a string");
    r->p->thinking = strcmp(type, "disabled") != 0;
    return read_display(r) && read_budget(r, json_get(r->v, "budget_tokens"));
}

// The form of the reply that an object of options has, or none.
static bool read_inner_format(const struct reading *r, const char *name,
                              const struct json *format) {
    return api_may_be(r->x, name, format, JSON_OBJECT, "an object") &&
           (!format || field_read_format(r->p, name, format, r->x));
}

bool field_read_output_config(const struct reading *r) {
    const struct json *effort = json_get(r->v, "effort"), *format = json_get(r->v, "format");
    size_t n;
    const char *s = json_str(effort, &n);
    if (effort && (!s || n >= sizeof r->p->effort))
        return api_refuse(r->x, "output_config.effort",
                          "output_config.effort must be low, medium, high, xhigh or max");
    if (s)
        memcpy(r->p->effort, s, n + 1);
    return read_inner_format(r, "output_config.format", format);
}

bool field_read_anthropic_choice(const struct reading *r) {
    static const char *const known[] = {"auto", "any", "tool", "none"};
    const char *type = json_str(json_get(r->v, "type"), NULL);
    const struct json *one = json_get(r->v, "disable_parallel_tool_use"),
                      *name = json_get(r->v, "name");
    if (one && json_kind_of(one) != JSON_BOOL && json_kind_of(one) != JSON_NULL)
        return api_refuse_kind(r->x, r->f->name, ".disable_parallel_tool_use", one, "a boolean");
    if (name && !json_str(name, NULL) && json_kind_of(name) != JSON_NULL)
        return api_refuse_kind(r->x, r->f->name, ".name", name, "a string");
    for (size_t i = 0; type && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(type, known[i]))
            return true;
    return api_refuse(r->x, r->f->name, "tool_choice.type must be auto, any, tool or none");
}

// The SDK's runner of tools requests a thread first and goes on without one at this very word.
// Passed over, its next request would have no more than the new turn.
bool field_read_thread(const struct reading *r) {
    api_refuse(r->x, r->f->name,
               "thread is not supported: no conversations are kept here; send all messages "
               "without it");
    r->x->details = "thread_unsupported_request";
    return false;
}

// Clients that request it wait for a block of its own, and would keep an answer in its place.
bool field_read_compaction(const struct reading *r) {
    return api_refuse(r->x, r->f->name,
                      "compaction is not supported: conversations are not compacted here; ask for "
                      "a summary as an answer, and go on from that");
}

bool field_read_input(const struct reading *r) {
    enum json_kind k = json_kind_of(r->v);
    return k == JSON_STRING || k == JSON_ARRAY ||
           api_refuse_kind(r->x, r->f->name, "", r->v, "a string or an array of items");
}

// Its kind is all that is looked at here; the interface reads it from the body.
bool field_read_noted(const struct reading *r) {
    (void)r;
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
                           json_kind_name(v));
    if (utf8_count(s, len) > TEXT_LONG)
        return !api_refuse(x, "metadata", "a value of metadata has %zu characters and may have %d",
                           utf8_count(s, len), TEXT_LONG);
    return 0;
}

bool field_read_metadata(const struct reading *r) {
    if (json_len(r->v) > PAIRS)
        return api_refuse(r->x, r->f->name, "metadata has %zu pairs and may have %d",
                          json_len(r->v), PAIRS);
    return json_each(r->v, check_pair, r->x) == 0;
}

bool field_read_include(const struct reading *r) {
    char place[32];
    for (size_t i = 0; i < json_len(r->v); i++) {
        const char *what = json_str(json_at(r->v, i), NULL);
        bool chances = what && !strcmp(what, "message.output_text.logprobs");
        r->p->logprobs |= chances;
        if (chances || (what && !strcmp(what, "reasoning.encrypted_content")))
            continue;
        snprintf(place, sizeof place, "include[%zu]", i);
        params_ignore(r->p, place);
    }
    return true;
}

bool field_read_reasoning(const struct reading *r) {
    static const char *const words[] = {"reasoning.summary", "reasoning.generate_summary"};
    const struct json *effort = json_get(r->v, "effort");
    if (!api_may_be(r->x, "reasoning.effort", effort, JSON_STRING, "a string"))
        return false;
    for (int i = 0; i < 2; i++)
        if (!api_may_be(r->x, words[i], json_get(r->v, strchr(words[i], '.') + 1), JSON_STRING,
                        "a string"))
            return false;
    return !effort || read_effort(r, effort);
}

bool field_read_text_options(const struct reading *r) {
    return read_inner_format(r, "text.format", json_get(r->v, "format"));
}

// Its row stands after those of max_tokens.
bool field_read_cache_options(const struct reading *r) {
    const struct json *prewarm = json_get(r->v, "prewarm");
    if (!api_may_be(r->x, "prompt_cache_options.prewarm", prewarm, JSON_BOOL, "true or false"))
        return false;
    r->p->prewarms = json_bool(prewarm, false);
    if (r->p->prewarms)
        r->p->max_tokens = 0;
    return true;
}

bool field_read_background(const struct reading *r) {
    return !json_bool(r->v, false) ||
           api_refuse(r->x, r->f->name,
                      "background is not supported: answers are made while the client "
                      "waits; leave it out, or ask for a stream");
}

bool field_read_unkept(const struct reading *r) {
    return api_refuse(r->x, r->f->name,
                      "%s is not supported: nothing of that kind is kept here; send what is meant "
                      "as input",
                      r->f->name);
}
