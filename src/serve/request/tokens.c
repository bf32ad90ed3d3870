// SPDX-License-Identifier: Apache-2.0
// Request fields that name tokens: see fields.h.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "serve/request/fields.h"
#include "text/tokenizer/tokenizer.h"

enum {
    MAX_TEXT = 4096,   // bytes of a text whose tokens are meant
    MAX_TOKENS = 2048, // of all entries
};

struct bias_reading {
    struct params *p;
    const struct params_limits *l;
    struct api_error *x;
    int64_t cap; // of p->bias
};

// A decimal id below the vocabulary's size, or -1.
static int32_t parse_token_id(const char *s, size_t n, int vocab) {
    int64_t id = 0;
    if (n == 0 || n > 9 || (s[0] == '0' && n > 1)) // one spelling a token
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        id = id * 10 + (s[i] - '0');
    }
    return id < vocab ? (int32_t)id : -1;
}

static bool add_bias(struct bias_reading *r, int32_t id, float bias) {
    struct params *p = r->p;
    if (p->n_bias == MAX_TOKENS)
        return api_refuse(r->x, "logit_bias", "logit_bias names more than %d tokens", MAX_TOKENS);
    if (vec_reserve(&p->bias, &r->cap, p->n_bias + 1, sizeof *p->bias, NULL))
        return api_no_memory(r->x);
    p->bias[p->n_bias++] = (struct logit_bias){.id = id, .bias = bias};
    return true;
}

// A number, or false, which forbids. name: of the token, for sentences.
static bool read_bias_value(struct bias_reading *r, const char *name, const struct json *v,
                            float *out) {
    enum json_kind k = json_kind_of(v);
    double b = json_num(v, 0);
    *out = -INFINITY;
    if (k == JSON_BOOL && !json_bool(v, true))
        return true;
    if (k != JSON_INT && k != JSON_DOUBLE)
        return api_refuse(r->x, "logit_bias",
                          "logit_bias of token %.40s is %s and must be a number, or false", name,
                          k == JSON_BOOL ? "true" : json_kind_name(v));
    if (!(b >= -100 && b <= 100))
        return api_refuse(r->x, "logit_bias",
                          "logit_bias of token %.40s is %.17g and must be within -100 to 100", name,
                          b);
    *out = (float)b;
    return true;
}

static int read_bias_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct bias_reading *r = arg;
    int32_t id = parse_token_id(key, n, r->l->vocab);
    float bias;
    if (id < 0)
        return !api_refuse(r->x, "logit_bias", "logit_bias names '%.*s', which is no token id",
                           (int)min_size(n, 40), key);
    return !(read_bias_value(r, key, v, &bias) && add_bias(r, id, bias));
}

// Answers show U+FFFD in place of a token that is no whole character: who names it means each token
// that is shown so.
static bool add_shown_bias(struct bias_reading *r, const char *s, size_t n, float bias) {
    const struct tokenizer *t = r->l->tokenizer;
    struct str bytes = {0}, shown = {0};
    bool ok = true;
    for (int32_t id = 0; ok && id < r->l->vocab && id < tokenizer_size(t); id++) {
        str_clear(&bytes);
        str_clear(&shown);
        tokenizer_decode(t, id, false, &bytes);
        if (bytes.len == 0)
            continue;
        utf8_sanitise(&shown, bytes.data, bytes.len);
        ok = !bytes.failed && !shown.failed;
        if (!ok)
            (void)api_no_memory(r->x);
        else if (shown.len == n && memcmp(shown.data, s, n) == 0 &&
                 !utf8_valid(bytes.data, bytes.len))
            ok = add_bias(r, id, bias);
    }
    str_fini(&bytes);
    str_fini(&shown);
    return ok;
}

