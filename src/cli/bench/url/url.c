// SPDX-License-Identifier: Apache-2.0
// `coppice bench --url`: asks the server what its model is called and how many tokens random words
// are, warms up, then sends the requests: each client its next one when the last is answered, or
// all at random times. A request's clock starts when it is due, not when it could be sent.
#include "cli/bench/url/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/num.h"
#include "cli/bench/url/load.h"

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
    const char *path; // behind the base
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
            *rc = err_set(e, ERR_USAGE, "--%s has no meaning for a server behind --url",
                          cli_options[row].name);
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
static int begin(struct bench_url *b, struct question *q, struct err *e) {
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
static int ask(struct bench_url *b, const char *path, struct str *body, struct url_result *result,
               struct err *e) {
    struct question q = {.path = path, .body = *body, .due = clock_ms(), .result = result};
    b->begun = b->over = 0;
    int rc = begin(b, &q, e);
    while (!rc && b->over < b->begun && !cli_interrupted())
        rc = url_client_wait(b->client, b->timeout_ms, e);
    url_client_drop(b->client);
    if (!rc && b->answer.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for an answer");
    return rc;
}

static int refused(const struct bench_url *b, const char *path, const struct url_result *r,
                   struct err *e) {
    struct url_error_kind kind = {.outcome = r->outcome, .status = r->status};
    char name[40];
    url_error_name(&kind, name, sizeof name);
    return err_set(e, ERR_IO, "http://%s%s%s: %s: %s", b->target.authority, b->target.base, path,
                   name, r->message);
}

// The name that requests give the model: --api-model, else the first one that the server tells; a
// server without a list gets "default".
static int find_model(struct bench_url *b, struct err *e) {
    const char *name = options_str(&b->a->opt, OPT_API_MODEL);
    struct url_result result;
    struct str none = {0};
    struct json *v = NULL;
    int rc = name ? 0 : ask(b, "/models", &none, &result, e);
    if (!rc && !name && !cli_interrupted()) {
        if (result.outcome != URL_DONE && result.status != 404)
            rc = refused(b, "/models", &result, e);
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
    int rc = ask(b, path, &body, &result, e);
    *tokens = -1;
    if (!rc && !cli_interrupted() && result.outcome != URL_DONE)
        rc = refused(b, path, &result, e);
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
            rc = begin(b, &q, e);
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

static int run(struct bench_url *b, struct err *e) {
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

static int print(struct bench_url *b, struct err *e) {
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

static int read_options(struct bench_url *b, struct err *e) {
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

// Every stream is a descriptor: as many as the system lets this process have.
static void raise_descriptors(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

int bench_url(const struct cli_args *a, struct err *e) {
    struct bench_url b = {.a = a};
    int rc = read_options(&b, e);
    if (!rc)
        rc = url_client_create(&b.client, &b.target, on_done, &b, e);
    if (!rc) {
        raise_descriptors();
        cli_catch_interrupt();
        rc = run(&b, e);
    }
    if (!rc && !cli_interrupted())
        rc = print(&b, e);
    url_client_destroy(b.client);
    url_load_fini(&b.load);
    url_times_fini(&b.gaps);
    str_fini(&b.answer);
    free(b.results);
    return rc;
}
