// SPDX-License-Identifier: Apache-2.0
// Parameters of a request out of its body; see params.h.
#include "serve/request/params.h"

#include <stdlib.h>
#include <string.h>

#include "serve/random_id.h"
#include "serve/request/fields.h"
#include "serve/request/names.h"

bool params_parse(const char *text, size_t n, struct json **out, struct api_error *x) {
    static const struct json_rules rules = {.depth = 256,
                                            .values = 1 << 20,
                                            .objects = 1 << 17,
                                            .unique_keys = true,
                                            .big_integers = true};
    struct err e = {0};
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) { // a byte order mark, RFC 8259, section 8.1
        text += 3;
        n -= 3;
    }
    if (!json_parse_with(out, text, n, &rules, &e))
        return true;
    api_fail(x, e.code == ERR_MEMORY ? 503 : 400, NULL, "the body: %s", e.text);
    return false;
}

bool params_take(struct str *text, struct http_hold *hold, struct json **out, struct api_error *x) {
    enum { FORMS = 4 }; // the document, words for the template, text of the prompt, its tokens
    http_hold_set(hold, 2 * text->len);
    bool ok = params_parse(text->data ? text->data : "", text->len, out, x);
    str_fini(text);
    http_hold_set(hold, ok ? FORMS * json_memory(*out) : 0);
    return ok;
}

// What no single field can tell.
static bool check_together(struct params *p, const struct json *body, enum endpoint endpoint,
                           struct api_error *x) {
    if ((endpoint & (ENDPOINT_MESSAGES | ENDPOINT_ANTHROPIC | ENDPOINT_COUNT)) &&
        json_len(p->messages) == 0)
        return api_refuse(x, "messages", "messages is %s: at least one message is needed",
                          p->messages ? "empty" : "missing");
    if (endpoint == ENDPOINT_COMPLETIONS && !p->prompt)
        return api_refuse(x, "prompt", "prompt is missing");
    if (endpoint == ENDPOINT_TOKENIZE && !p->text)
        return api_refuse(x, "content", "content is missing");
    if (endpoint == ENDPOINT_DETOKENIZE && !p->tokens)
        return api_refuse(x, "tokens", "tokens is missing");
    if (endpoint == ENDPOINT_CHAT && p->top_logprobs > 0 && !p->logprobs)
        return api_refuse(x, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (p->min_tokens > 0 && p->max_tokens >= 0 && p->min_tokens > p->max_tokens)
        return api_refuse(x, "min_tokens",
                          "min_tokens is %lld and max_tokens %lld: a reply cannot have both",
                          (long long)p->min_tokens, (long long)p->max_tokens);
    if (!p->stream && json_kind_of(json_get(body, "stream_options")) != JSON_NULL)
        p->include_usage = false; // without a stream the counts are there in any case
    return true;
}

bool params_read(struct params *p, const struct json *body, enum endpoint endpoint,
                 const struct params_limits *l, struct api_error *x) {
    *p = (struct params){.sample = l->sample,
                         .max_tokens = -1,
                         .n = 1,
                         .thinking = -1,
                         .thinking_tokens = -1,
                         .how = l->how};
    p->top_logprobs = endpoint == ENDPOINT_COMPLETIONS ? -1 : 0;
    p->sample.seed = random_seed();
    if (endpoint == ENDPOINT_COMPLETIONS)
        p->max_tokens = 16; // as the interface defines it
    if (json_kind_of(body) != JSON_OBJECT)
        return api_refuse(x, NULL, "the body is %s and must be a JSON object",
                          fields_kind_name(body));
    if (!fields_read(p, fields, fields_count, body, endpoint, l, x) ||
        !check_together(p, body, endpoint, x) || !field_names_check(p, body, endpoint, x))
        return false;
    if (endpoint == ENDPOINT_COMPLETIONS)
        p->logprobs = p->top_logprobs >= 0;
    else if (!p->logprobs)
        p->top_logprobs = -1;
    return true;
}

void params_fini(struct params *p) {
    stop_set_fini(&p->stops);
    free(p->bias);
    free(p->stop_ids);
    str_fini(&p->ignored);
    free(p->model);
    str_fini(&p->form_text);
    *p = (struct params){0};
}