// Every token that a text is made of gets the bias.
static bool add_text_bias(struct bias_reading *r, const char *s, size_t n, float bias) {
    struct token_list ids = {0};
    struct err e = {0};
    if (!r->l->tokenizer)
        return api_refuse(r->x, "logit_bias",
                          "logit_bias names a text, and the model's file has no tokenizer: send "
                          "token ids");
    if (n == 0 || n > MAX_TEXT)
        return api_refuse(r->x, "logit_bias",
                          "logit_bias names a text of %zu bytes, and it may have 1 to %d", n,
                          MAX_TEXT);
    int rc = tokenizer_encode(r->l->tokenizer, s, n, false, &ids, &e);
    bool ok = !rc;
    for (size_t i = 0; i < ids.count && ok; i++)
        ok = add_bias(r, ids.ids[i], bias);
    if (rc == ERR_MEMORY)
        (void)api_no_memory(r->x);
    else if (rc)
        (void)api_refuse(r->x, "logit_bias", "logit_bias of a text: %s", e.text);
    token_list_fini(&ids);
    return ok && (!memmem(s, n, "\xEF\xBF\xBD", 3) || add_shown_bias(r, s, n, bias));
}

// A pair of an id or a text, and a bias.
static bool read_bias_pair(struct bias_reading *r, const struct json *pair, size_t i) {
    const struct json *what = json_at(pair, 0);
    int64_t id = json_int(what, -1);
    size_t n = 0;
    const char *text = json_str(what, &n);
    char name[48];
    float bias;
    if (json_kind_of(pair) != JSON_ARRAY || json_len(pair) != 2)
        return api_refuse(r->x, "logit_bias",
                          "logit_bias[%zu] must be a pair: a token id or a text, and a number or "
                          "false",
                          i);
    snprintf(name, sizeof name, "%s", text ? text : json_number_text(what));
    if (!text && (json_kind_of(what) != JSON_INT || id < 0 || id >= r->l->vocab))
        return api_refuse(r->x, "logit_bias", "logit_bias[%zu] names %s, which is no token id", i,
                          name);
    return read_bias_value(r, name, json_at(pair, 1), &bias) &&
           (text ? add_text_bias(r, text, n, bias) : add_bias(r, (int32_t)id, bias));
}

static int by_id(const void *a, const void *b) {
    const struct logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

// One bias a token: those of one add up.
static void merge_biases(struct params *p) {
    int n = 0;
    qsort(p->bias, (size_t)p->n_bias, sizeof *p->bias, by_id);
    for (int i = 1; i < p->n_bias; i++)
        if (p->bias[i].id == p->bias[n].id)
            p->bias[n].bias += p->bias[i].bias;
        else
            p->bias[++n] = p->bias[i];
    p->n_bias = n + 1;
}

bool field_read_logit_bias(const struct reading *r) {
    struct bias_reading b = {.p = r->p, .l = r->l, .x = r->x};
    enum json_kind k = json_kind_of(r->v);
    if (k != JSON_OBJECT && k != JSON_ARRAY)
        return api_refuse_kind(r->x, r->f->name, "", r->v, "an object or an array of pairs");
    free(r->p->bias);
    r->p->bias = NULL;
    r->p->n_bias = 0;
    if (json_len(r->v) > PARAMS_MAX_BIAS)
        return api_refuse(r->x, r->f->name, "logit_bias has %zu entries and may have %d at most",
                          json_len(r->v), PARAMS_MAX_BIAS);
    if (k == JSON_OBJECT)
        return json_each(r->v, read_bias_member, &b) == 0;
    for (size_t i = 0; i < json_len(r->v); i++)
        if (!read_bias_pair(&b, json_at(r->v, i), i))
            return false;
    if (r->p->n_bias)
        merge_biases(r->p);
    return true;
}

bool field_read_stop_ids(const struct reading *r) {
    size_t n = json_len(r->v);
    if (n > REQUEST_MAX_STOP_IDS)
        return api_refuse(r->x, r->f->name,
                          "stop_token_ids has %zu elements and may have %d at most", n,
                          REQUEST_MAX_STOP_IDS);
    r->p->stop_ids = malloc((n + 1) * sizeof *r->p->stop_ids);
    if (!r->p->stop_ids)
        return api_no_memory(r->x);
    for (size_t i = 0; i < n; i++) {
        const struct json *id = json_at(r->v, i);
        if (json_kind_of(id) != JSON_INT || json_int(id, -1) < 0 || json_int(id, -1) >= r->l->vocab)
            return api_refuse(r->x, r->f->name,
                              "stop_token_ids[%zu] is no token id; they are 0 to %d", i,
                              r->l->vocab - 1);
        r->p->stop_ids[r->p->n_stop_ids++] = (int32_t)json_int(id, -1);
    }
    return true;
}
