// SPDX-License-Identifier: Apache-2.0
// `coppice chat` at a terminal with the bundled pair: answers are those of the whole text, turns
// read only what is new, keys edit, every way of typing several lines gives the same message,
// ctrl-C stops what it should, and the terminal is left as it was.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat/terminal.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"
#include "unit/test.h"

enum { EDITOR = HAVE_EDITOR };

#define TARGET MODELS "/coppice-tiny-q8_0.gguf"
#define DRAFT  MODELS "/coppice-tiny-dflash-q8_0.gguf"

struct fixture {
    char home[64], history[128];
};

static int setup(void **state) {
    static struct fixture f;
    snprintf(f.home, sizeof f.home, "/tmp/coppice-chat-%d", (int)getpid());
    snprintf(f.history, sizeof f.history, "%s/.local/state/coppice/chat-history", f.home);
    *state = &f;
    return mkdir(f.home, 0700);
}

static int teardown(void **state) {
    const struct fixture *f = *state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", f->home);
    return system(command);
}

// Starts a chat with the options `more`, a list that ends in NULL, and waits until it is ready.
static void start(const struct fixture *f, struct terminal *t, const char *const *more) {
    char *argv[20] = {(char *)PROGRAM, (char *)"chat", (char *)"-m",       (char *)TARGET,
                      (char *)"-d",    (char *)DRAFT,  (char *)"--device", (char *)"cpu",
                      (char *)"-t",    (char *)"2"};
    for (int i = 0; more[i]; i++)
        argv[10 + i] = (char *)more[i];
    terminal_start(t, f->home, "xterm", argv);
    terminal_wait(t, "/help explains");
    terminal_wait(t, "> ");
}

static const char *const plain[] = {"-n", "40", NULL};

// What the line after an answer says.
struct report {
    long long tokens, read, all, context;
    size_t begin; // where in the output the line begins
};

static struct report wait_report(struct terminal *t) {
    struct report r = {0};
    size_t from = t->seen, at = terminal_wait(t, "; read ");
    terminal_wait(t, "> ");
    while (at > from && t->out.data[at] != '[')
        at--; // the last bracket before is that of an escape sequence or of the line
    while (at > from && t->out.data[at - 1] == '\033')
        while (t->out.data[--at] != '[')
            ;
    r.begin = at;
    assert_int_equal(sscanf(t->out.data + at, "[%lld tokens", &r.tokens), 1);
    const char *s = strstr(t->out.data + at, "; read ");
    assert_int_equal(sscanf(s, "; read %lld of %lld tokens in %*f ms; context %lld of 65536",
                            &r.read, &r.all, &r.context),
                     3);
    return r;
}

// Sends keys and waits for the answer; its text goes to `text` unless that is NULL.
static struct report say(struct terminal *t, const char *keys, struct str *text) {
    terminal_keys(t, keys);
    size_t from = t->seen;
    struct report r = wait_report(t);
    if (text) {
        str_clear(text);
        terminal_text(t, from, r.begin, text);
    }
    return r;
}

// What `generate` says to a prompt.
static void generate(const struct fixture *f, const char *prompt, struct str *out) {
    char path[96], command[512], bytes[256];
    snprintf(path, sizeof path, "%s/prompt", f->home);
    snprintf(command, sizeof command,
             "'%s' generate -m '%s' --device cpu -f '%s' -n 40 --speculate off "
             "--price-cache off 2>/dev/null",
             PROGRAM, TARGET, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(prompt, file);
    fclose(file);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, pipe)) > 0;)
        str_append(out, bytes, n);
    assert_int_equal(pclose(pipe), 0);
}

static void assert_ends_in(const struct str *text, const struct str *end) {
    if (end->len < 2 || text->len < end->len ||
        memcmp(text->data + text->len - end->len, end->data, end->len) != 0)
        fail_msg("this answer:\n%s\nshould end in:\n%s", text->data, end->data);
}

#define ASK(words)  "<|im_start|>user\n" words "<|im_end|>\n<|im_start|>assistant\n"
#define HELLO       "Say hello."
#define FIRST       "<|im_start|>system\nBe brief.<|im_end|>\n" ASK(HELLO)
#define SECOND_PART "<|im_end|>\n" ASK("What is a tuple?")

static void answers_are_of_the_whole_text(void **state) {
    const struct fixture *f = *state;
    static const char *const with_system[] = {"-n", "40", "--system", "Be brief.", NULL};
    struct terminal t;
    struct str got = {0}, want = {0}, prompt = {0};
    start(f, &t, with_system);
    struct report one = say(&t, HELLO "\r", &got);
    generate(f, FIRST, &want);
    assert_ends_in(&got, &want);
    assert_int_equal(one.read, one.all);
    assert_int_equal(one.context, one.all + one.tokens);
    str_puts(&prompt, FIRST);
    str_append(&prompt, want.data, want.len - 1); // without generate's line end
    str_puts(&prompt, SECOND_PART);
    struct report two = say(&t, "What is a tuple?\r", &got);
    str_clear(&want);
    generate(f, prompt.data, &want);
    assert_ends_in(&got, &want);
    // What was read is what came after the last answer, and that answer's last token.
    assert_int_equal(two.read, two.all - (one.context - 1));
    assert_true(two.read < one.all + 10 && two.all > one.context + 10);
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
    str_fini(&got);
    str_fini(&want);
    str_fini(&prompt);
}

