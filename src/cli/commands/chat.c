// SPDX-License-Identifier: Apache-2.0
// `coppice chat`: messages in, answers out, over one transcript that grows. Before each answer the
// template writes the whole conversation; what the transcript holds of it already stays, tokens of
// the model as they were chosen, so nothing is read again that the template leaves as it was.
// What it costs is shown while an answer comes and after it.
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "cli/chat/dialog.h"
#include "cli/chat/terminal.h"
#include "cli/models/decode.h"
#include "compress/prefill.h"
#include "engine/batch/transcript.h"

enum { SESSION = 1 }; // for keep ratios

struct chat {
    const struct cli_args *a;
    struct session *s;
    struct transcript *t;
    struct edit *in;
    struct dialog said;
    struct compression compression;
    struct adapt adapt; // of one session
    bool terminal;
};

// An answer while it is made.
struct answer {
    struct chat *c;
    struct status status;
    struct reasoning parts;
    struct str bytes, thought, text; // of the newest tokens
    struct str all_thought, all;     // of the answer so far
    bool dim;                        // the terminal shows reasoning now
    int64_t tokens, passes;          // of the target after the prompt
    double first;                    // when the first token was chosen, in milliseconds
    int rc;                          // first failed write
    struct err *e;
};

// Text of a model must not steer the terminal: control characters are shown as U+FFFD.
static void write_visible(struct str *out, const char *s, size_t n) {
    static const char shown[] = "\xEF\xBF\xBD";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i], next = i + 1 < n ? (unsigned char)s[i + 1] : 0;
        bool pair = c == 0xC2 && next >= 0x80 && next < 0xA0; // C1
        if (pair || c == 127 || (c < 32 && c != '\n' && c != '\t'))
            str_append(out, shown, sizeof shown - 1);
        else
            str_putc(out, (char)c);
        i += pair;
    }
}

// Reasoning is shown on a terminal only, dim where it can be.
static void show_part(struct answer *w, struct str *out, const struct str *part, bool thought) {
    static const char dim[] = "\033[2m", bright[] = "\033[0m\n\n";
    if (part->len == 0 || (thought && !w->c->terminal))
        return;
    if (thought != w->dim && cli_may_dim(STDOUT_FILENO))
        str_puts(out, thought ? dim : bright);
    else if (thought != w->dim && !thought)
        str_puts(out, "\n\n");
    w->dim = thought;
    if (w->c->terminal)
        write_visible(out, part->data, part->len);
    else
        str_append(out, part->data, part->len);
}

static void keep_part(struct str *all, struct str *part) {
    if (part->len)
        str_append(all, part->data, part->len);
    all->failed = all->failed || part->failed;
}

static void show_new_text(struct answer *w) {
    struct str shown = {0};
    show_part(w, &shown, &w->thought, true);
    show_part(w, &shown, &w->text, false);
    keep_part(&w->all_thought, &w->thought);
    keep_part(&w->all, &w->text);
    if (w->all_thought.failed || w->all.failed || w->bytes.failed || shown.failed)
        w->rc = err_set(w->e, ERR_MEMORY, "no memory for the text of the answer");
    else if (shown.len && !w->rc)
        w->rc = cli_write(shown.data, shown.len, w->e);
    str_fini(&shown);
    str_clear(&w->thought);
    str_clear(&w->text);
}

static void show_progress(struct answer *w) {
    const struct chat *c = w->c;
    char text[160];
    double ms = clock_ms() - w->first;
    int64_t later = w->tokens - 1;
    if (w->passes > 0 && ms > 0)
        snprintf(text, sizeof text,
                 "%lld tokens, %.1f tok/s, accept length %.2f; context %lld of %lld",
                 (long long)w->tokens, (double)later * 1000 / ms, (double)later / (double)w->passes,
                 (long long)(transcript_len(c->t) + w->tokens),
                 (long long)model_max_ctx(session_model(c->s)));
    else
        snprintf(text, sizeof text, "%lld tokens", (long long)w->tokens);
    status_show(&w->status, text);
}

static int on_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct answer *w = arg;
    if (w->tokens == 0)
        w->first = clock_ms();
    else
        w->passes++;
    w->tokens += n;
    str_clear(&w->bytes);
    for (int64_t i = 0; i < n; i++)
        if (!tokenizer_is_eog(w->c->said.t, ids[i]))
            reasoning_decode(w->parts.family, w->c->said.t, ids[i], &w->bytes);
    if (w->bytes.len)
        reasoning_push(&w->parts, w->bytes.data, w->bytes.len, &w->thought, &w->text);
    show_new_text(w);
    show_progress(w);
    return w->rc || cli_interrupted();
}

static int on_progress(void *arg, int64_t done, int64_t total) {
    struct answer *w = arg;
    char text[80];
    snprintf(text, sizeof text, "reading, %lld of %lld tokens", (long long)done, (long long)total);
    status_show(&w->status, text);
    return cli_interrupted();
}

