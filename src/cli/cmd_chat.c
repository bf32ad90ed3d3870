// SPDX-License-Identifier: Apache-2.0
// `coppice chat`: messages in, answers out, over one transcript that grows. Tokens of the model
// stay as they were chosen, so nothing of an earlier turn is ever read again. What it costs is
// shown while an answer comes and behind it.
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/decode.h"
#include "cli/edit.h"
#include "cli/status.h"
#include "engine/transcript.h"
#include "text/chatml.h"

struct chat {
    const struct cli_args *a;
    struct session *s;
    struct transcript *t;
    struct edit *in;
    struct chatml form;
    struct token_list starts; // where in the transcript each of the user's messages begins
    bool terminal;
};

// An answer while it is made.
struct answer {
    struct chat *c;
    struct status status;
    struct utf8_stream utf8;
    struct str bytes, text;
    int64_t tokens, passes; // of the target behind the prompt
    double first;           // when the first token was chosen, in milliseconds
    int rc;                 // first failed write
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

static void put_text(struct answer *w) {
    struct str visible = {0};
    if (w->c->terminal)
        write_visible(&visible, w->text.data ? w->text.data : "", w->text.len);
    const struct str *s = w->c->terminal ? &visible : &w->text;
    if (w->text.failed || w->bytes.failed || s->failed)
        w->rc = err_set(w->e, ERR_MEMORY, "no memory for the text of the answer");
    else if (s->len && !w->rc)
        w->rc = cli_write(s->data, s->len, w->e);
    str_fini(&visible);
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
        tokenizer_decode(session_tokenizer(w->c->s), ids[i], false, &w->bytes);
    if (w->bytes.len)
        utf8_stream_push(&w->utf8, w->bytes.data, w->bytes.len, &w->text);
    put_text(w);
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

// One line about what an answer cost, on a terminal or when asked for.
static void report(const struct chat *c, const struct reply *y) {
    bool dim = status_may_dim(STDERR_FILENO);
    const struct step_times *m = &y->ms;
    double ms = m->draft + m->verify + m->commit + m->sample;
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

static int append(struct chat *c, const struct token_list *l, struct err *e) {
    return transcript_append(c->t, l->ids, (int64_t)l->count, e);
}

// Generates the answer to a transcript that ends in the beginning of the assistant's message.
static int speak(struct chat *c, struct reply *y, struct err *e) {
    struct answer w = {.c = c, .e = e};
    struct request r;
    decode_request(c->a, c->s, &r);
    int64_t most = options_int(&c->a->opt, OPT_ANSWER_TOKENS);
    r.max_tokens = most ? most : INT64_MAX;
    r.tokens = on_tokens;
    r.progress = on_progress;
    r.tokens_arg = r.progress_arg = &w;
    if (c->terminal)
        status_begin(&w.status);
    int rc = transcript_generate(c->t, &r, y, e);
    utf8_stream_end(&w.utf8, &w.text);
    str_puts(&w.text, w.tokens || !rc ? "\n" : "");
    put_text(&w);
    status_end(&w.status);
    cli_take_interrupt();
    str_fini(&w.bytes);
    str_fini(&w.text);
    return rc ? rc : w.rc;
}

// What follows an answer: its end mark, unless the model has made it.
static int close_answer(struct chat *c, const struct reply *y, struct err *e) {
    struct token_list l = {0};
    bool ended = y->n > 0 && y->ids[y->n - 1] == c->form.end;
    int rc = chatml_close(&c->form, ended, &l, e);
    if (!rc)
        rc = append(c, &l, e);
    token_list_fini(&l);
    return rc;
}

// Appends the message that stands before the conversation, if there is one.
static int put_system(const struct chat *c, struct token_list *l, struct err *e) {
    const char *text = options_str(&c->a->opt, OPT_SYSTEM);
    int rc = text ? chatml_message(&c->form, "system", text, strlen(text), l, e) : 0;
    return rc ? err_prefix(e, "--system") : 0;
}

static int append_message(struct chat *c, const struct str *text, struct err *e) {
    struct token_list l = {0};
    int rc = transcript_len(c->t) == 0 ? put_system(c, &l, e) : 0;
    if (!rc)
        rc = chatml_message(&c->form, "user", text->data, text->len, &l, e);
    if (!rc)
        rc = chatml_open(&c->form, "assistant", &l, e);
    if (!rc)
        rc = append(c, &l, e);
    token_list_fini(&l);
    return rc;
}

static int complain(const struct chat *c, int rc, const struct err *e) {
    if (!c->terminal || (rc != ERR_LIMIT && rc != ERR_MEMORY))
        return rc;
    fprintf(stderr, "coppice chat: %s; /new begins again, /undo takes a message back\n", e->text);
    return 0;
}

static int answer(struct chat *c, const struct str *text, struct err *e) {
    struct reply y = {0};
    int64_t before = transcript_len(c->t);
    int rc = token_list_push(&c->starts, (int32_t)before, e);
    if (rc)
        return complain(c, rc, e);
    rc = append_message(c, text, e);
    if (!rc)
        rc = speak(c, &y, e);
    if (!rc)
        report(c, &y);
    if (!rc)
        rc = close_answer(c, &y, e);
    if (rc) { // as if nothing had been said
        c->starts.count--;
        transcript_cut(c->t, before, NULL);
    }
    reply_fini(&y);
    return rc ? complain(c, rc, e) : 0;
}

static int begin_again(struct chat *c, struct err *e) {
    c->starts.count = 0;
    return transcript_cut(c->t, 0, e);
}

static int undo(struct chat *c, struct err *e) {
    if (c->starts.count == 0) {
        fprintf(stderr, "There is nothing to take back.\n");
        return 0;
    }
    return transcript_cut(c->t, c->starts.ids[--c->starts.count], e);
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

static int obey(struct chat *c, const char *word, bool *quit, struct err *e) {
    if (!strcmp(word, "/quit") || !strcmp(word, "/exit"))
        *quit = true;
    else if (!strcmp(word, "/new"))
        return begin_again(c, e);
    else if (!strcmp(word, "/undo"))
        return undo(c, e);
    else if (!strcmp(word, "/help"))
        return show_help(e);
    else
        fprintf(stderr, "There is no command %s; /help lists them.\n", word);
    return 0;
}

static int converse(struct chat *c, struct err *e) {
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
            rc = obey(c, message.data, &quit, e);
        else
            rc = answer(c, &message, e);
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

// Makes everything ready, so that what cannot work is told before the first message.
static int prepare(struct chat *c, struct err *e) {
    struct token_list l = {0};
    const struct tokenizer *t = session_tokenizer(c->s);
    int rc = t ? chatml_init(&c->form, t, e)
               : err_set(e, ERR_UNSUPPORTED, "%s has no tokenizer; 'generate --ids' can run it",
                         options_str(&c->a->opt, OPT_MODEL));
    if (!rc)
        rc = put_system(c, &l, e);
    if (!rc)
        rc = transcript_create(&c->t, c->s, e);
    token_list_fini(&l);
    return rc ? rc : open_input(c, e);
}

int cmd_chat(const struct cli_args *a, struct err *e) {
    struct chat c = {.a = a};
    int rc = decode_open(a, false, &c.s, e);
    if (rc)
        return rc;
    rc = prepare(&c, e);
    if (!rc) {
        cli_watch_interrupt();
        if (c.terminal)
            fprintf(stderr, "/help explains; ctrl-D ends\n");
        rc = converse(&c, e);
    }
    edit_destroy(c.in);
    transcript_destroy(c.t);
    token_list_fini(&c.starts);
    session_close(c.s);
    return rc;
}
