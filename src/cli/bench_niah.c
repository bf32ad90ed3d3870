// SPDX-License-Identifier: Apache-2.0
// `coppice bench niah`: each case is a message in the target's chat template, decoded plainly. A
// fact is found when its value stands in the answer word for word. Cases that the target's context
// cannot hold are counted apart. See bench_niah.h.
#include "cli/bench_niah.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file_new.h"
#include "base/num.h"
#include "cli/bench_niah_sweep.h"
#include "cli/conversation.h"
#include "cli/decode.h"
#include "cli/tokens.h"

enum { ANSWER_TOKENS = 64 }; // for each fact

// Sums over cases.
struct sums {
    int64_t cases, too_long, facts, found;
    int64_t prompt_tokens;
    double first_ms;
};

struct niah {
    const struct cli_args *a;
    struct niah_sweep sweep;
    struct file_new out;
    struct session *s;
    struct conversation talk;
    struct sums all, *groups; // [niah_sweep_groups]
    struct json_writer runs;
};

// Rows that say which cases there are; they mean nothing elsewhere.
static const int own[] = {OPT_OUT,     OPT_DEPTHS, OPT_NEEDLES,
                          OPT_FILLERS, OPT_KINDS,  OPT_FILLER_FILE};
// Rows of other ways of measuring.
static const int others[] = {OPT_PROMPTS,   OPT_SEQUENCES,    OPT_ENGINE,        OPT_MODES,
                             OPT_DRAFTER,   OPT_DRAFT,        OPT_URL,           OPT_ENDPOINT,
                             OPT_CLIENTS,   OPT_RATE,         OPT_REQUESTS,      OPT_WARMUP,
                             OPT_LENGTHS,   OPT_INPUT_TOKENS, OPT_OUTPUT_TOKENS, OPT_API_KEY,
                             OPT_API_MODEL, OPT_GOODPUT,      OPT_EXTRA,         OPT_TIMEOUT};

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
    if (what && !wanted)
        *rc = err_set(e, ERR_USAGE, "there is no 'bench %.40s'; there is 'bench niah'", what);
    else if (wanted)
        *rc =
            refuse(a, others, sizeof others / sizeof *others, "has no meaning for 'bench niah'", e);
    else
        *rc = refuse(a, own, sizeof own / sizeof *own, "is for 'bench niah'", e);
    return wanted;
}

typedef int case_fn(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
                    struct sums *group, struct err *e);