// New conversations with one message of two lines, typed in every way, are the same conversation.
static void lines_in_every_way(void **state) {
    const struct fixture *f = *state;
    static const char *const ways[] = {
        "def f(x):\033\r    return x\r",
        "\033[200~def f(x):\r    return x\033[201~\r",
        "\033[200~def f(x):\r\n    return x\r\n\033[201~\r",
        "\"\"\"def f(x):\r    return x\"\"\"\r",
        "\"\"\"\rdef f(x):\r    return x\r\"\"\"\r",
        "def f(x):\r    return x\r", // both at once
    };
    struct terminal t;
    struct str first = {0}, got = {0}, want = {0};
    if (!EDITOR)
        skip();
    start(f, &t, plain);
    generate(f, ASK("def f(x):\n    return x"), &want);
    struct report one = say(&t, ways[0], &first);
    assert_ends_in(&first, &want);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        terminal_keys(&t, "/new\r");
        terminal_wait(&t, "> ");
        struct report r = say(&t, ways[i], &got);
        assert_ends_in(&got, &want);
        assert_int_equal(r.all, one.all);
        assert_int_equal(r.read, one.all);
        assert_int_equal(r.context, one.context);
    }
    terminal_keys(&t, "/quit\r");
    assert_int_equal(terminal_end(&t), 0);
    str_fini(&first);
    str_fini(&got);
    str_fini(&want);
}

// Keys move and delete, ctrl-C drops the line, and the arrow brings old messages back, also those
// of an earlier program.
static void keys_edit(void **state) {
    const struct fixture *f = *state;
    struct terminal t;
    struct str got = {0}, want = {0};
    struct stat info;
    if (!EDITOR)
        skip();
    unlink(f->history);
    generate(f, ASK(HELLO), &want);
    start(f, &t, plain);
    struct report one = say(&t, "ay hllo.x\177\033[D\033[D\033[D\033[De\001S\r", &got);
    assert_ends_in(&got, &want);
    terminal_keys(&t, "/new\r");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "not this");
    terminal_wait(&t, "this");
    terminal_keys(&t, "\003");
    terminal_wait(&t, "> ");
    struct report two = say(&t, "Sei gegr\303\274\303\237t\177\177\177\025" HELLO "\r", &got);
    assert_ends_in(&got, &want);
    assert_int_equal(two.all, one.all);
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
    assert_int_equal(stat(f->history, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    start(f, &t, plain);
    two = say(&t, "\033[A\r", &got);
    assert_ends_in(&got, &want);
    assert_int_equal(two.all, one.all);
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
    str_fini(&got);
    str_fini(&want);
}

// Suspended and resumed, with a terminal that a shell has put into other modes meanwhile, and in a
// window of another size.
static void resumes(void **state) {
    const struct fixture *f = *state;
    const struct winsize wide = {.ws_row = 30, .ws_col = 120};
    struct terminal t;
    struct str got = {0}, want = {0};
    if (!EDITOR)
        skip();
    generate(f, ASK(HELLO), &want);
    start(f, &t, plain);
    terminal_keys(&t, "Say ");
    terminal_wait(&t, "Say ");
    assert_int_equal(kill(t.pid, SIGSTOP), 0);
    WAIT_UNTIL(waitpid(t.pid, NULL, WUNTRACED | WNOHANG) == t.pid);
    assert_int_equal(tcsetattr(t.fd, TCSANOW, &t.before), 0);
    assert_int_equal(kill(t.pid, SIGCONT), 0);
    terminal_wait(&t, "> Say ");
    assert_int_equal(ioctl(t.fd, TIOCSWINSZ, &wide), 0);
    assert_int_equal(kill(t.pid, SIGWINCH), 0);
    terminal_wait(&t, "> Say ");
    struct report r = say(&t, "hello.\r", &got);
    assert_ends_in(&got, &want);
    assert_int_equal(r.read, r.all);
    assert_null(strstr(got.data, "hello.\nhello.")); // shown once
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
    str_fini(&got);
    str_fini(&want);
}

// Answers of random tokens hardly end: this seed's goes on until the context is full. Its first
// thousand tokens hold no control token, which is no part of an answer's text.
static const char *const endless[] = {"--temp", "100", "--seed", "10", NULL};

static void interrupt_stops_the_answer_only(void **state) {
    const struct fixture *f = *state;
    struct terminal t;
    start(f, &t, endless);
    terminal_keys(&t, HELLO "\r");
    terminal_wait(&t, "accept length"); // in the bottom line, while the answer comes
    terminal_wait(&t, "context");
    terminal_keys(&t, "\003");
    size_t from = t.seen;
    struct report one = wait_report(&t);
    assert_non_null(strstr(t.out.data + from, "; stopped]"));
    assert_non_null(strstr(t.out.data + from, "\033[r")); // all lines scroll again
    terminal_keys(&t, "And again.\r");
    terminal_wait(&t, "accept length");
    terminal_keys(&t, "\003");
    struct report two = wait_report(&t);
    assert_int_equal(two.read, two.all - (one.context - 1));
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
}

static void full_contexts_are_reported(void **state) {
    const struct fixture *f = *state;
    static const char *const small[] = {"-c", "64", "--temp", "100", "--seed", "3", NULL};
    struct terminal t;
    start(f, &t, small);
    terminal_keys(&t, HELLO "\r");
    terminal_wait(&t, "context 64 of 64, which is full: /new");
    terminal_wait(&t, "> ");
    terminal_keys(&t, HELLO "\r");
    terminal_wait(&t, "leaves no room in a context of 64");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "/new\r");
    terminal_wait(&t, "> ");
    terminal_keys(&t, HELLO "\r");
    terminal_wait(&t, "context 64 of 64");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
}

