// SPDX-License-Identifier: Apache-2.0
// `coppice daemon`: commands from standard input, one a line, in the words of the daemon that Luce
// DFlash's scripts start (docs/cli.md). A line that cannot be carried out is answered by "err" with
// a sentence and changes nothing; nothing but quit, exit and the end of the input ends it.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "cli/daemon/daemon.h"

enum { LINE_BYTES = 16384, WORDS = 16 };

// A line in words; samp= and snap= are taken out.
struct line_words {
    char *at[WORDS];
    int n;
    const char *samp, *snap; // what stands after them; NULL: not there
};

static bool split_words(struct line_words *w, char *line) {
    char *rest = NULL;
    *w = (struct line_words){0};
    for (char *word = strtok_r(line, " \t\r\n", &rest); word;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (!strncmp(word, "samp=", 5))
            w->samp = word + 5;
        else if (!strncmp(word, "snap=", 5))
            w->snap = word + 5;
        else if (w->n == WORDS)
            return false;
        else
            w->at[w->n++] = word;
    }
    return true;
}

// A whole number within lo..hi.
static bool read_number(const char *text, int64_t lo, int64_t hi, int64_t *out) {
    char *end;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && *out >= lo && *out <= hi;
}

static bool slot_number(const char *text, int *out) {
    int64_t n;
    bool ok = read_number(text, 0, DAEMON_SLOTS - 1, &n);
    *out = ok ? (int)n : -1;
    return ok;
}

// False: told.
static bool read_slot(struct daemon *d, const char *text, int *out) {
    bool ok = slot_number(text, out);
    if (!ok)
        daemon_fail(d, "bad_args", "'%.80s' is no slot from 0 to %d", text, DAEMON_SLOTS - 1);
    return ok;
}

// samp=temp,top_p,top_k,rep_pen,seed[,freq_pen,pres_pen]; what is left out is off.
static bool read_sampling(const char *text, struct daemon_task *t, struct err *e) {
    double top_k = 0;
    unsigned long long seed = 0;
    struct sample_params *p = &t->sample;
    int end = 0;
    sample_params_init(p);
    int n = sscanf(text, "%lf%n,%lf%n,%lf%n,%lf%n,%llu%n,%lf%n,%lf%n", &p->temperature, &end,
                   &p->top_p, &end, &top_k, &end, &p->repeat, &end, &seed, &end, &p->frequency,
                   &end, &p->presence, &end);
    if (n < 1 || text[end] || !(top_k >= 0 && top_k < 1e9)) {
        err_set(e, ERR_USAGE,
                "samp= is temp,top_p,top_k,rep_pen,seed and perhaps frequency and presence "
                "penalties, not '%.80s'",
                text);
        return false;
    }
    p->top_k = (int64_t)top_k;
    p->seed = seed;
    t->sampled = true;
    return sample_params_check(p, 1, e) == 0;
}

static bool read_suffixes(const struct line_words *w, struct daemon_task *t, struct err *e) {
    if (w->samp && !read_sampling(w->samp, t, e))
        return false;
    const char *colon = w->snap ? strchr(w->snap, ':') : NULL;
    char at[32];
    if (!w->snap)
        return true;
    snprintf(at, sizeof at, "%.*s", colon ? (int)(colon - w->snap) : 0, w->snap);
    if (colon && read_number(at, 1, INT32_MAX, &t->snap_at) &&
        slot_number(colon + 1, &t->snap_slot))
        return true;
    err_set(e, ERR_USAGE, "snap= is a position and a slot below %d, as in 512:0, not '%.80s'",
            DAEMON_SLOTS, w->snap);
    return false;
}

static const char *word_of(int rc) {
    switch (rc) {
    case ERR_USAGE:
        return "bad_args";
    case ERR_IO:
        return "io";
    case ERR_FORMAT:
        return "bad_file";
    case ERR_LIMIT:
        return "too_long";
    case ERR_MISMATCH:
        return "bad_ids";
    case ERR_MEMORY:
        return "no_memory";
    default:
        return "failed";
    }
}

