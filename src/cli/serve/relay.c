// SPDX-License-Identifier: Apache-2.0
// `coppice serve --upstream URL`: passes requests on to another OpenAI server. No model is loaded.
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/log_out.h"
#include "cli/models/compression.h"
#include "cli/notify.h"
#include "cli/serve/http.h"
#include "serve/relay/relay.h"

enum { KEY_MAX = 1 << 16, TEMPLATE_MAX = 1 << 20 };

struct relaying {
    struct serve_http http;
    struct compression compression;
    struct str key;
    struct tokenizer *vocabulary; // of the template
    struct chat_template *raw;    // NULL: chats stay chats
};

// The key of --prefill-upstream-key, or the first line of the file.
static int read_key(const struct options *o, struct relaying *s, const char **key, struct err *e) {
    const char *file = options_str(o, OPT_UPSTREAM_KEY_FILE);
    *key = options_str(o, OPT_UPSTREAM_KEY);
    if (!file)
        return 0;
    if (*key)
        return err_set(e, ERR_USAGE,
                       "--prefill-upstream-key and --prefill-upstream-key-file cannot both be "
                       "given");
    int rc = file_read(&s->key, file, KEY_MAX, e);
    if (rc)
        return rc;
    size_t n = 0;
    while (n < s->key.len && s->key.data[n] != '\n' && s->key.data[n] != '\r')
        n++;
    if (n == 0)
        return err_set(e, ERR_USAGE, "the first line of %s holds no key", file);
    s->key.data[n] = '\0';
    *key = s->key.data;
    return 0;
}

static int template_of_model(struct relaying *s, const char *path, struct err *e) {
    struct gguf *g;
    int rc = gguf_open(&g, path, e);
    if (rc)
        return rc;
    rc = tokenizer_create(&s->vocabulary, g, e);
    if (!rc)
        rc = chat_template_of_gguf(&s->raw, g, s->vocabulary, e);
    gguf_close(g);
    return rc ? err_prefix(e, "%s", path) : 0;
}

// The template of raw prompts, where there is one to be.
static int read_template(const struct options *o, struct relaying *s, struct err *e) {
    const char *path = options_str(o, OPT_UPSTREAM_TEMPLATE);
    struct str text = {0};
    if (!path)
        return 0;
    if (s->compression.options.mode == PREFILL_OFF)
        return err_set(e, ERR_USAGE,
                       "--prefill-upstream-template is for compressed chats; give "
                       "--prefill-compression auto or always as well");
    size_t n = strlen(path);
    if (n > 5 && !strcmp(path + n - 5, ".gguf"))
        return template_of_model(s, path, e);
    int rc = file_read(&text, path, TEMPLATE_MAX, e);
    if (!rc && (rc = chat_template_create(&s->raw, text.data ? text.data : "", text.len, NULL, e)))
        err_prefix(e, "%s", path);
    str_fini(&text);
    return rc;
}

static int options_of(const struct cli_args *a, struct relaying *s, struct relay_options *out,
                      struct err *e) {
    static const int unused[] = {OPT_MODEL, OPT_DRAFT};
    const struct options *o = &a->opt;
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (options_given(o, unused[i]))
            return err_set(e, ERR_USAGE,
                           "--%s names a model to load, and with --prefill-upstream-base the "
                           "other server has the model: give one of them",
                           cli_options[unused[i]].name);
    if (options_flag(o, OPT_PREFILL_ADAPT))
        return err_set(e, ERR_USAGE,
                       "--prefill-adapt follows guesses about this server's own answers; with "
                       "--prefill-upstream-base give --prefill-keep-ratio or --prefill-curve");
    int rc = read_key(o, s, &out->upstream.key, e);
    out->upstream.base = options_str(o, OPT_UPSTREAM);
    out->upstream.silent_ms = (int)(1e3 * options_float(o, OPT_UPSTREAM_TIMEOUT));
    out->model = options_str(o, OPT_UPSTREAM_MODEL);
    out->text_threads = (int)options_int(o, OPT_TEXT_THREADS);
    out->log = serve_http_log;
    out->log_json = options_flag(o, OPT_LOG_JSON);
    if (!rc)
        rc = compression_options(&s->compression, a, e);
    if (!rc)
        rc = compression_open(&s->compression, a, e);
    if (!rc)
        rc = read_template(o, s, e);
    out->raw = s->raw;
    out->prefill = s->compression.options;
    out->compressor = s->compression.c;
    return rc ? rc : serve_http_options(a, &s->http, &out->http, e);
}

int serve_relay(const struct cli_args *a, struct err *e) {
    struct relaying s = {0};
    struct relay_options o = {0};
    struct relay *r = NULL;
    int rc = options_of(a, &s, &o, e);
    if (!rc)
        rc = relay_create(&r, &o, e);
    if (!rc)
        rc = log_out_begin(e);
    if (!rc) {
        log_out("coppice: requests go to %s\n", relay_upstream(r));
        for (size_t i = 0; relay_address(r, i); i++)
            log_out("coppice: listening on %s\n", relay_address(r, i));
        serve_http_show_try(&s.http, relay_address(r, 0), false);
        notify_manager("READY=1");
        rc = relay_run(r, e);
    }
    notify_manager("STOPPING=1");
    log_out_end();
    relay_destroy(r);
    serve_http_fini(&s.http);
    compression_close(&s.compression);
    chat_template_free(s.raw);
    tokenizer_destroy(s.vocabulary);
    str_fini(&s.key);
    return rc;
}
