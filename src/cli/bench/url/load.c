// SPDX-License-Identifier: Apache-2.0
// Requests of `bench --url`; see load.h.
#include "cli/bench/url/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "base/rng.h"
#include "base/vec.h"

enum {
    LENGTHS_MAX = 64 << 20,
    WORDS_SALT = 0x776f7264,
    WAIT_SALT = 0x77616974,
    LENGTH_SALT = 0x6c656e
};

static const char *const words[] = {
    "river", "stone", "light", "under", "house", "green", "table", "seven", "water", "cloud",
    "paper", "night", "early", "clear", "field", "horse", "metal", "north", "plain", "quick",
    "round", "sharp", "small", "tower", "voice", "white", "young", "above", "basic", "carry",
    "dance", "eight", "floor", "glass", "heart", "image", "judge", "known", "large", "month",
    "never", "ocean", "party", "quiet", "reach", "scale", "three", "until", "visit", "world"};
enum { WORDS = sizeof words / sizeof *words };

int url_range_read(struct url_range *r, const char *text, const char *option, struct err *e) {
    char *end = NULL;
    long long low = strtoll(text, &end, 10), high = low;
    if (*end == '-' && end[1])
        high = strtoll(end + 1, &end, 10);
    if (end == text || *end || low < 1 || high < low || high > 1000000)
        return err_set(e, ERR_USAGE, "--%s '%s' is neither a number of tokens nor a range A-B",
                       option, text);
    *r = (struct url_range){low, high};
    return 0;
}

static int add_length(struct url_load *l, const char *line, int64_t number, struct err *e) {
    struct url_length v;
    long long in, out;
    int used = 0;
    if (!line[strspn(line, " \t\r")])
        return 0;
    if (sscanf(line, "%lld%*1[ \t,]%lld %n", &in, &out, &used) != 2 || line[used] || in < 1 ||
        out < 1 || in > 1000000 || out > 1000000)
        return err_set(e, ERR_FORMAT, "line %lld is not two numbers of tokens, in and out",
                       (long long)number);
    int rc = vec_reserve(&l->lengths, &l->cap_lengths, l->n_lengths + 1, sizeof *l->lengths, e);
    v = (struct url_length){in, out};
    if (!rc)
        l->lengths[l->n_lengths++] = v;
    return rc;
}

static int read_lengths(struct url_load *l, const char *path, struct err *e) {
    struct str text = {0};
    int rc = file_read(&text, path, LENGTHS_MAX, e);
    char *line = text.data;
    for (int64_t number = 1; !rc && line; number++) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        rc = add_length(l, line, number, e);
        line = end;
    }
    if (!rc && !l->n_lengths)
        rc = err_set(e, ERR_FORMAT, "there is no line in it");
    str_fini(&text);
    return rc ? err_prefix(e, "%s", path) : 0;
}

// --extra: an object whose members every body gets.
static int read_extra(struct url_load *l, const char *text, struct err *e) {
    struct json *v = NULL;
    size_t n = strlen(text);
    if (json_parse(&v, text, n, e))
        return err_prefix(e, "--extra");
    bool object = json_kind_of(v) == JSON_OBJECT;
    if (object && json_len(v)) {
        const char *begin = strchr(text, '{') + 1, *end = strrchr(text, '}');
        str_append(&l->extra, begin, (size_t)(end - begin));
    }
    json_free(v);
    return object ? 0 : err_set(e, ERR_USAGE, "--extra '%.60s' is not a JSON object", text);
}

int url_load_read(struct url_load *l, const struct cli_args *a, struct err *e) {
    const struct options *o = &a->opt;
    bool prompts = options_given(o, OPT_PROMPTS), lengths = options_given(o, OPT_LENGTHS);
    bool ranges = options_given(o, OPT_INPUT_TOKENS) || options_given(o, OPT_OUTPUT_TOKENS);
    *l = (struct url_load){.a = a,
                           .endpoint = (enum url_endpoint)options_int(o, OPT_ENDPOINT),
                           .seed = (uint64_t)options_int(o, OPT_SEED),
                           .rate = options_float(o, OPT_RATE),
                           .per_word = 1};
    if (prompts + lengths + ranges > 1)
        return err_set(e, ERR_USAGE,
                       "choose one of --prompts, --lengths, and --input-tokens with "
                       "--output-tokens");
    if (!prompts && options_given(o, OPT_MAX_TOKENS))
        return err_set(e, ERR_USAGE,
                       "-n bounds the answers to --prompts; without them the length "
                       "of answers is --output-tokens N");
    int rc = url_range_read(&l->in, options_str(o, OPT_INPUT_TOKENS), "input-tokens", e);
    if (!rc)
        rc = url_range_read(&l->out, options_str(o, OPT_OUTPUT_TOKENS), "output-tokens", e);
    if (!rc && prompts)
        rc = bench_prompts_read(&l->prompts, options_str(o, OPT_PROMPTS), e);
    if (!rc && lengths)
        rc = read_lengths(l, options_str(o, OPT_LENGTHS), e);
    if (!rc && options_given(o, OPT_EXTRA))
        rc = read_extra(l, options_str(o, OPT_EXTRA), e);
    return rc;
}

void url_load_fini(struct url_load *l) {
    bench_prompts_fini(&l->prompts);
    free(l->lengths);
    str_fini(&l->extra);
    *l = (struct url_load){0};
}

int64_t url_load_size(const struct url_load *l) {
    return l->prompts.n ? (int64_t)l->prompts.n : l->n_lengths;
}