static void undo_takes_back(void **state) {
    const struct fixture *f = *state;
    struct terminal t;
    struct str first = {0}, again = {0};
    start(f, &t, plain);
    say(&t, HELLO "\r", NULL);
    struct report one = say(&t, "What is a tuple?\r", &first);
    terminal_keys(&t, "/undo\r");
    terminal_wait(&t, "> ");
    struct report two = say(&t, "What is a tuple?\r", &again);
    assert_string_equal(first.data, again.data);
    assert_int_equal(one.all, two.all);
    assert_int_equal(one.context, two.context);
    terminal_keys(&t, "/undo\r");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "/undo\r");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "/undo\r");
    terminal_wait(&t, "nothing to take back");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "/nonsense\r");
    terminal_wait(&t, "no command /nonsense");
    terminal_wait(&t, "> ");
    terminal_keys(&t, "/quit\r");
    assert_int_equal(terminal_end(&t), 0);
    str_fini(&first);
    str_fini(&again);
}

// A signal to end, at the prompt and in an answer, leaves the terminal in order.
static void termination_leaves_the_terminal(void **state) {
    const struct fixture *f = *state;
    for (int busy = 0; busy < 2; busy++) {
        struct terminal t;
        start(f, &t, endless);
        if (busy) {
            terminal_keys(&t, HELLO "\r");
            terminal_wait(&t, "accept length");
        }
        assert_int_equal(kill(t.pid, SIGTERM), 0);
        if (busy)
            terminal_wait(&t, "\033[r");
        assert_int_equal(terminal_end(&t), 130);
    }
}

// A model of random bytes may say anything, but nothing that a terminal obeys.
static void answers_do_not_steer_the_terminal(void **state) {
    const struct fixture *f = *state;
    struct tiny_shape shape = tiny_shape_default();
    struct terminal t;
    char path[96];
    snprintf(path, sizeof path, "%s/random.gguf", f->home);
    assert_int_equal(tiny_target_write(&shape, path, NULL), 0);
    char *argv[] = {(char *)PROGRAM,    (char *)"chat", (char *)"-m", path,
                    (char *)"--temp",   (char *)"100",  (char *)"-n", (char *)"600",
                    (char *)"--seed",   (char *)"1",    (char *)"-t", (char *)"1",
                    (char *)"--device", (char *)"cpu",  NULL};
    terminal_start(&t, f->home, "dumb", argv);
    terminal_wait(&t, "/help explains");
    terminal_wait(&t, "> ");
    size_t from = t.seen;
    terminal_keys(&t, "x\r");
    terminal_wait(&t, "; read ");
    terminal_wait(&t, "> ");
    assert_true(t.seen - from > 300);
    for (size_t i = from; i < t.out.len; i++) {
        unsigned char c = (unsigned char)t.out.data[i];
        if ((c < 32 && c != '\n' && c != '\t' && c != '\r') || c == 127)
            fail_msg("control character %d in: %s", c, t.out.data + from);
    }
    terminal_keys(&t, "\004");
    assert_int_equal(terminal_end(&t), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_of_the_whole_text),
        cmocka_unit_test(lines_in_every_way),
        cmocka_unit_test(keys_edit),
        cmocka_unit_test(resumes),
        cmocka_unit_test(interrupt_stops_the_answer_only),
        cmocka_unit_test(full_contexts_are_reported),
        cmocka_unit_test(undo_takes_back),
        cmocka_unit_test(termination_leaves_the_terminal),
        cmocka_unit_test(answers_do_not_steer_the_terminal),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
