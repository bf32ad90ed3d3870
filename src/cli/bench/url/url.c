// SPDX-License-Identifier: Apache-2.0
// `coppice bench --url`; see url.h. First what is requested: the body of each request and when it
// is due, both by the seed. Then the run: asks the server what its model is called and how many
// tokens random words are, warms up, then sends the requests: each client its next one when the
// last is answered, or all at random times. A request's clock starts when it is due, not when it
// could be sent.
#include "cli/bench/url/url.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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

static int read_range(struct url_range *r, const char *text, const char *option, struct err *e) {
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
    int rc = read_range(&l->in, options_str(o, OPT_INPUT_TOKENS), "input-tokens", e);
    if (!rc)
        rc = read_range(&l->out, options_str(o, OPT_OUTPUT_TOKENS), "output-tokens", e);
    if (!rc && prompts)
        rc = bench_prompts_read(&l->prompts, options_str(o, OPT_PROMPTS), e);
    for (size_t i = 0; !rc && i < l->prompts.n; i++)
        if (l->prompts.prompts[i].ids)
            rc = err_set(e, ERR_USAGE, "prompt %s is token ids, and a server is sent text",
                         l->prompts.prompts[i].id);
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

// Whether prompts are random words, whose tokens must be counted by the server first.
static bool url_load_words(const struct url_load *l) {
    return !l->prompts.n;
}

// The path of the endpoint after the base.
static const char *url_load_path(const struct url_load *l) {
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
        jw_key_text(w, "prompt", text, n);
        return;
    }
    jw_key_begin(w, "messages", '[');
    jw_begin(w, '{');
    jw_key_str(w, "role", "user");
    jw_key_text(w, "content", text, n);
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
        if (options_given(o, numbers[k].row))
            jw_key_num(w, numbers[k].field, options_float(o, numbers[k].row));
    if (options_given(o, OPT_TOP_K))
        jw_key_int(w, "top_k", options_int(o, OPT_TOP_K));
    if (options_given(o, OPT_SEED))
        jw_key_int(w, "seed", (int64_t)l->seed + i);
    if (options_flag(o, OPT_IGNORE_EOS))
        jw_key_bool(w, "ignore_eos", true);
}

static void finish_body(const struct url_load *l, struct json_writer *w, struct str *out) {
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
    jw_key_begin(&w, "stream_options", '{');
    jw_key_bool(&w, "include_usage", true);
    jw_end(&w, '}');
    put_sampling(l, i, &w);
    finish_body(l, &w, out);
    out->failed = out->failed || text.failed;
    str_fini(&text);
}

// Appends the body of a request of n random words that makes one token, and is not streamed.
static void url_load_probe(const struct url_load *l, int64_t n, struct str *out) {
    struct json_writer w = {0};
    struct str text = {0};
    put_words(l, -1 - n, n, &text);
    jw_begin(&w, '{');
    put_prompt(l, text.data ? text.data : "", text.len, &w);
    jw_key_int(&w, "max_tokens", 1);
    finish_body(l, &w, out);
    out->failed = out->failed || text.failed;
    str_fini(&text);
}

double url_load_wait(const struct url_load *l, int64_t i) {
    if (!(l->rate > 0))
        return 0;
    double u = (double)rng_unit(rng_hash(l->seed, WAIT_SALT, (uint64_t)i, 0));
    return -log(u) * 1000 / l->rate;
}

enum { DEFAULT_REQUESTS = 64, PROBE_FEW = 16, PROBE_MANY = 144 };

struct bench_url {
    const struct cli_args *a;
    struct url_target target;
    struct url_load load;
    struct url_client *client;
    struct url_times gaps;
    struct url_result *results; // [n]
    int64_t n, clients;         // 0 clients: no bound
    int64_t begun, over;        // of this phase
    double timeout_ms, shown;
    struct str answer; // the newest one that is no stream
};

