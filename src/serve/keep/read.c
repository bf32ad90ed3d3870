// SPDX-License-Identifier: Apache-2.0
// Kept requests read back; see read.h. Members that are missing have the value that says nothing,
// unless an answer without them could not be judged.
#include "serve/keep/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "spec/constraint/thinking_limit.h"

void keep_reader_fini(struct keep_reader *r) {
    tool_constraints_destroy(r->tools);
    r->tools = NULL;
}

int kept_answer_open(struct kept_answer *k, const char *line, size_t n, struct err *e) {
    const struct json_rules rules = {.unique_keys = true};
    size_t len;
    *k = (struct kept_answer){0};
    int rc = json_parse_with(&k->line, line, n, &rules, e);
    if (rc == ERR_FORMAT)
        return err_prefix(e, "it is cut off, or no line of --keep-requests");
    if (rc)
        return rc;
    int64_t version = json_int(json_get(k->line, KEEP_MARK), 0);
    k->id = json_str(json_get(k->line, "id"), &len);
    if (version > KEEP_VERSION)
        return err_set(e, ERR_UNSUPPORTED,
                       "it is of version %lld, and this program reads version %d: use that which "
                       "wrote it, or a newer one",
                       (long long)version, KEEP_VERSION);
    if (version < 1 || !k->id)
        return err_set(e, ERR_FORMAT, "it is no line of --keep-requests");
    k->choice = (int)json_int(json_get(k->line, "choice"), 0);
    return keep_setup_read(&k->setup, k->line, e);
}

// Members that may be missing or null, each of one kind: what is of another kind says something
// that would not be compared.
static const struct {
    const char *of, *key; // of: NULL: of the line itself
    enum json_kind kind;  // JSON_DOUBLE: any number
} members[] = {{NULL, "choice", JSON_INT},
               {NULL, "max_tokens", JSON_INT},
               {NULL, "min_tokens", JSON_INT},
               {NULL, "ignore_eos", JSON_BOOL},
               {NULL, "stop", JSON_ARRAY},
               {NULL, "tools", JSON_OBJECT},
               {NULL, "tools_held", JSON_BOOL},
               {NULL, "format", JSON_OBJECT},
               {NULL, "thinking", JSON_OBJECT},
               {"setup", "bytes", JSON_INT},
               {"setup", "gpu", JSON_BOOL},
               {"setup", "sparse_prefill", JSON_DOUBLE},
               {"setup", "fa_window", JSON_INT},
               {"setup", "kv_pool", JSON_INT},
               {"setup", "cpu_experts", JSON_INT},
               {"sampling", "temperature", JSON_DOUBLE},
               {"sampling", "top_k", JSON_INT},
               {"sampling", "top_p", JSON_DOUBLE},
               {"sampling", "min_p", JSON_DOUBLE},
               {"sampling", "repeat", JSON_DOUBLE},
               {"sampling", "frequency", JSON_DOUBLE},
               {"sampling", "presence", JSON_DOUBLE},
               {"sampling", "window", JSON_INT},
               {"sampling", "seed", JSON_INT},
               {"sampling", "choice", JSON_INT},
               {"sampling", "bias", JSON_ARRAY},
               {"reply", "inside", JSON_BOOL},
               {"reply", "constrained", JSON_BOOL},
               {"reply", "only", JSON_BOOL},
               {"reply", "one_call", JSON_BOOL},
               {"reply", "keeps_stop", JSON_BOOL},
               {"tools", "tools", JSON_ARRAY},
               {"tools", "required", JSON_BOOL},
               {"tools", "several", JSON_BOOL},
               {"tools", "none", JSON_BOOL},
               {"tools", "inside", JSON_BOOL},
               {"tools", "opening", JSON_STRING},
               {"tools", "format_strict", JSON_BOOL},
               {"format", "inside", JSON_BOOL},
               {"format", "one_of_as_any", JSON_BOOL},
               {"format", "opening", JSON_STRING},
               {"format", "closing", JSON_STRING},
               {"thinking", "inside", JSON_BOOL},
               {"thinking", "tokens", JSON_INT},
               {"answer", "logit_hash", JSON_STRING}};

static int check_kinds(const struct json *line, struct err *e) {
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *of = members[i].of;
        const struct json *v = json_get(of ? json_get(line, of) : line, members[i].key);
        enum json_kind kind = json_kind_of(v), wanted = members[i].kind;
        if (v && kind != wanted && !(wanted == JSON_DOUBLE && kind == JSON_INT))
            return err_set(e, ERR_FORMAT, "its %s%s%s is of the wrong kind", of ? of : "",
                           of ? "." : "", members[i].key);
    }
    return 0;
}