// Code that the three ways to generate share. path: of ids; out: NULL, or where the new ones go.
static void answer_task(struct daemon *d, struct daemon_task *t, const char *path,
                        const char *out) {
    struct daemon_answer y = {0};
    struct err e = {0};
    int rc = out ? cli_keep_inputs(d->a, out, &e) : 0;
    if (!rc)
        rc = daemon_read_ids(&t->prompt, path, out != NULL, &e);
    if (!rc)
        rc = daemon_generate(d, t, &y, &e);
    if (!rc && out)
        rc = daemon_write_ids(out, &y.ids, &e);
    if (rc) {
        daemon_fail(d, word_of(rc), "%s", e.text);
    } else {
        char where[1100];
        snprintf(where, sizeof where, out ? "out=%.1000s" : "stream_fd=%.20s",
                 out ? out : options_str(&d->a->opt, OPT_STREAM_FD));
        daemon_say(d,
                   "ok N=%lld gen=%lld prefix_len=%lld prefill_s=%.3f decode_s=%.3f "
                   "decode_tok_s=%.1f %s",
                   (long long)t->prompt.n, (long long)y.ids.n, (long long)y.reused, y.prompt_s,
                   y.decode_s, y.decode_s > 0 ? (double)y.ids.n / y.decode_s : 0, where);
    }
    free(t->prompt.at);
    free(y.ids.at);
}

// Checks what every way to generate needs. False: told.
static bool may_run(struct daemon *d, const struct line_words *w, struct daemon_task *t,
                    const char *n_gen) {
    struct err e = {0};
    if (!d->s)
        daemon_fail(d, "target_parked", "the target is parked; unpark it first");
    else if (t->streams && d->stream < 0)
        daemon_fail(d, "no_stream_fd", "this needs a descriptor for ids: start with --stream-fd");
    else if (!read_number(n_gen, 1, INT32_MAX, &t->n_gen))
        daemon_fail(d, "bad_args", "'%.80s' is no number of tokens above 0", n_gen);
    else if (!read_suffixes(w, t, &e))
        daemon_fail(d, "bad_args", "%s", e.text);
    else
        return true;
    return false;
}

static bool do_generate(struct daemon *d, const struct line_words *w) {
    struct daemon_task t = {0};
    if (may_run(d, w, &t, w->at[2]))
        answer_task(d, &t, w->at[1], w->at[3]);
    return true;
}

static bool do_bare(struct daemon *d, const struct line_words *w) {
    struct daemon_task t = {.streams = true};
    if (may_run(d, w, &t, w->n > 1 ? w->at[1] : ""))
        answer_task(d, &t, w->at[0], NULL);
    return true;
}

static bool add_slot(struct daemon *d, struct daemon_task *t, const char *text, bool any) {
    int slot;
    if (!read_slot(d, text, &slot))
        return false;
    if (!d->slots[slot].used)
        daemon_fail(d, "empty_slot", "slot %d holds nothing", slot);
    else if (!any && !d->slots[slot].thin)
        daemon_fail(d, "bad_args", "slot %d is not of SNAPSHOT_THIN", slot);
    else {
        t->from[t->n_from++] = slot;
        return true;
    }
    return false;
}

static bool do_restore(struct daemon *d, const struct line_words *w) {
    struct daemon_task t = {.streams = true};
    if (add_slot(d, &t, w->at[1], true) && may_run(d, w, &t, w->at[3]))
        answer_task(d, &t, w->at[2], NULL);
    return true;
}

static bool do_restore_chain(struct daemon *d, const struct line_words *w) {
    struct daemon_task t = {.streams = true};
    if (strcmp(w->at[1], "-1") != 0 && !add_slot(d, &t, w->at[1], true))
        return true;
    char *thin = strcmp(w->at[2], "-") ? w->at[2] : NULL;
    while (thin) {
        char *comma = strchr(thin, ',');
        if (comma)
            *comma = '\0';
        if (t.n_from == DAEMON_SLOTS || !add_slot(d, &t, thin, false))
            return true;
        thin = comma ? comma + 1 : NULL;
    }
    if (may_run(d, w, &t, w->at[4]))
        answer_task(d, &t, w->at[3], NULL);
    return true;
}

static bool do_snapshot(struct daemon *d, const struct line_words *w) {
    bool thin = !strcmp(w->at[0], "SNAPSHOT_THIN");
    struct err e = {0};
    int slot;
    if (!read_slot(d, w->at[1], &slot))
        return true;
    int rc = daemon_slot_save(d, slot, thin, &e);
    if (rc)
        daemon_fail(d, rc == ERR_STATE ? "no_text" : word_of(rc), "%s", e.text);
    else
        daemon_say(d,
                   thin ? "[snapshot_thin] slot=%d pos=%lld" : "[snap] inline slot=%d cur_pos=%lld",
                   slot, (long long)d->slots[slot].ids.n);
    return true;
}

static bool do_free_snapshot(struct daemon *d, const struct line_words *w) {
    int slot;
    if (read_slot(d, w->at[1], &slot)) {
        daemon_slot_free(d, slot);
        daemon_say(d, "[snap] freed slot=%d", slot);
    }
    return true;
}