bool url_load_words(const struct url_load *l) {
    return !l->prompts.n;
}

const char *url_load_path(const struct url_load *l) {
    return l->endpoint == URL_CHAT ? "/chat/completions" : "/completions";
}

static int64_t random_between(const struct url_load *l, const struct url_range *r, int64_t i,
                              uint64_t which) {
    struct rng g = {rng_hash(l->seed, LENGTH_SALT, (uint64_t)i, which)};
    return r->low + rng_below(&g, (uint32_t)(r->high - r->low + 1));
}

static struct url_length length_of(const struct url_load *l, int64_t i) {
    if (l->n_lengths)
        return l->lengths[i % l->n_lengths];
    return (struct url_length){random_between(l, &l->in, i, 0), random_between(l, &l->out, i, 1)};
}

// n random words; different i begin differently, so that no server has read them before.
static void put_words(const struct url_load *l, int64_t i, int64_t n, struct str *out) {
    struct rng g = {rng_hash(l->seed, WORDS_SALT, (uint64_t)i, 0)};
    for (int64_t k = 0; k < n; k++) {
        if (k)
            str_putc(out, ' ');
        str_puts(out, words[rng_below(&g, WORDS)]);
    }
}

// The members that say what to continue.
static void put_prompt(const struct url_load *l, const char *text, size_t n,
                       struct json_writer *w) {
    jw_key_str(w, "model", l->model);
    if (l->endpoint == URL_COMPLETIONS) {
        jw_key(w, "prompt");
        jw_str(w, text, n);
        return;
    }
    jw_key(w, "messages");
    jw_begin(w, '[');
    jw_begin(w, '{');
    jw_key_str(w, "role", "user");
    jw_key(w, "content");
    jw_str(w, text, n);
    jw_end(w, '}');
    jw_end(w, ']');
}

// Sampling fields that were given; a server has its own defaults for the others.
static void put_sampling(const struct url_load *l, int64_t i, struct json_writer *w) {
    const struct options *o = &l->a->opt;
    const struct {
        int row;
        const char *field;
    } numbers[] = {{OPT_TEMP, "temperature"},
                   {OPT_TOP_P, "top_p"},
                   {OPT_MIN_P, "min_p"},
                   {OPT_FREQUENCY_PENALTY, "frequency_penalty"},
                   {OPT_PRESENCE_PENALTY, "presence_penalty"}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (options_given(o, numbers[k].row)) {
            jw_key_num(w, numbers[k].field, options_float(o, numbers[k].row));
        }
    if (options_given(o, OPT_TOP_K)) {
        jw_key_int(w, "top_k", options_int(o, OPT_TOP_K));
    }
    if (options_given(o, OPT_SEED)) {
        jw_key_int(w, "seed", (int64_t)l->seed + i);
    }
    if (options_flag(o, OPT_IGNORE_EOS)) {
        jw_key_bool(w, "ignore_eos", true);
    }
}

static void put_end(const struct url_load *l, struct json_writer *w, struct str *out) {
    if (l->extra.len) {
        str_putc(&w->out, ',');
        str_append(&w->out, l->extra.data, l->extra.len);
    }
    jw_end(w, '}');
    str_append(out, w->out.data ? w->out.data : "", w->out.len);
    out->failed = out->failed || w->out.failed;
    str_fini(&w->out);
}

// The words of random request i, for the wished number of tokens.
static int64_t words_for(const struct url_load *l, int64_t tokens) {
    double n = ((double)tokens - l->fixed_tokens) / l->per_word;
    return max_i64(1, (int64_t)llround(n));
}

void url_load_body(const struct url_load *l, int64_t i, struct str *out) {
    struct json_writer w = {0};
    struct str text = {0};
    int64_t limit = options_int(&l->a->opt, OPT_MAX_TOKENS), max_tokens;
    if (l->prompts.n) {
        const struct bench_prompt *p = &l->prompts.prompts[i % (int64_t)l->prompts.n];
        str_append(&text, p->text, p->len);
        max_tokens = p->max_tokens ? p->max_tokens : limit;
        if (options_given(&l->a->opt, OPT_MAX_TOKENS))
            max_tokens = min_i64(max_tokens, limit);
    } else {
        struct url_length n = length_of(l, i);
        put_words(l, i, words_for(l, n.in), &text);
        max_tokens = n.out;
    }
    jw_begin(&w, '{');
    put_prompt(l, text.data ? text.data : "", text.len, &w);
    jw_key_int(&w, "max_tokens", max_tokens);
    jw_key_bool(&w, "stream", true);
    jw_key(&w, "stream_options");
    jw_begin(&w, '{');
    jw_key_bool(&w, "include_usage", true);
    jw_end(&w, '}');
    put_sampling(l, i, &w);
    put_end(l, &w, out);
    out->failed = out->failed || text.failed;
    str_fini(&text);
}

void url_load_probe(const struct url_load *l, int64_t n, struct str *out) {
    struct json_writer w = {0};
    struct str text = {0};
    put_words(l, -1 - n, n, &text);
    jw_begin(&w, '{');
    put_prompt(l, text.data ? text.data : "", text.len, &w);
    jw_key_int(&w, "max_tokens", 1);
    put_end(l, &w, out);
    out->failed = out->failed || text.failed;
    str_fini(&text);
}

double url_load_wait(const struct url_load *l, int64_t i) {
    if (!(l->rate > 0))
        return 0;
    double u = (double)rng_unit(rng_hash(l->seed, WAIT_SALT, (uint64_t)i, 0));
    return -log(u) * 1000 / l->rate;
}