// One line about what an answer cost, on a terminal or when requested.
static void report_answer(const struct chat *c, const struct reply *y) {
    bool dim = cli_may_dim(STDERR_FILENO);
    const struct step_times *m = &y->ms;
    double ms = decode_ms(m);
    if (!(c->terminal && isatty(STDERR_FILENO)) && !options_flag(&c->a->opt, OPT_VERBOSE))
        return;
    fprintf(stderr, "%s[%lld tokens", dim ? "\033[2m" : "", (long long)y->n);
    if (y->steps > 0 && ms > 0)
        fprintf(stderr, ", %.1f tok/s, accept length %.2f", (double)(y->n - 1) * 1000 / ms,
                (double)(y->n - 1) / (double)y->steps);
    fprintf(stderr, "; read %lld of %lld tokens in %.1f ms; context %lld of %lld%s]%s\n",
            (long long)y->fed, (long long)(transcript_len(c->t) - y->n), m->prompt,
            (long long)transcript_len(c->t), (long long)model_max_ctx(session_model(c->s)),
            y->end == END_CONTEXT  ? ", which is full: /new begins again"
            : y->end == END_CALLER ? "; stopped"
                                   : "",
            dim ? "\033[0m" : "");
}

// Brings the transcript to the beginning of the assistant's next answer. *inside: in reasoning.
static int prepare_answer(struct chat *c, bool *inside, struct err *e) {
    struct chat_text x = {0};
    struct token_list rest = {0};
    const struct chat_tokens before = {transcript_tokens(c->t), (size_t)transcript_len(c->t)};
    size_t kept = 0;
    token_list_bound(&rest, model_max_ctx(session_model(c->s)));
    int rc = dialog_render(&c->said, &x, e);
    if (!rc)
        rc = chat_encode_after(c->said.t, &x, &before, &kept, &rest, e);
    if (!rc)
        rc = transcript_cut(c->t, (int64_t)kept, e);
    if (!rc)
        rc = transcript_append(c->t, rest.ids, (int64_t)rest.count, e);
    *inside = x.in_reasoning;
    token_list_fini(&rest);
    chat_text_fini(&x);
    return rc;
}

// Generates the answer to what was said last and adds it to the conversation.
static int generate_answer(struct chat *c, struct reply *y, bool inside, struct err *e) {
    struct answer w = {.c = c, .e = e};
    struct request r;
    reasoning_init(&w.parts, chat_template_reasoning(c->said.form), inside);
    decode_request(c->a, c->s, &r);
    int64_t max = options_int(&c->a->opt, OPT_ANSWER_TOKENS);
    r.max_tokens = max ? max : INT64_MAX;
    r.tokens = on_tokens;
    r.progress = on_progress;
    r.tokens_arg = r.progress_arg = &w;
    if (c->terminal)
        status_begin(&w.status);
    int rc = transcript_generate(c->t, &r, y, e);
    reasoning_end(&w.parts, &w.thought, &w.text);
    show_new_text(&w);
    if (!rc)
        rc = w.rc;
    if (w.tokens || !rc) {
        bool dim = w.dim && cli_may_dim(STDOUT_FILENO);
        int written = cli_write(dim ? "\033[0m\n" : "\n", dim ? 5 : 1, e);
        rc = rc ? rc : written;
    }
    status_end(&w.status);
    cli_take_interrupt();
    if (!rc)
        rc = dialog_say(&c->said, CONVERSATION_ASSISTANT, &w.all, &w.all_thought, e);
    reasoning_fini(&w.parts);
    str_fini(&w.bytes);
    str_fini(&w.thought);
    str_fini(&w.text);
    str_fini(&w.all);
    str_fini(&w.all_thought);
    return rc;
}

// The message that stands before the conversation, if there is one.
static int put_system(struct chat *c, struct err *e) {
    const char *text = options_str(&c->a->opt, OPT_SYSTEM);
    struct str s = {0};
    if (!text)
        return 0;
    str_puts(&s, text);
    int rc = dialog_say(&c->said, CONVERSATION_SYSTEM, &s, NULL, e);
    str_fini(&s);
    return rc ? err_prefix(e, "--system") : 0;
}

static int show_error(const struct chat *c, int rc, const struct err *e) {
    if (!c->terminal || (rc != ERR_LIMIT && rc != ERR_MEMORY))
        return rc;
    fprintf(stderr, "coppice chat: %s; /new begins again, /undo takes a message back\n", e->text);
    return 0;
}

