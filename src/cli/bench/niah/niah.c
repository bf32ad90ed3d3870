// SPDX-License-Identifier: Apache-2.0
// `coppice bench niah`: each case, whole or shortened, is a message in the target's chat template,
// decoded plainly. A fact is found when its value stands in the answer word for word. Texts that
// the target's context cannot hold are counted apart. See niah.h.
#include "cli/bench/niah/niah.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/new_file.h"
#include "base/num.h"
#include "cli/bench/niah/report.h"
#include "cli/chat/conversation.h"
#include "cli/models/decode.h"
#include "cli/models/tokens.h"

enum { ANSWER_TOKENS = 64 }; // for each fact

struct niah {
    const struct cli_args *a;
    struct niah_sweep sweep;
    struct file_new out;
    struct session *s;
    struct conversation talk;
    struct niah_ways ways;
    struct niah_report report;
};

// Rows that say which cases there are; they mean nothing elsewhere.
static const int own[] = {OPT_OUT,           OPT_DEPTHS,          OPT_NEEDLES,
                          OPT_FILLERS,       OPT_KINDS,           OPT_FILLER_FILE,
                          OPT_WAYS,          OPT_PREFILL_DRAFTER, OPT_PREFILL_KEEP,
                          OPT_PREFILL_CURVE, OPT_PREFILL_MASS,    OPT_PREFILL_LEAST,
                          OPT_PREFILL_MOST,  OPT_PREFILL_LAYERS,  OPT_PREFILL_SCORE_LAYERS,
                          OPT_PREFILL_DENSE, OPT_PREFILL_ALPHA,   OPT_PREFILL_DENSITY};
// Rows of other ways of measuring.
static const int others[] = {
    OPT_PROMPTS, OPT_SEQUENCES, OPT_ENGINE,       OPT_ROUNDS,        OPT_MODES,   OPT_DRAFTER,
    OPT_DRAFT,   OPT_URL,       OPT_ENDPOINT,     OPT_CLIENTS,       OPT_RATE,    OPT_REQUESTS,
    OPT_WARMUP,  OPT_LENGTHS,   OPT_INPUT_TOKENS, OPT_OUTPUT_TOKENS, OPT_API_KEY, OPT_API_MODEL,
    OPT_GOODPUT, OPT_EXTRA,     OPT_TIMEOUT};

static int refuse(const struct cli_args *a, const int *rows, size_t n, const char *why,
                  struct err *e) {
    for (size_t i = 0; i < n; i++)
        if (options_given(&a->opt, rows[i]))
            return err_set(e, ERR_USAGE, "--%s %s", cli_options[rows[i]].name, why);
    return 0;
}

bool bench_niah_wanted(const struct cli_args *a, int *rc, struct err *e) {
    const char *what = a->opt.n_operands ? a->opt.operands[0] : NULL;
    bool wanted = what && !strcmp(what, "niah");
    *rc = 0;
    if (what && !strcmp(what, "score"))
        return false; // cli/bench/score.h
    if (what && !wanted)
        *rc = err_set(e, ERR_USAGE,
                      "there is no 'bench %.40s'; there are 'bench niah' and 'bench score'", what);
    else if (wanted)
        *rc =
            refuse(a, others, sizeof others / sizeof *others, "has no meaning for 'bench niah'", e);
    else
        *rc = refuse(a, own, sizeof own / sizeof *own, "is for 'bench niah'", e);
    return wanted;
}

typedef int case_fn(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
                    size_t group, struct err *e);

// Makes all cases one by one.
static int each_case(struct niah *b, const struct tokenizer *t, case_fn *fn, struct err *e) {
    const struct niah_sweep *w = &b->sweep;
    size_t n = niah_sweep_groups(w) * w->n_depths;
    for (size_t i = 0; i < n && !cli_interrupted(); i++) {
        struct niah_spec s = niah_sweep_spec(w, i / w->n_depths, i % w->n_depths);
        struct niah_case c;
        int rc = niah_make(&c, &s, t, e);
        if (!rc)
            rc = fn(b, &c, &s, i / w->n_depths, e);
        niah_case_fini(&c);
        if (rc) {
            struct str name = {0};
            niah_name(&s, &name);
            err_prefix(e, "case %s", name.data ? name.data : "");
            str_fini(&name);
            return rc;
        }
        if (cli_progress_wanted())
            fprintf(stderr, "\r%zu of %zu cases", i + 1, n);
    }
    if (cli_progress_wanted())
        fputc('\n', stderr);
    return 0;
}

// The first token's time.
struct first {
    double start, ms;
};

static int see_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct first *f = arg;
    (void)ids;
    if (f->ms <= 0 && n > 0)
        f->ms = clock_ms() - f->start;
    return cli_interrupted();
}

// The ids of a message to the target.
static int read_message(struct niah *b, const struct str *text, struct token_list *ids,
                        struct err *e) {
    struct chat_text x = {0};
    conversation_cut(&b->talk, 0);
    token_list_bound(ids, model_max_ctx(session_model(b->s)));
    int rc = conversation_say(&b->talk, "user", text, NULL, e);
    if (!rc)
        rc = conversation_render(&b->talk, &x, e);
    if (!rc)
        rc = chat_encode(b->talk.t, &x, ids, e);
    chat_text_fini(&x);
    return rc;
}

static int64_t count_found(const struct niah_case *c, const struct str *answer) {
    int64_t n = 0;
    for (int i = 0; i < c->n; i++)
        n += answer->data && strstr(answer->data, c->needle[i].fact.value) != NULL;
    return n;
}