// Token ids, which the engine checks when it takes the request.
static int read_ids(const struct json *v, const char *what, int32_t **out, int64_t *n,
                    struct err *e) {
    *n = (int64_t)json_len(v);
    if (json_kind_of(v) != JSON_ARRAY)
        return err_set(e, ERR_FORMAT, "it has no list %s", what);
    *out = calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return err_set(e, ERR_MEMORY, "no memory for %lld token ids", (long long)*n);
    for (int64_t i = 0; i < *n; i++) {
        int64_t id = json_int(json_at(v, (size_t)i), -1);
        if (id < 0 || id > INT32_MAX)
            return err_set(e, ERR_FORMAT, "the list %s holds what is no token id", what);
        (*out)[i] = (int32_t)id;
    }
    return 0;
}

static int read_bias(struct kept_answer *k, const struct json *v, struct err *e) {
    size_t n = json_len(v);
    k->bias = calloc(n + 1, sizeof *k->bias);
    if (!k->bias)
        return err_set(e, ERR_MEMORY, "no memory for %zu biases", n);
    for (size_t i = 0; i < n; i++) {
        const struct json *pair = json_at(v, i);
        const struct json *by = json_at(pair, 1); // null: the token is forbidden
        int64_t id = json_int(json_at(pair, 0), -1);
        if (json_len(pair) != 2 || id < 0 || id > INT32_MAX || (by && isnan(json_num(by, NAN))))
            return err_set(e, ERR_FORMAT, "a bias of it is no token id with a number");
        k->bias[i].id = (int32_t)id;
        k->bias[i].bias = (float)json_num(by, -INFINITY);
    }
    k->r.sample.bias = k->bias;
    k->r.sample.n_bias = (int64_t)n;
    return 0;
}

static int read_sampling(struct kept_answer *k, struct err *e) {
    const struct json *v = json_get(k->line, "sampling");
    struct sample_params *s = &k->r.sample;
    if (json_kind_of(v) != JSON_OBJECT)
        return err_set(e, ERR_FORMAT, "it does not say how it was sampled");
    sample_params_init(s);
    s->temperature = json_num(json_get(v, "temperature"), s->temperature);
    s->top_k = json_int(json_get(v, "top_k"), s->top_k);
    s->top_p = json_num(json_get(v, "top_p"), s->top_p);
    s->min_p = json_num(json_get(v, "min_p"), s->min_p);
    s->repeat = json_num(json_get(v, "repeat"), s->repeat);
    s->frequency = json_num(json_get(v, "frequency"), s->frequency);
    s->presence = json_num(json_get(v, "presence"), s->presence);
    s->window = json_int(json_get(v, "window"), s->window);
    s->seed = (uint64_t)json_int(json_get(v, "seed"), 0);
    s->choice = (uint64_t)json_int(json_get(v, "choice"), 0);
    return read_bias(k, json_get(v, "bias"), e);
}

static int read_answer(struct kept_answer *k, struct err *e) {
    const struct json *v = json_get(k->line, "answer");
    size_t n;
    int rc = read_ids(json_get(v, "tokens"), "answer.tokens", &k->ids, &k->n, e);
    if (rc)
        return rc;
    const char *end = json_str(json_get(v, "end"), &n);
    if (!end || (strcmp(end, "cut") != 0 && strcmp(end, "length") != 0 && strcmp(end, "stop") != 0))
        return err_set(e, ERR_FORMAT, "it does not say how its answer ended");
    const char *hash = json_str(json_get(v, "logit_hash"), &n);
    if (hash && (n != 16 || strspn(hash, "0123456789abcdef") != n))
        return err_set(e, ERR_FORMAT, "its logit_hash is not of 16 hexadecimal digits");
    k->whole = strcmp(end, "cut") != 0;
    k->length = !strcmp(end, "length");
    k->has_hash = hash != NULL;
    k->hash = hash ? strtoull(hash, NULL, 16) : 0;
    if (!k->whole && k->n == 0)
        return err_set(e, ERR_FORMAT, "it was cut off before its first token");
    return 0;
}

