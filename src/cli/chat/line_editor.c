// SPDX-License-Identifier: Apache-2.0
// Line editing by libedit; see line_editor.h. Bytes are read here and handed over as characters:
// libedit gives up at a second interrupted read, and does not support pastes, which terminals put
// between two escape sequences in that mode (bracketed paste) and which are taken in one piece.
#include "cli/chat/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/cli.h"

enum { HISTORY = 1000, READ_AHEAD = 4096, BAD = 0xFFFD };

#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN L"\033[200~"
static const char paste_end[] = "\033[201~";

struct line_editor {
    EditLine *el;
    HistoryW *history;
    char *path;            // of the history's file, or NULL
    wchar_t prompt[8];     // of the line that is read
    struct termios before; // if known
    bool known;
    struct winsize size;
    sigset_t awake;                  // signals that come while a key is waited for
    unsigned char ahead[READ_AHEAD]; // read and not yet taken: [at .. end)
    size_t at, end;
};

static struct line_editor *self(EditLine *el) {
    void *p = NULL;
    el_wget(el, EL_CLIENTDATA, &p);
    return p;
}

// Notifies libedit when the window has another size than it thinks.
static void follow_size(struct line_editor *le) {
    struct winsize now;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &now) ||
        (now.ws_row == le->size.ws_row && now.ws_col == le->size.ws_col))
        return;
    le->size = now;
    el_resize(le->el);
}

// After a signal that stops nothing: the window may have another size, and who took the terminal
// while this program was suspended may have left it in other modes.
static void take_terminal(struct line_editor *le) {
    follow_size(le);
    el_wset(le->el, EL_PREP_TERM, 0);
    el_wset(le->el, EL_PREP_TERM, 1);
    if (cli_terminal(STDOUT_FILENO))
        cli_write(PASTE_ON, sizeof PASTE_ON - 1, NULL);
    el_wset(le->el, EL_REFRESH);
}

// Waits for a key or a signal. Signals come here only, so that none can slip in between a look at
// what it has left and the wait. 1: a key; 0: something else.
static int wait_for_key(struct line_editor *le) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (ppoll(&in, 1, NULL, &le->awake) >= 0 || errno != EINTR)
        return 1;
    if (!cli_interrupted())
        take_terminal(le);
    return 0;
}

// The next byte: 1; 0 at the end of input; -1 when a signal stops it.
static int next_byte(struct line_editor *le, unsigned char *out) {
    while (le->at == le->end) {
        if (cli_interrupted())
            return -1;
        if (!wait_for_key(le))
            continue;
        ssize_t n = read(STDIN_FILENO, le->ahead, sizeof le->ahead);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        le->at = 0;
        le->end = n < 0 ? 0 : (size_t)n;
    }
    *out = le->ahead[le->at++];
    return 1;
}

// The next character, U+FFFD for bytes that are none: what libedit reads by.
static int next_character(EditLine *el, wchar_t *out) {
    struct line_editor *le = self(el);
    char bytes[4];
    int length = 0;
    uint32_t code = 0;
    for (size_t n = 0; n < sizeof bytes && length == 0; n++) {
        unsigned char byte;
        int rc = next_byte(le, &byte);
        if (rc <= 0)
            return rc;
        bytes[n] = (char)byte;
        length = utf8_decode(bytes, n + 1, &code);
        if (length < 0 && n > 0)
            le->at--; // the byte begins something else
    }
    *out = length > 0 ? (wchar_t)code : BAD;
    follow_size(le);
    return 1;
}

// Inserts UTF-8 at the cursor. Control characters other than line ends and tabs are left out.
static void insert(EditLine *el, const char *text, size_t n) {
    wchar_t *wide = malloc((n + 1) * sizeof *wide);
    size_t count = 0;
    if (!wide)
        return;
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        int length = utf8_decode(text + i, n - i, &code);
        if (length <= 0)
            break;
        bool control = code < 32 || (code >= 127 && code < 160);
        if (!control || code == '\n' || code == '\t')
            wide[count++] = (wchar_t)code;
        i += (size_t)length;
    }
    wide[count] = L'\0';
    el_winsertstr(el, wide);
    free(wide);
}

// Inserts what lies before the mark that ends a paste. libedit's terminal exchanges '\r' and '\n',
// so that a line end may arrive as either or as both.
static unsigned char take_paste(EditLine *el, wint_t key) {
    struct line_editor *le = self(el);
    struct str raw = {0}, text = {0};
    unsigned char byte, last = 0;
    const size_t mark = sizeof paste_end - 1;
    (void)key;
    while (!raw.failed && next_byte(le, &byte) > 0) {
        bool line = byte == '\r' || byte == '\n', pair = line && last + byte == '\r' + '\n';
        last = pair ? 0 : byte;
        if (!pair)
            str_putc(&raw, line ? '\n' : (char)byte);
        if (raw.len >= mark && !memcmp(raw.data + raw.len - mark, paste_end, mark)) {
            raw.len -= mark;
            break;
        }
    }
    if (raw.len)
        utf8_sanitise(&text, raw.data, raw.len);
    if (text.len)
        insert(el, text.data, text.len);
    str_fini(&raw);
    str_fini(&text);
    return CC_REFRESH;
}

static unsigned char break_line(EditLine *el, wint_t key) {
    (void)key;
    el_winsertstr(el, L"\n");
    return CC_REFRESH;
}

static wchar_t *prompt_of(EditLine *el) {
    return self(el)->prompt;
}