static int answer_message(struct chat *c, const struct str *text, struct err *e) {
    struct prefill_report shortened = {0};
    struct reply y = {0};
    int before = c->said.conversation.n_turns;
    int64_t tokens = transcript_len(c->t);
    bool inside = false;
    if (c->compression.options.adapt)
        prefill_adapt(&c->compression.options, adapt_keep(&c->adapt, SESSION));
    int rc = dialog_say(&c->said, CONVERSATION_USER, text, NULL, e);
    if (!rc)
        rc = dialog_shorten(&c->said, &c->compression, model_max_ctx(session_model(c->s)) - 1,
                            &shortened, e);
    if (!rc)
        rc = prepare_answer(c, &inside, e);
    if (!rc && shortened.tried && !shortened.reason) {
        shortened.to = transcript_len(c->t);
        compression_show(&shortened);
    }
    if (!rc)
        rc = generate_answer(c, &y, inside, e);
    if (!rc)
        report_answer(c, &y);
    double share = y.drafted > 0 ? adapt_share(y.n - 1, y.steps) : -1;
    if (!rc && share >= 0)
        adapt_note(&c->adapt, SESSION, share);
    if (rc) { // as if nothing had been said
        dialog_cut(&c->said, before);
        transcript_cut(c->t, min_i64(tokens, transcript_len(c->t)), NULL);
    }
    reply_fini(&y);
    return rc ? show_error(c, rc, e) : 0;
}

static int first_message(const struct chat *c) {
    return options_str(&c->a->opt, OPT_SYSTEM) ? 1 : 0;
}

static int undo_message(struct chat *c) {
    if (c->said.conversation.n_turns <= first_message(c))
        fprintf(stderr, "There is nothing to take back.\n");
    else
        dialog_cut(&c->said, c->said.conversation.n_turns - 2); // a message and its answer
    return 0;
}

static int begin_again(struct chat *c, struct err *e) {
    dialog_cut(&c->said, first_message(c));
    return transcript_cut(c->t, 0, e);
}

static int show_help(struct err *e) {
    static const char text[] =
        "/new    forget the conversation\n"
        "/undo   take the last message and its answer back\n"
        "/quit   end; so does ctrl-D\n"
        "Ctrl-C stops an answer. Alt-Enter begins a new line. A message of several lines may be\n"
        "pasted, or stand between two marks of three quotation marks (\"\"\").\n";
    return cli_write(text, sizeof text - 1, e);
}

// Whether a message is one word that begins with a slash: then it is for the program.
static bool is_command(const struct str *m) {
    return m->data[0] == '/' && !memchr(m->data + 1, '/', m->len - 1) &&
           strcspn(m->data, " \t\n") == m->len;
}

static int run_command(struct chat *c, const char *word, bool *quit, struct err *e) {
    if (!strcmp(word, "/quit") || !strcmp(word, "/exit"))
        *quit = true;
    else if (!strcmp(word, "/new"))
        return begin_again(c, e);
    else if (!strcmp(word, "/undo"))
        return undo_message(c);
    else if (!strcmp(word, "/help"))
        return show_help(e);
    else
        fprintf(stderr, "There is no command %s; /help lists them.\n", word);
    return 0;
}

static int run_conversation(struct chat *c, struct err *e) {
    struct str message = {0};
    bool quit = false;
    int rc = 0;
    while (!rc && !quit) {
        int got = edit_read(c->in, &message, e);
        cli_take_interrupt();
        if (got < 0)
            rc = got;
        else if (got == EDIT_END || cli_interrupted())
            quit = true;
        else if (got == EDIT_CANCELLED || message.len == 0)
            continue;
        else if (is_command(&message))
            rc = run_command(c, message.data, &quit, e);
        else
            rc = answer_message(c, &message, e);
    }
    str_fini(&message);
    return rc;
}

static int open_input(struct chat *c, struct err *e) {
    const char *file = options_str(&c->a->opt, OPT_HISTORY);
    struct str path = {0};
    if (!strcmp(file, "auto"))
        edit_history_file(&path);
    else if (strcmp(file, "none") != 0)
        str_puts(&path, file);
    int rc = edit_create(&c->in, path.len && !path.failed ? path.data : NULL, e);
    str_fini(&path);
    if (!rc)
        c->terminal = edit_on_terminal(c->in);
    return rc;
}

// Makes everything ready, so that what cannot work is reported before the first message.
static int open_chat(struct chat *c, struct err *e) {
    int rc = dialog_open(&c->said, c->a, c->s, e);
    if (!rc)
        rc = put_system(c, e);
    if (!rc)
        rc = transcript_create(&c->t, c->s, e);
    return rc ? rc : open_input(c, e);
}

int cmd_chat(const struct cli_args *a, struct err *e) {
    struct chat c = {.a = a};
    int rc = decode_open_with_scorer(a, &c.compression, &c.s, e);
    if (!rc)
        rc = open_chat(&c, e);
    if (!rc) {
        cli_watch_interrupt();
        if (c.terminal)
            fprintf(stderr, "/help explains; ctrl-D ends\n");
        rc = run_conversation(&c, e);
    }
    edit_destroy(c.in);
    transcript_destroy(c.t);
    dialog_close(&c.said);
    session_close(c.s);
    compression_close(&c.compression);
    return rc;
}
