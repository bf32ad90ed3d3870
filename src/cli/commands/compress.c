// SPDX-License-Identifier: Apache-2.0
// `coppice compress`: what prompt compression leaves of a text or of a conversation. The same kind
// of thing comes out as went in; --json adds spans, counts and times.
#include <stdio.h>
#include <string.h>

#include "cli/chat/dialog.h"
#include "cli/models/compression.h"
#include "compress/prefill.h"
#include "engine/session/runtime.h"

// Input and result.
struct job {
    struct str text;
    struct json *file; // of --messages
    struct json_messages messages;
    struct compress_part part;
    struct compress_message alone;
    struct compress_conversation v; // of either
    struct compress_result result;
    const char *gap;
};

static int read_messages(struct job *j, const char *path, struct err *e) {
    int rc = dialog_read_file(path, &j->file, e);
    if (rc)
        return rc;
    rc = json_messages_read(&j->messages, json_get(j->file, "messages"), e);
    j->v = j->messages.v;
    return rc ? err_prefix(e, "%s", path) : 0;
}

static int read_input(struct job *j, const struct cli_args *a, struct err *e) {
    const char *path = options_str(&a->opt, OPT_MESSAGES);
    bool text = options_given(&a->opt, OPT_PROMPT) || options_given(&a->opt, OPT_FILE);
    if (path && text)
        return err_set(e, ERR_USAGE, "give either --messages or a text with -p or -f");
    if (path && options_given(&a->opt, OPT_QUERY))
        return err_set(e, ERR_USAGE,
                       "--query is for a text; the question of --messages is its last user turn");
    j->gap = options_str(&a->opt, OPT_PREFILL_GAP);
    if (path)
        return read_messages(j, path, e);
    int rc = cli_read_text(a, &j->text, e);
    if (rc)
        return rc;
    j->part = (struct compress_part){j->text.data ? j->text.data : "", j->text.len};
    j->alone = (struct compress_message){"user", &j->part, 1};
    j->v = (struct compress_conversation){&j->alone, 1};
    return 0;
}

static int compress_input(struct job *j, const struct cli_args *a, struct compress_options *o,
                          struct compressor *c, struct err *e) {
    const char *query = options_str(&a->opt, OPT_QUERY);
    const struct compress_part q = {query, query ? strlen(query) : 0};
    if (o->continued == COMPRESS_SKIP)
        o->continued = COMPRESS_ANEW; // the command is there to compress
    if (j->file)
        return compress_messages(c, &j->v, o, &j->result, e);
    return compress_text(c, &j->part, query ? &q : NULL, o, &j->result, e);
}

static void put_kept_spans(const struct job *j, struct json_writer *w) {
    jw_key_begin(w, "spans", '[');
    for (int64_t i = 0; i < j->result.n_spans; i++) {
        const struct compress_span *s = &j->result.spans[i];
        jw_begin(w, '{');
        if (j->file) {
            jw_key_int(w, "message", s->message);
            jw_key_int(w, "part", s->part);
        }
        jw_key_int(w, "begin", (int64_t)s->begin);
        jw_key_int(w, "end", (int64_t)s->end);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

static void put_statistics(const struct compress_result *r, struct json_writer *w) {
    const struct {
        const char *name;
        double ms;
    } times[] = {
        {"encode_ms", r->ms_encode}, {"score_ms", r->ms_score}, {"select_ms", r->ms_select}};
    jw_key_int(w, "from", r->from);
    jw_key_int(w, "to", r->to);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        jw_key_num(w, times[i].name, times[i].ms);
    jw_key_str(w, "reason", r->reason);
}

static int print_compressed_json(const struct job *j, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    if (j->file) {
        jw_key(&w, "messages");
        json_messages_write(&j->messages, &j->result, j->gap, &w);
    } else {
        struct str s = {0};
        compress_kept(&j->result, &j->v, 0, 0, j->gap, &s);
        jw_key_text(&w, "text", s.data ? s.data : "", s.len);
        w.out.failed |= s.failed;
        str_fini(&s);
    }
    put_kept_spans(j, &w);
    put_statistics(&j->result, &w);
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static int print_compressed(const struct job *j, struct err *e) {
    const struct compress_result *r = &j->result;
    fprintf(stderr, "%lld of %lld tokens stay (%.1f %%)%s%s; %.0f ms to score, %.0f ms besides\n",
            (long long)r->to, (long long)r->from,
            r->from ? 100.0 * (double)r->to / (double)r->from : 100.0, r->reason ? ": " : "",
            r->reason ? r->reason : "", r->ms_score, r->ms_encode + r->ms_select);
    if (j->file) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key(&w, "messages");
        json_messages_write(&j->messages, r, j->gap, &w);
        jw_end(&w, '}');
        return cli_print_json(&w, e);
    }
    struct str s = {0};
    compress_kept(r, &j->v, 0, 0, j->gap, &s);
    return cli_print(&s, e);
}

static int open_compressor(const struct cli_args *a, struct runtime *r, struct compressor **c,
                           struct err *e) {
    const struct options *o = &a->opt;
    struct device_options d = compression_device(o);
    d.cuda_path = CUDA_PATH_AUTO;
    struct score_options so;
    struct runtime_device *device;
    int rc = compression_scorer_options(o, &so, e);
    if (!rc)
        rc = runtime_device(r, &d, &device, e);
    if (rc)
        return rc;
    return compressor_open(c, runtime_exec(device), options_str(o, OPT_PREFILL_DRAFTER), &so, e);
}

int cmd_compress(const struct cli_args *a, struct err *e) {
    struct job j = {0};
    struct runtime *r = NULL;
    struct compressor *c = NULL;
    struct compress_options o;
    int rc = cli_need(a, OPT_PREFILL_DRAFTER, e);
    if (!rc)
        rc = compression_keep_options(&a->opt, &o, e);
    if (!rc)
        rc = read_input(&j, a, e);
    if (!rc)
        rc = runtime_create(&r, e);
    if (!rc)
        rc = open_compressor(a, r, &c, e);
    if (!rc)
        rc = compress_input(&j, a, &o, c, e);
    if (!rc)
        rc = options_flag(&a->opt, OPT_JSON) ? print_compressed_json(&j, e)
                                             : print_compressed(&j, e);
    compressor_close(c);
    runtime_destroy(r);
    compress_result_fini(&j.result);
    json_messages_fini(&j.messages);
    json_free(j.file);
    str_fini(&j.text);
    return rc;
}