static bool do_list_slots(struct daemon *d, const struct line_words *w) {
    char line[8 * DAEMON_SLOTS] = "[snap] slots=";
    size_t n = strlen(line);
    const char *between = "";
    (void)w;
    for (int i = 0; i < DAEMON_SLOTS; i++) {
        if (!d->slots[i].used)
            continue;
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%d", between, i);
        between = ",";
    }
    daemon_say(d, "%s", line);
    return true;
}

// Which of the two a line means; false: neither.
static bool read_parts(const struct line_words *w, bool *target, bool *draft) {
    const char *what = w->n > 1 ? w->at[1] : "all";
    bool all = !strcmp(what, "all");
    *target = all || !strcmp(what, "target");
    *draft = all || !strcmp(what, "draft");
    return *target || *draft;
}

// The draft's weights share the target's plan: parked alone it rests, and goes with the target.
static bool do_park(struct daemon *d, const struct line_words *w) {
    bool target, draft;
    if (!read_parts(w, &target, &draft))
        return false;
    if (draft && d->options.draft && !d->draft_parked)
        daemon_say(d, target || !d->s ? "[park] draft released" : "[park] draft rests");
    d->draft_parked |= draft;
    if (target && d->s) {
        daemon_unload(d);
        daemon_say(d, "[park] target released");
    }
    return true;
}

static bool do_unpark(struct daemon *d, const struct line_words *w) {
    bool target, draft;
    struct err e = {0};
    if (!read_parts(w, &target, &draft))
        return false;
    bool loads = target && !d->s;
    int rc = target ? daemon_load(d, &e) : 0;
    if (rc)
        daemon_fail(d, word_of(rc), "%s", e.text);
    else if (loads)
        daemon_say(d, "[unpark] target restored");
    if (!rc && draft && d->draft_parked) {
        d->draft_parked = false;
        daemon_say(d, "[unpark] draft restored");
    }
    return true;
}

// Nothing has to be parked for it, since the weights that have to make room do so by themselves
// (plan_daemon_scorer).
static bool do_compress(struct daemon *d, const struct line_words *w) {
    const char *path = w->n > 3 && strcmp(w->at[3], "nopark") != 0
                           ? w->at[3]
                           : options_str(&d->a->opt, OPT_PREFILL_DRAFTER);
    struct daemon_ids ids = {0};
    struct token_list kept = {0};
    struct err e = {0};
    int64_t keep;
    double ms = 0;
    int rc = 0;
    if (!read_number(w->at[2], 1, 1000, &keep))
        return false;
    if (d->stream < 0) {
        daemon_fail(d, "no_stream_fd", "this needs a descriptor for ids: start with --stream-fd");
    } else if (!path) {
        daemon_fail(d, "no_scorer", "name a scorer in the line, or start with --prefill-drafter");
    } else {
        rc = daemon_read_ids(&ids, w->at[1], false, &e);
        if (!rc)
            rc = daemon_compress(d, path, &ids, (int)keep, &kept, &ms, &e);
        if (!rc)
            rc = daemon_emit(d, kept.ids, (int64_t)kept.count, &e);
        if (rc)
            daemon_fail(d, word_of(rc), "%s", e.text);
        else
            daemon_say(d, "ok compress N=%lld kept=%zu score_s=%.3f", (long long)ids.n, kept.count,
                       ms / 1e3);
    }
    free(ids.at);
    token_list_fini(&kept);
    return true;
}

// The scorer's memory.
static bool do_free(struct daemon *d, const struct line_words *w) {
    if (strcmp(w->at[1], !strcmp(w->at[0], "free") ? "drafter" : "free") != 0)
        return false;
    if (daemon_free_scorer(d))
        daemon_say(d, "[drafter] freed");
    return true;
}