static int read_request(struct kept_answer *k, struct err *e) {
    struct request *r = &k->r;
    int64_t n_stops = 0;
    request_init(r);
    r->how = SPECULATE_OFF;
    r->logit_hash = true;
    int rc = check_kinds(k->line, e);
    if (!rc)
        rc = read_ids(json_get(k->line, "prompt"), "prompt", &k->prompt, &r->n_prompt, e);
    if (!rc)
        rc = read_ids(json_get(k->line, "stop_token_ids"), "stop_token_ids", &k->stop_ids, &n_stops,
                      e);
    if (!rc)
        rc = read_answer(k, e);
    if (!rc)
        rc = read_sampling(k, e);
    if (rc)
        return rc;
    if (n_stops > REQUEST_MAX_STOP_IDS)
        return err_set(e, ERR_FORMAT, "it has %lld stop tokens; at most %d are possible",
                       (long long)n_stops, REQUEST_MAX_STOP_IDS);
    int64_t max = json_int(json_get(k->line, "max_tokens"), 0);
    if (max < 0)
        return err_set(e, ERR_FORMAT, "its max_tokens is %lld", (long long)max);
    r->prompt = k->prompt;
    r->stop_ids = k->stop_ids;
    r->n_stop_ids = (int)n_stops;
    r->min_tokens = json_int(json_get(k->line, "min_tokens"), 0);
    r->ignore_eos = json_bool(json_get(k->line, "ignore_eos"), false);
    // The one more shows an answer that should have gone on.
    r->max_tokens = min_i64(max, k->n + k->whole);
    return 0;
}

static int add_stops(struct kept_answer *k, struct err *e) {
    const struct json *v = json_get(k->line, "stop");
    for (size_t i = 0; i < json_len(v); i++) {
        size_t n;
        const char *s = json_str(json_at(v, i), &n);
        if (!s || n == 0)
            return err_set(e, ERR_FORMAT, "a stop of it is no text");
        int rc = stop_set_add(&k->stops, s, n, e);
        if (rc)
            return rc;
    }
    return 0;
}

static bool ends_reply(void *arg, int32_t id) {
    struct kept_answer *k = arg;
    bool last = reply_text_push(&k->text, id);
    reply_deltas_clear(&k->text.deltas);
    return last;
}

static int read_families(const struct json *v, struct reply_rules *o, struct err *e) {
    size_t n;
    const char *calls = json_str(json_get(v, "calls"), &n);
    const char *reasoning = json_str(json_get(v, "reasoning"), &n);
    int f = 0;
    while (reasoning && f < REASONING_FAMILIES &&
           strcmp(reasoning, reasoning_name((enum reasoning_family)f)) != 0)
        f++;
    o->family = (enum reasoning_family)f;
    o->calls = calls ? tool_family_of_name(calls) : TOOLS_FAMILIES;
    if (!reasoning || f == REASONING_FAMILIES || o->calls == TOOLS_FAMILIES)
        return err_set(e, ERR_FORMAT, "it is of a family of models that is not known");
    return 0;
}

// Where text may end the reply, it is read again.
static int read_ends(struct kept_answer *k, const struct tokenizer *t, struct err *e) {
    const struct json *v = json_get(k->line, "reply");
    struct reply_rules *o = &k->rules;
    int rc = read_families(v, o, e);
    if (!rc)
        rc = add_stops(k, e);
    o->inside = json_bool(json_get(v, "inside"), false);
    o->stops = &k->stops;
    o->tools = &k->tools;
    o->constrained = json_bool(json_get(v, "constrained"), false);
    o->only = json_bool(json_get(v, "only"), false);
    o->one_call = json_bool(json_get(v, "one_call"), false);
    o->stop_ids = k->stop_ids;
    o->n_stop_ids = k->r.n_stop_ids;
    o->keeps_stop = json_bool(json_get(v, "keeps_stop"), false);
    o->min_tokens = k->r.min_tokens;
    if (rc || (k->stops.n == 0 && !o->one_call))
        return rc;
    rc = reply_text_init(&k->text, t, o, e);
    k->r.stop = ends_reply;
    k->r.stop_arg = k;
    return rc;
}

// The tools with their grammar, for models that write calls in one way after those in another.
static int have_tools(struct keep_reader *r, const struct reply_rules *o, struct err *e) {
    if (r->tools && r->calls == o->calls && r->family == o->family)
        return 0;
    const struct tool_constraints_of of = {session_tokenizer(r->s), o->calls, o->family,
                                           model_params_of(session_model(r->s))->vocab};
    keep_reader_fini(r);
    r->calls = o->calls;
    r->family = o->family;
    return tool_constraints_create(&r->tools, &of, e);
}

static int add_tool(struct kept_answer *k, const struct json *v, struct tool_grammar_tool *out,
                    struct err *e) {
    out->name = json_str(json_get(v, "name"), &out->n);
    out->schema = json_get(v, "schema");
    out->freeform = json_bool(json_get(v, "freeform"), false);
    out->strict = json_bool(json_get(v, "strict"), false);
    if (!out->name)
        return err_set(e, ERR_FORMAT, "a tool of it has no name");
    return tool_set_add(&k->tools, out->name, out->n, out->schema, out->freeform, e);
}