// Makes all cases one by one.
static int each_case(struct niah *b, const struct tokenizer *t, case_fn *fn, struct err *e) {
    const struct niah_sweep *w = &b->sweep;
    size_t n = niah_sweep_groups(w) * w->n_depths;
    for (size_t i = 0; i < n && !cli_interrupted(); i++) {
        struct niah_spec s = niah_sweep_spec(w, i / w->n_depths, i % w->n_depths);
        struct niah_case c;
        int rc = niah_make(&c, &s, t, e);
        if (!rc)
            rc = fn(b, &c, &s, b->groups ? &b->groups[i / w->n_depths] : NULL, e);
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
    int rc = conversation_say(&b->talk, "user", text, NULL, e);
    if (!rc)
        rc = conversation_render(&b->talk, &x, e);
    if (!rc)
        rc = chat_encode(b->talk.t, &x, ids, e);
    chat_text_fini(&x);
    return rc;
}

static void add(struct sums *to, const struct sums *one) {
    to->cases += one->cases;
    to->too_long += one->too_long;
    to->facts += one->facts;
    to->found += one->found;
    to->prompt_tokens += one->prompt_tokens;
    to->first_ms += one->first_ms;
}

static void json_run(struct niah *b, const struct niah_spec *s, const struct sums *one,
                     const struct str *answer) {
    struct json_writer *w = &b->runs;
    struct str name = {0};
    niah_name(s, &name);
    w->out.failed |= name.failed || answer->failed;
    jw_begin(w, '{');
    jw_key(w, "id");
    jw_str(w, name.data ? name.data : "", name.len);
    jw_key(w, "prompt_tokens");
    jw_int(w, one->prompt_tokens);
    jw_key(w, "facts");
    jw_int(w, s->needles);
    if (one->cases) {
        jw_key(w, "found");
        jw_int(w, one->found);
        jw_key(w, "first_token_ms");
        jw_num(w, one->first_ms);
        jw_key(w, "answer");
        jw_str(w, answer->data ? answer->data : "", answer->len);
    } else {
        jw_key(w, "too_long");
        jw_bool(w, true);
    }
    jw_end(w, '}');
    str_fini(&name);
}

static int64_t count_found(const struct niah_case *c, const struct str *answer) {
    int64_t n = 0;
    for (int i = 0; i < c->n; i++)
        n += answer->data && strstr(answer->data, c->needle[i].fact.value) != NULL;
    return n;
}

static int ask(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
               struct sums *group, struct err *e) {
    struct request r;
    struct reply y = {0};
    struct token_list ids = {0};
    struct str answer = {0};
    struct first first = {.start = clock_ms()};
    struct sums one = {0};
    decode_request(b->a, b->s, &r);
    int rc = read_message(b, &c->text, &ids, e);
    if (!options_given(&b->a->opt, OPT_MAX_TOKENS))
        r.max_tokens = (int64_t)ANSWER_TOKENS * c->n;
    r.prompt = ids.ids;
    r.n_prompt = one.prompt_tokens = (int64_t)ids.count;
    r.how = SPECULATE_OFF;
    r.tokens = see_tokens;
    r.tokens_arg = &first;
    if (!rc && r.n_prompt + r.max_tokens > model_max_ctx(session_model(b->s))) {
        one.too_long = 1;
    } else if (!rc) {
        rc = session_generate(b->s, &r, &y, e);
        decode_text(b->s, y.ids, y.n, &answer);
        one.cases = 1;
        one.facts = c->n;
        one.found = count_found(c, &answer);
        one.first_ms = first.ms;
    }
    if (!rc) {
        add(group, &one);
        add(&b->all, &one);
        json_run(b, s, &one, &answer);
    }
    str_fini(&answer);
    token_list_fini(&ids);
    reply_fini(&y);
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

static void json_sums(struct json_writer *w, const struct sums *s) {
    jw_key(w, "cases");
    jw_int(w, s->cases);
    jw_key(w, "too_long");
    jw_int(w, s->too_long);
    jw_key(w, "facts");
    jw_int(w, s->facts);
    jw_key(w, "found");
    jw_int(w, s->found);
    jw_key(w, "first_token_ms");
    jw_num(w, s->cases ? s->first_ms / (double)s->cases : 0);
}

static int print_json(struct niah *b, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    decode_json_memory(&w, b->s);
    jw_key(&w, "load_ms");
    jw_num(&w, session_load_ms(b->s));
    jw_key(&w, "overall");
    jw_begin(&w, '{');
    json_sums(&w, &b->all);
    jw_end(&w, '}');
    jw_key(&w, "groups");
    jw_begin(&w, '[');
    for (size_t g = 0; g < niah_sweep_groups(&b->sweep); g++) {
        struct niah_spec s = niah_sweep_spec(&b->sweep, g, 0);
        jw_begin(&w, '{');
        jw_key(&w, "tokens");
        jw_int(&w, s.tokens);
        jw_key(&w, "filler");
        jw_cstr(&w, niah_filler_name(s.filler));
        jw_key(&w, "kind");
        jw_cstr(&w, niah_kind_name(s.kind));
        jw_key(&w, "needles");
        jw_int(&w, s.needles);
        json_sums(&w, &b->groups[g]);
        jw_end(&w, '}');
    }
    jw_end(&w, ']');
    jw_key(&w, "runs");
    jw_begin(&w, '[');
    if (b->runs.out.len)
        str_append(&w.out, b->runs.out.data, b->runs.out.len);
    w.out.failed |= b->runs.out.failed;
    w.comma = true;
    jw_end(&w, ']');
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static void print_row(struct str *out, const char *label, const struct sums *s) {
    str_printf(out, "%s %6lld %9lld %6lld %6lld", label, (long long)s->cases,
               (long long)s->too_long, (long long)s->facts, (long long)s->found);
    if (s->cases)
        str_printf(out, " %8.1f %14.1f", 100 * (double)s->found / (double)s->facts,
                   s->first_ms / (double)s->cases);
    str_putc(out, '\n');
}

static int print_table(struct niah *b, struct err *e) {
    struct str out = {0};
    char label[64];
    str_puts(&out, " tokens needles filler  kind      cases  too long  facts  found  found %"
                   "   first token ms\n");
    for (size_t g = 0; g < niah_sweep_groups(&b->sweep); g++) {
        struct niah_spec s = niah_sweep_spec(&b->sweep, g, 0);
        snprintf(label, sizeof label, "%7lld %7d %-7s %-8s", (long long)s.tokens, s.needles,
                 niah_filler_name(s.filler), niah_kind_name(s.kind));
        print_row(&out, label, &b->groups[g]);
    }
    print_row(&out, "all                             ", &b->all);
    return cli_print(&out, e);
}

static int measure(struct niah *b, struct err *e) {
    b->groups = calloc(niah_sweep_groups(&b->sweep), sizeof *b->groups);
    if (!b->groups)
        return err_set(e, ERR_MEMORY, "no memory for the sums of %zu groups",
                       niah_sweep_groups(&b->sweep));
    int rc = decode_open(b->a, false, &b->s, e);
    if (!rc)
        rc = conversation_open(&b->talk, b->a, b->s, e);
    cli_catch_interrupt();
    if (!rc)
        rc = warm_up(b, e);
    if (!rc)
        rc = each_case(b, b->talk.t, ask, e);
    if (rc || cli_interrupted())
        return rc;
    return options_flag(&b->a->opt, OPT_JSON) ? print_json(b, e) : print_table(b, e);
}

static int write_case(struct niah *b, const struct niah_case *c, const struct niah_spec *s,
                      struct sums *group, struct err *e) {
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
    session_close(b.s);
    niah_sweep_fini(&b.sweep);
    str_fini(&b.runs.out);
    free(b.groups);
    return rc;
}