// A line of `min` to `max` words, the first included, or one of which run returns false is
// answered with the usage; one that streams is followed by the stream's end, whatever came of it.
struct command {
    const char *word;
    bool (*run)(struct daemon *d, const struct line_words *w);
    int min, max;
    bool streams;
    const char *usage; // after the word
};
static const struct command commands[] = {
    {"generate", do_generate, 4, 4, false, "IN.BIN TOKENS OUT.BIN"},
    {"RESTORE", do_restore, 4, 4, true, "SLOT IDS.BIN TOKENS"},
    {"RESTORE_CHAIN", do_restore_chain, 5, 5, true, "SLOT|-1 SLOT,SLOT...|- IDS.BIN TOKENS"},
    {"SNAPSHOT", do_snapshot, 2, WORDS, false, "SLOT"},
    {"SNAPSHOT_THIN", do_snapshot, 2, WORDS, true, "SLOT"},
    {"FREE_SNAPSHOT", do_free_snapshot, 2, 2, false, "SLOT"},
    {"LIST_SLOTS", do_list_slots, 1, WORDS, false, ""},
    {"park", do_park, 1, 2, true, "[target|draft]"},
    {"unpark", do_unpark, 1, 2, true, "[target|draft]"},
    {"compress", do_compress, 3, 6, true,
     "IDS.BIN KEEP [SCORER.GGUF] [ARCH] [nopark], KEEP in thousandths from 1 to 1000"},
    {"free", do_free, 2, 2, true, "drafter"},
    {"drafter", do_free, 2, 2, true, "free"}};
static const struct command bare = {"", do_bare, 1, WORDS, true, ""};

static const struct command *find_command(const char *word) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(word, commands[i].word))
            return &commands[i];
    return strchr(word, '/') || word[0] == '.' ? &bare : NULL;
}

static void carry_out(struct daemon *d, char *line) {
    struct line_words w;
    char first[80];
    snprintf(first, sizeof first, "%.60s", line);
    first[strcspn(first, "\r\n")] = '\0';
    bool fits = split_words(&w, line);
    const struct command *c = fits && w.n ? find_command(w.at[0]) : NULL;
    if (!fits)
        daemon_fail(d, "bad_args", "the line has more than %d words", WORDS);
    else if (!c)
        daemon_fail(d, "unknown_command", "there is no command '%s'", first);
    else if (w.n < c->min || w.n > c->max || !c->run(d, &w))
        daemon_fail(d, "bad_args", "it is: %s %s", c->word, c->usage);
    if (!c || c->streams)
        daemon_end_stream(d);
}

// Reads a line; a longer one is read to its end and refused. False at the end of the input.
static bool next_line(struct daemon *d, char line[LINE_BYTES]) {
    while (fgets(line, LINE_BYTES, stdin)) {
        if (strchr(line, '\n') || feof(stdin) || strlen(line) + 1 < LINE_BYTES)
            return true;
        for (int c = 0; c != '\n' && c != EOF;)
            c = getchar();
        daemon_fail(d, "bad_args", "a line is longer than %d bytes", LINE_BYTES - 2);
        daemon_end_stream(d);
    }
    return false;
}

static int serve_lines(struct daemon *d) {
    char line[LINE_BYTES];
    daemon_say(d, "[daemon] ready");
    while (!d->rc && next_line(d, line)) {
        size_t n = strcspn(line, "\r\n");
        if ((n == 4 && !strncmp(line, "quit", n)) || (n == 4 && !strncmp(line, "exit", n)))
            break;
        carry_out(d, line);
    }
    return d->rc;
}

static int open_id_stream(struct daemon *d, struct err *e) {
    d->stream = -1;
    if (!options_given(&d->a->opt, OPT_STREAM_FD))
        return 0;
    d->stream = (int)options_int(&d->a->opt, OPT_STREAM_FD);
    int flags = fcntl(d->stream, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return err_set(e, ERR_USAGE, "--stream-fd %d is no open descriptor that can be written to",
                       d->stream);
    return 0;
}

// Where the scorer is known and shares the target's GPU, both are planned together.
static int plan_daemon_scorer(struct daemon *d, struct err *e) {
    const char *path = options_str(&d->a->opt, OPT_PREFILL_DRAFTER);
    if (!path)
        return 0;
    int rc = daemon_load_scorer(d, path, e);
    return rc ? rc : compression_share(&d->scorer, d->a, &d->options, e);
}

int cmd_daemon(const struct cli_args *a, struct err *e) {
    struct daemon d = {.a = a};
    signal(SIGPIPE, SIG_IGN); // a reader that goes away is an error of its line
    bool choose;
    int rc = open_id_stream(&d, e);
    if (!rc)
        rc = decode_session(a, &d.options, &d.files, e);
    d.options.target.max_verify = 1 + decode_budget(a, &choose);
    if (!rc)
        rc = plan_daemon_scorer(&d, e);
    if (!rc)
        rc = daemon_load(&d, e);
    if (!rc)
        decode_show_plan(a, d.s);
    if (!rc && (rc = serve_lines(&d)))
        *e = d.said;
    for (int i = 0; i < DAEMON_SLOTS; i++)
        daemon_slot_free(&d, i);
    daemon_free_scorer(&d);
    daemon_unload(&d);
    decode_files_fini(&d.files);
    return rc;
}