struct question {
    const char *path; // after the base
    struct str body;  // empty: GET
    bool streamed;
    double due;
    struct url_result *result;
};

// Rows that mean something with --url, and whether they do so without it.
static const struct {
    int row;
    bool both;
} rows[] = {{OPT_URL, false},
            {OPT_ENDPOINT, false},
            {OPT_CLIENTS, false},
            {OPT_RATE, false},
            {OPT_REQUESTS, false},
            {OPT_WARMUP, false},
            {OPT_LENGTHS, false},
            {OPT_INPUT_TOKENS, false},
            {OPT_OUTPUT_TOKENS, false},
            {OPT_API_KEY, false},
            {OPT_API_MODEL, false},
            {OPT_GOODPUT, false},
            {OPT_EXTRA, false},
            {OPT_TIMEOUT, false},
            {OPT_PROMPTS, true},
            {OPT_MAX_TOKENS, true},
            {OPT_SEED, true},
            {OPT_TEMP, true},
            {OPT_TOP_P, true},
            {OPT_TOP_K, true},
            {OPT_MIN_P, true},
            {OPT_FREQUENCY_PENALTY, true},
            {OPT_PRESENCE_PENALTY, true},
            {OPT_IGNORE_EOS, true},
            {OPT_JSON, true},
            {OPT_HELP, true}};

bool bench_url_wanted(const struct cli_args *a, int *rc, struct err *e) {
    bool wanted = options_given(&a->opt, OPT_URL);
    *rc = 0;
    for (int row = 0; row < CLI_OPTION_COUNT && !*rc; row++) {
        size_t i = 0, n = sizeof rows / sizeof *rows;
        while (i < n && rows[i].row != row)
            i++;
        if (!options_given(&a->opt, row))
            continue;
        if (wanted && i == n)
            *rc = err_set(e, ERR_USAGE, "--%s has no meaning with --url", cli_options[row].name);
        else if (!wanted && i < n && !rows[i].both)
            *rc = err_set(e, ERR_USAGE, "--%s needs --url URL", cli_options[row].name);
    }
    return wanted;
}

static void on_done(void *arg, struct url_call *call) {
    struct bench_url *b = arg;
    const struct str *body = &call->reply.body;
    b->over++;
    str_clear(&b->answer);
    if (!call->reply.streamed)
        str_append(&b->answer, body->data ? body->data : "", body->len);
    url_reply_fini(&call->reply);
    str_fini(&call->out);
    free(call);
}

// Begins a request; takes the question's body.
static int begin_request(struct bench_url *b, struct question *q, struct err *e) {
    struct url_call *call = calloc(1, sizeof *call);
    bool whole = call && !q->body.failed;
    if (call) {
        url_reply_init(&call->reply, q->streamed, q->due, q->result, &b->gaps);
        call->deadline = clock_ms() + b->timeout_ms;
        url_call_head(&call->out, &b->target, q->path, options_str(&b->a->opt, OPT_API_KEY),
                      q->body.len);
        str_append(&call->out, q->body.data ? q->body.data : "", q->body.len);
        whole = whole && !call->out.failed;
    }
    str_fini(&q->body);
    b->begun++;
    if (whole) {
        url_client_start(b->client, call);
        return 0;
    }
    if (call)
        str_fini(&call->out);
    free(call);
    return err_set(e, ERR_MEMORY, "no memory for a request");
}