// libedit measures characters by the locale: one with UTF-8 is needed, whatever the language.
static void choose_locale(void) {
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static void wake(int number) {
    (void)number;
}

// These two need no handler but one that is there, so that waiting for a key ends.
static void wake_on_signals(void) {
    struct sigaction action = {.sa_handler = wake};
    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
}

// Holds signals back while a line is read, but for the waits; `awake` is the mask of these.
static void hold_signals(struct line_editor *le) {
    static const int held[] = {SIGINT, SIGTERM, SIGHUP, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sigaddset(&set, held[i]);
    pthread_sigmask(SIG_BLOCK, &set, &le->awake);
}

static void bind_keys(EditLine *el) {
    el_wset(el, EL_EDITOR, L"emacs");
    el_wset(el, EL_SIGNAL, 0);
    // Between two lines, too: keys are not shown, and wait as they are while an answer comes.
    el_wset(el, EL_SETTY, L"-x", L"-echo", L"-icanon", L"+inlcr", NULL);
    el_wset(el, EL_GETCFN, next_character);
    el_wset(el, EL_PROMPT, prompt_of);
    el_wset(el, EL_ADDFN, L"coppice-paste", L"Insert a paste", take_paste);
    el_wset(el, EL_ADDFN, L"coppice-break", L"Insert a line end", break_line);
    el_wset(el, EL_BIND, PASTE_BEGIN, L"coppice-paste", NULL);
    el_wset(el, EL_BIND, L"\033\n", L"coppice-break", NULL);
    el_wset(el, EL_BIND, L"\033\r", L"coppice-break", NULL);
    el_wset(el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
    el_source(el, NULL); // the user's own keys
}

static int open_history(struct line_editor *le, const char *path, struct err *e) {
    HistEventW event;
    le->history = history_winit();
    le->path = path ? strdup(path) : NULL;
    if (!le->history || (path && !le->path))
        return err_set(e, ERR_MEMORY, "no memory for the history of messages");
    history_w(le->history, &event, H_SETSIZE, HISTORY);
    history_w(le->history, &event, H_SETUNIQUE, 1);
    if (le->path)
        history_w(le->history, &event, H_LOAD, le->path);
    el_wset(le->el, EL_HIST, history_w, le->history);
    return 0;
}

int line_editor_create(struct line_editor **out, const char *history, struct err *e) {
    struct line_editor *le = calloc(1, sizeof *le);
    if (!le)
        return err_set(e, ERR_MEMORY, "no memory for a line editor");
    choose_locale();
    le->known = tcgetattr(STDIN_FILENO, &le->before) == 0;
    ioctl(STDIN_FILENO, TIOCGWINSZ, &le->size);
    le->el = el_init("coppice", stdin, stdout, stderr);
    int rc = 0;
    if (!le->el)
        rc = err_set(e, ERR_IO,
                     "this terminal cannot be used for editing; set TERM, or feed the "
                     "messages through a pipe");
    if (!rc) {
        el_wset(le->el, EL_CLIENTDATA, le);
        bind_keys(le->el);
        wake_on_signals();
        rc = open_history(le, history, e);
    }
    if (rc)
        line_editor_destroy(le);
    else
        *out = le;
    return rc;
}

void line_editor_destroy(struct line_editor *le) {
    if (!le)
        return;
    if (le->el)
        el_end(le->el);
    if (le->history)
        history_wend(le->history);
    if (le->known)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &le->before);
    free(le->path);
    free(le);
}

int line_editor_read(struct line_editor *le, const char *prompt, struct str *out, struct err *e) {
    int n = 0;
    swprintf(le->prompt, sizeof le->prompt / sizeof *le->prompt, L"%s", prompt);
    bool pastes = cli_terminal(STDOUT_FILENO);
    int rc = pastes ? cli_write(PASTE_ON, sizeof PASTE_ON - 1, e) : 0;
    if (rc)
        return rc;
    hold_signals(le);
    const wchar_t *line = el_wgets(le->el, &n);
    pthread_sigmask(SIG_SETMASK, &le->awake, NULL);
    rc = pastes ? cli_write(PASTE_OFF, sizeof PASTE_OFF - 1, e) : 0;
    if (rc)
        return rc;
    if (!line || n <= 0) {
        rc = cli_write("\n", 1, e);
        return rc ? rc : cli_interrupted() ? EDIT_CANCELLED : EDIT_END;
    }
    if (line[n - 1] == L'\n')
        n--;
    for (int i = 0; i < n; i++) {
        char text[4];
        str_append(out, text, (size_t)utf8_encode(text, (uint32_t)line[i]));
    }
    return EDIT_MESSAGE;
}

bool line_editor_waiting(struct line_editor *le) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return le->at < le->end || poll(&in, 1, 0) > 0;
}

void line_editor_remember(struct line_editor *le, const char *text) {
    size_t n = strlen(text), count = 0;
    wchar_t *wide = malloc((n + 1) * sizeof *wide);
    HistEventW event;
    if (!wide)
        return;
    for (size_t i = 0; i < n;) {
        uint32_t code = BAD;
        int length = utf8_decode(text + i, n - i, &code);
        i += length > 0 ? (size_t)length : 1;
        wide[count++] = (wchar_t)code;
    }
    wide[count] = L'\0';
    history_w(le->history, &event, H_ENTER, wide);
    if (le->path)
        history_w(le->history, &event, H_SAVE, le->path);
    free(wide);
}