// Called before read_ends makes a reader of replies, which borrows the set.
static int read_tools(struct kept_answer *k, struct tool_rules *w, struct err *e) {
    const struct json *v = json_get(k->line, "tools"), *list = json_get(v, "tools");
    size_t n;
    int rc = 0;
    if (json_len(list) > PARAMS_MAX_TOOLS)
        return err_set(e, ERR_FORMAT, "it has %zu tools; at most %d are possible", json_len(list),
                       PARAMS_MAX_TOOLS);
    *w = (struct tool_rules){.n = (int)json_len(list),
                             .required = json_bool(json_get(v, "required"), false),
                             .several = json_bool(json_get(v, "several"), false),
                             .none = json_bool(json_get(v, "none"), false),
                             .inside = json_bool(json_get(v, "inside"), false),
                             .opening = json_str(json_get(v, "opening"), &n),
                             .format = json_get(v, "format"),
                             .format_strict = json_bool(json_get(v, "format_strict"), false)};
    w->tools = calloc((size_t)w->n + 1, sizeof *w->tools);
    if (!w->tools)
        return err_set(e, ERR_MEMORY, "no memory for %d tools", w->n);
    for (int i = 0; !rc && i < w->n; i++)
        rc = add_tool(k, json_at(list, (size_t)i), &w->tools[i], e);
    return rc;
}

static int read_format(struct kept_answer *k, const struct session *s, struct err *e) {
    const struct json *v = json_get(k->line, "format");
    struct structured w = {.inside = json_bool(json_get(v, "inside"), false),
                           .one_of_as_any = json_bool(json_get(v, "one_of_as_any"), false)};
    size_t n;
    const char *form = json_str(json_get(v, "form"), &n);
    int f = 0;
    if (!v)
        return 0;
    while (form && f < STRUCTURED_FORMS &&
           strcmp(form, structured_form_name((enum structured_form)f)) != 0)
        f++;
    w.form = (enum structured_form)f;
    w.text = json_str(json_get(v, "text"), &w.n);
    w.opening = json_str(json_get(v, "opening"), &n);
    w.closing = json_str(json_get(v, "closing"), &n);
    if (!form || f == STRUCTURED_FORMS || !w.text)
        return err_set(e, ERR_FORMAT, "the form of its reply is not known");
    constraint_drop(k->r.constraint); // as constrain_format does
    k->r.constraint = NULL;
    return structured_make(session_structured(s), &w, &k->r.constraint, e);
}

static int read_thinking(struct kept_answer *k, const struct session *s, struct err *e) {
    const struct json *v = json_get(k->line, "thinking");
    struct thinking_limit o = {.t = session_tokenizer(s),
                               .family = k->rules.family,
                               .inside = json_bool(json_get(v, "inside"), false),
                               .tokens = json_int(json_get(v, "tokens"), 0)};
    struct constraint *limited = NULL;
    if (!v)
        return 0;
    o.closing = json_str(json_get(v, "closing"), &o.n_closing);
    if (!o.closing || !o.t || o.tokens < 0)
        return err_set(e, ERR_FORMAT, "the end of its reasoning is not known");
    int rc = thinking_limit_create(&limited, &o, k->r.constraint, e);
    if (rc)
        return rc;
    constraint_drop(k->r.constraint);
    k->r.constraint = limited;
    return 0;
}

int kept_answer_read(struct kept_answer *k, struct keep_reader *r, struct err *e) {
    struct tool_rules w = {0};
    bool held = json_bool(json_get(k->line, "tools_held"), false);
    int rc = read_request(k, e);
    if (!rc)
        rc = read_tools(k, &w, e);
    if (!rc)
        rc = read_ends(k, session_tokenizer(r->s), e);
    if (!rc && held)
        rc = have_tools(r, &k->rules, e);
    if (!rc && held)
        rc = tool_constraint_make(r->tools, &w, &k->r.constraint, e);
    if (!rc)
        rc = read_format(k, r->s, e);
    if (!rc)
        rc = read_thinking(k, r->s, e);
    free(w.tools);
    return rc;
}

void kept_answer_fini(struct kept_answer *k) {
    constraint_drop(k->r.constraint);
    reply_text_fini(&k->text);
    tool_set_fini(&k->tools);
    stop_set_fini(&k->stops);
    free(k->prompt);
    free(k->stop_ids);
    free(k->ids);
    free(k->bias);
    json_free(k->line);
    *k = (struct kept_answer){0};
}