// Asks the target about a text, whose clock began at start, unless no token is wanted.
static int ask(struct niah *b, const struct niah_case *c, const struct str *text, double start,
               struct niah_sums *one, struct str *answer, struct err *e) {
    struct request r;
    struct reply y = {0};
    struct token_list ids = {0};
    struct first first = {.start = start};
    decode_request(b->a, b->s, &r);
    if (!options_given(&b->a->opt, OPT_MAX_TOKENS))
        r.max_tokens = (int64_t)ANSWER_TOKENS * c->n;
    if (r.max_tokens == 0)
        return 0;
    int rc = read_message(b, text, &ids, e);
    r.prompt = ids.ids;
    r.n_prompt = (int64_t)ids.count;
    r.how = SPECULATE_OFF;
    r.tokens = see_tokens;
    r.tokens_arg = &first;
    if (!rc && r.n_prompt + r.max_tokens > model_max_ctx(session_model(b->s))) {
        one->too_long = 1;
    } else if (!rc) {
        rc = session_generate(b->s, &r, &y, e);
        decode_text(b->s, y.ids, y.n, answer);
        one->asked = 1;
        one->sought = c->n;
        one->found = count_found(c, answer);
        one->prompt_tokens = r.n_prompt;
        one->first_ms = first.ms;
    }
    token_list_fini(&ids);
    reply_fini(&y);
    return rc;
}

// A case in one way.
static int run_way(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
                   size_t group, size_t way, struct err *e) {
    struct niah_short left;
    struct str answer = {0};
    double start = clock_ms();
    int rc = niah_shorten(&b->ways, b->ways.list[way], c, &left, e);
    struct niah_sums one = {.cases = 1,
                            .facts = c->n,
                            .kept = left.kept,
                            .from = left.from,
                            .to = left.to,
                            .shorten_ms = clock_ms() - start};
    if (!rc)
        rc = ask(b, c, &left.text, start, &one, &answer, e);
    if (rc)
        err_prefix(e, "%s", niah_way_name(b->ways.list[way]));
    else
        niah_report_add(&b->report, group, way, s, &one, one.asked ? &answer : NULL);
    str_fini(&answer);
    niah_short_fini(&left);
    return rc;
}

static int run_case(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
                    size_t group, struct err *e) {
    int rc = 0;
    b->ways.share = 0;
    for (size_t i = 0; i < b->ways.n && !rc && !cli_interrupted(); i++)
        rc = run_way(b, c, s, group, i, e);
    return rc;
}

// A short run that is not counted, so that the first case does not pay for cold memory.
static int warm_up(struct niah *b, struct err *e) {
    struct request r;
    struct reply y = {0};
    static const int32_t ids[64] = {0};
    decode_request(b->a, b->s, &r);
    r.prompt = ids;
    r.n_prompt = min_i64(64, model_max_ctx(session_model(b->s)) - 1);
    r.max_tokens = 4;
    r.how = SPECULATE_OFF;
    int rc = session_generate(b->s, &r, &y, e);
    reply_fini(&y);
    return rc;
}

static int print(struct niah *b, struct err *e) {
    if (!options_flag(&b->a->opt, OPT_JSON)) {
        struct str out = {0};
        niah_report_table(&b->report, &out);
        return cli_print(&out, e);
    }
    struct json_writer w = {0};
    jw_begin(&w, '{');
    decode_json_memory(&w, b->s);
    jw_key_num(&w, "load_ms", session_load_ms(b->s));
    niah_report_json(&b->report, &w);
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static int measure(struct niah *b, struct err *e) {
    int rc = niah_ways_read(&b->ways, b->a, e);
    if (!rc)
        rc = niah_report_open(&b->report, &b->sweep, &b->ways, e);
    if (!rc)
        rc = decode_open(b->a, false, &b->s, e);
    if (!rc)
        rc = conversation_open(&b->talk, b->a, b->s, e);
    if (!rc)
        rc = niah_ways_open(&b->ways, b->a, model_exec(session_model(b->s)), b->talk.t, e);
    cli_catch_interrupt();
    if (!rc)
        rc = warm_up(b, e);
    if (!rc)
        rc = each_case(b, b->talk.t, run_case, e);
    if (rc || cli_interrupted())
        return rc;
    return print(b, e);
}

static int write_case(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
                      size_t group, struct err *e) {
    struct json_writer w = {0};
    (void)group;
    niah_json(c, s, &w);
    str_putc(&w.out, '\n');
    int rc = w.out.failed ? err_set(e, ERR_MEMORY, "no memory for a line of %lld tokens",
                                    (long long)c->tokens)
                          : file_new_write(&b->out, w.out.data, w.out.len, e);
    str_fini(&w.out);
    return rc;
}

static int write_cases(struct niah *b, struct err *e) {
    struct tokenizer *t = NULL;
    int rc = cli_open_tokenizer(b->a, &t, e);
    if (!rc)
        rc = file_new_open(&b->out, options_str(&b->a->opt, OPT_OUT), e);
    if (!rc) {
        cli_catch_interrupt();
        rc = each_case(b, t, write_case, e);
        if (rc || cli_interrupted())
            file_new_abort(&b->out);
        else
            rc = file_new_close(&b->out, e);
    }
    tokenizer_destroy(t);
    return rc;
}

int bench_niah(const struct cli_args *a, struct err *e) {
    struct niah b = {.a = a};
    int rc = niah_sweep_read(&b.sweep, a, e);
    if (!rc)
        rc = options_given(&a->opt, OPT_OUT) ? write_cases(&b, e) : measure(&b, e);
    conversation_close(&b.talk);
    niah_ways_close(&b.ways);
    session_close(b.s);
    niah_report_close(&b.report);
    niah_sweep_fini(&b.sweep);
    return rc;
}