// One request on its own, whose answer is b->answer.
static int ask_once(struct bench_url *b, const char *path, struct str *body,
                    struct url_result *result, struct err *e) {
    struct question q = {.path = path, .body = *body, .due = clock_ms(), .result = result};
    b->begun = b->over = 0;
    int rc = begin_request(b, &q, e);
    while (!rc && b->over < b->begun && !cli_interrupted())
        rc = url_client_wait(b->client, b->timeout_ms, e);
    url_client_drop(b->client);
    if (!rc && b->answer.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for an answer");
    return rc;
}

static int request_failed(const struct bench_url *b, const char *path, const struct url_result *r,
                          struct err *e) {
    struct url_error_kind kind = {.outcome = r->outcome, .status = r->status};
    char name[40];
    url_error_name(&kind, name, sizeof name);
    return err_set(e, ERR_IO, "http://%s%s%s: %s: %s", b->target.authority, b->target.base, path,
                   name, r->message);
}

// The name that requests give the model: --api-model, else the first one that the server lists; a
// server without a list gets "default".
static int find_model(struct bench_url *b, struct err *e) {
    const char *name = options_str(&b->a->opt, OPT_API_MODEL);
    struct url_result result;
    struct str none = {0};
    struct json *v = NULL;
    int rc = name ? 0 : ask_once(b, "/models", &none, &result, e);
    if (!rc && !name && !cli_interrupted()) {
        if (result.outcome != URL_DONE && result.status != 404)
            rc = request_failed(b, "/models", &result, e);
        else if (b->answer.len && json_parse(&v, b->answer.data, b->answer.len, NULL) == 0)
            name = json_str(json_get(json_at(json_get(v, "data"), 0), "id"), NULL);
    }
    snprintf(b->load.model, sizeof b->load.model, "%s", name ? name : "default");
    json_free(v);
    return rc;
}

// Tokens of a prompt of n random words, by the server's count; -1: it does not say.
static int count_words(struct bench_url *b, int64_t n, int64_t *tokens, struct err *e) {
    struct url_result result;
    struct str body = {0};
    struct json *v = NULL;
    const char *path = url_load_path(&b->load);
    url_load_probe(&b->load, n, &body);
    int rc = ask_once(b, path, &body, &result, e);
    *tokens = -1;
    if (!rc && !cli_interrupted() && result.outcome != URL_DONE)
        rc = request_failed(b, path, &result, e);
    if (!rc && b->answer.len && json_parse(&v, b->answer.data, b->answer.len, NULL) == 0)
        *tokens = json_int(json_get(json_get(v, "usage"), "prompt_tokens"), -1);
    json_free(v);
    return rc;
}

// Learns how many tokens a chat's frame and a random word are, from two prompts.
static int measure_words(struct bench_url *b, struct err *e) {
    int64_t few, many = -1;
    int rc = count_words(b, PROBE_FEW, &few, e);
    if (!rc && few >= 0)
        rc = count_words(b, PROBE_MANY, &many, e);
    if (!rc && many > few) {
        b->load.per_word = (double)(many - few) / (PROBE_MANY - PROBE_FEW);
        b->load.fixed_tokens = (double)few - (double)PROBE_FEW * b->load.per_word;
    }
    return rc;
}

static void show_progress(struct bench_url *b, int64_t n, bool end) {
    double now = clock_ms();
    if (!cli_progress_wanted() || (now - b->shown < 200 && !end))
        return;
    b->shown = now;
    fprintf(stderr, "\r%lld of %lld requests, %lld running%s", (long long)b->over, (long long)n,
            (long long)(b->begun - b->over), end ? "\n" : " ");
}

// Requests from..from+n of the load, each with its result; waits: at their random times.
static int run_phase(struct bench_url *b, int64_t from, int64_t n, struct url_result *results,
                     bool waits, struct err *e) {
    double due = clock_ms();
    int rc = 0;
    b->begun = b->over = 0;
    while (!rc && b->over < n && !cli_interrupted()) {
        double now = clock_ms();
        bool free_client = !b->clients || b->begun - b->over < b->clients;
        if (b->begun < n && free_client && (!waits || due <= now)) {
            struct question q = {.path = url_load_path(&b->load),
                                 .streamed = true,
                                 .due = waits ? due : now,
                                 .result = &results[b->begun]};
            url_load_body(&b->load, from + b->begun, &q.body);
            due += url_load_wait(&b->load, from + b->begun);
            rc = begin_request(b, &q, e);
            continue;
        }
        bool timed = b->begun < n && free_client;
        rc = url_client_wait(b->client, timed ? due - now : b->timeout_ms, e);
        show_progress(b, n, false);
    }
    url_client_drop(b->client);
    show_progress(b, n, true);
    return rc;
}

static int run_bench(struct bench_url *b, struct err *e) {
    int64_t warm = options_int(&b->a->opt, OPT_WARMUP);
    struct url_result *results = calloc((size_t)max_i64(warm, 1), sizeof *results);
    b->results = calloc((size_t)b->n, sizeof *b->results);
    int rc =
        results && b->results
            ? 0
            : err_set(e, ERR_MEMORY, "no memory for the results of %lld requests", (long long)b->n);
    if (!rc)
        rc = find_model(b, e);
    if (!rc && url_load_words(&b->load) && !cli_interrupted())
        rc = measure_words(b, e);
    if (!rc && warm && !cli_interrupted())
        rc = run_phase(b, b->n, warm, results, false, e);
    b->gaps.n = 0;
    if (!rc && !cli_interrupted())
        rc = run_phase(b, 0, b->n, b->results, b->load.rate > 0, e);
    free(results);
    return rc;
}

static int print_report(struct bench_url *b, struct err *e) {
    char url[600];
    struct url_report report;
    struct url_run all = {.results = b->results,
                          .n = b->n,
                          .gaps = &b->gaps,
                          .url = url,
                          .model = b->load.model,
                          .clients = b->clients,
                          .rate = b->load.rate};
    snprintf(url, sizeof url, "http://%s%s%s", b->target.authority, b->target.base,
             url_load_path(&b->load));
    const char *limits = options_str(&b->a->opt, OPT_GOODPUT);
    int rc = limits ? url_limits_read(&all.limits, limits, e) : 0;
    if (!rc)
        rc = url_report_make(&report, &all, e);
    if (rc)
        return rc;
    if (options_flag(&b->a->opt, OPT_JSON)) {
        struct json_writer w = {0};
        url_report_json(&report, &all, &w);
        rc = cli_print_json(&w, e);
    } else {
        struct str text = {0};
        url_report_text(&report, &all, &text);
        rc = cli_print(&text, e);
    }
    if (!rc && report.done < b->n)
        rc = err_set(e, ERR_STATE, "%lld of %lld requests failed", (long long)(b->n - report.done),
                     (long long)b->n);
    return rc;
}

static int read_url_options(struct bench_url *b, struct err *e) {
    const struct options *o = &b->a->opt;
    struct url_limits limits;
    b->timeout_ms = options_float(o, OPT_TIMEOUT) * 1000;
    b->clients = options_given(o, OPT_CLIENTS) ? options_int(o, OPT_CLIENTS)
                 : options_given(o, OPT_RATE)  ? 0
                                               : 1;
    int rc = url_target_read(&b->target, options_str(o, OPT_URL), e);
    if (!rc)
        rc = url_load_read(&b->load, b->a, e);
    if (!rc && options_given(o, OPT_GOODPUT))
        rc = url_limits_read(&limits, options_str(o, OPT_GOODPUT), e);
    b->n = options_int(o, OPT_REQUESTS);
    if (!b->n)
        b->n = url_load_size(&b->load);
    if (!b->n)
        b->n = DEFAULT_REQUESTS;
    return rc;
}

int bench_url(const struct cli_args *a, struct err *e) {
    struct bench_url b = {.a = a};
    int rc = read_url_options(&b, e);
    if (!rc)
        rc = url_client_create(&b.client, &b.target, on_done, &b, e);
    if (!rc) {
        file_raise_limit(); // every stream is a descriptor
        cli_catch_interrupt();
        rc = run_bench(&b, e);
    }
    if (!rc && !cli_interrupted())
        rc = print_report(&b, e);
    url_client_destroy(b.client);
    url_load_fini(&b.load);
    url_times_fini(&b.gaps);
    str_fini(&b.answer);
    free(b.results);
    return rc;
}
