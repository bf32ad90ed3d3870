// SPDX-License-Identifier: Apache-2.0
// Request fields of the Responses interface; see readers.h.
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/request/names.h"
#include "serve/request/readers.h"

bool field_read_input(struct params *p, const struct field *f, const struct json *v,
                      const struct params_limits *l, struct api_error *x) {
    (void)p, (void)l;
    enum json_kind k = json_kind_of(v);
    return k == JSON_STRING || k == JSON_ARRAY ||
           api_refuse(x, f->name, "input is %s and must be a string or an array of items",
                      fields_kind_name(v));
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
                           fields_kind_name(v));
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
        field_names_ignore(p, place);
    }
    return true;
}

bool field_read_reasoning(struct params *p, const struct field *f, const struct json *v,
                          const struct params_limits *l, struct api_error *x) {
    static const char *const words[] = {"reasoning.summary", "reasoning.generate_summary"};
    const struct json *effort = json_get(v, "effort");
    if (json_kind_of(effort) != JSON_NULL && json_kind_of(effort) != JSON_STRING)
        return api_refuse(x, "reasoning.effort", "reasoning.effort is %s and must be a string",
                          fields_kind_name(effort));
    for (int i = 0; i < 2; i++) {
        const struct json *summary = json_get(v, strchr(words[i], '.') + 1);
        if (json_kind_of(summary) != JSON_NULL && json_kind_of(summary) != JSON_STRING)
            return api_refuse(x, words[i], "%s is %s and must be a string", words[i],
                              fields_kind_name(summary));
    }
    return !effort || field_read_effort(p, f, effort, l, x);
}

bool field_read_text_options(struct params *p, const struct field *f, const struct json *v,
                             const struct params_limits *l, struct api_error *x) {
    const struct json *format = json_get(v, "format");
    if (json_kind_of(format) != JSON_NULL && json_kind_of(format) != JSON_OBJECT)
        return api_refuse(x, "text.format", "text.format is %s and must be an object",
                          fields_kind_name(format));
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
                          fields_kind_name(prewarm));
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
