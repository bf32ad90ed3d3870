// SPDX-License-Identifier: Apache-2.0
// `coppice pull`, `list` and `remove`: models of the Hugging Face Hub in its cache.
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/hub/cache.h"
#include "cli/hub/progress.h"
#include "cli/hub/pull.h"
#include "engine/session/near_draft.h"
#include "formats/gguf/gguf.h"
#include "models/draft/mtp/mtp.h"

int cmd_pull(const struct cli_args *a, struct err *e) {
    struct hub_pull p = {.with_draft = !options_flag(&a->opt, OPT_NO_DRAFT),
                         .offline = hub_offline(a)};
    struct str path = {0};
    int rc = hub_name_read(&p.name, a->opt.operands[0], e);
    if (!rc)
        rc = hub_pull(&p, &path, e);
    if (rc) {
        str_fini(&path);
        return rc;
    }
    str_putc(&path, '\n');
    return cli_print(&path, e);
}

// Rows of a list, as text or JSON.
struct listing {
    struct str out;
    struct json_writer w;
    bool json;
    const char *repo;
    int64_t rows;
};

static void put_row(struct listing *l, const char *want, int64_t size, const char *state,
                    const char *path) {
    l->rows++;
    if (l->json) {
        jw_begin(&l->w, '{');
        jw_key_str(&l->w, "repo", l->repo);
        jw_key_str(&l->w, "name", want[0] ? want : NULL);
        jw_key_int(&l->w, "bytes", size);
        jw_key_str(&l->w, "state", state);
        jw_key_str(&l->w, "path", path);
        jw_end(&l->w, '}');
        return;
    }
    struct str name = {0};
    str_printf(&name, "%s%s%s", l->repo, want[0] ? ":" : "", want);
    str_printf(&l->out, "%-60s %10s  %s\n", name.data ? name.data : "", hub_size(size).text, state);
    str_fini(&name);
}

// The name by which a file can be asked for: its type, or itself where another file has that too.
static void put_want(const struct hub_files *f, int64_t i, struct str *out) {
    char label[HUB_LABEL_BYTES];
    struct hub_choice c;
    struct hub_name n = {.revision = "main"};
    hub_label(f->at[i].name, label);
    snprintf(n.want, sizeof n.want, "%s", label);
    bool by_label = label[0] && !hub_choose(f, &n, &c, NULL) && c.at[0] == i;
    str_puts(out, by_label ? label : f->at[i].name);
}

// What a model's file has to guess with.
static const char *block_state(const char *path) {
    struct session_options o = session_options_default();
    struct near_drafts d = {.o = &o};
    struct gguf *g = NULL;
    struct err ignored;
    bool there = !gguf_open(&g, path, &ignored) && mtp_in_file(g, NULL);
    const bool apart = there && mtp_sidecar(g);
    gguf_close(g);
    if (apart)
        return "draft";
    o.model = path;
    o.device = "cpu";
    if (!there || near_draft_in_target(&d, &ignored))
        return "";
    return d.of_target ? "predicts further tokens" : "its prediction block cannot be used";
}

static int list_model(struct listing *l, const struct hub_files *f, int64_t i, struct err *e) {
    struct hub_name n = {.revision = "main"};
    struct hub_choice c;
    struct str want = {0}, path = {0};
    struct err ignored;
    int of, part;
    size_t stem;
    int64_t size = 0;
    part = hub_part(f->at[i].name, &of, &stem);
    if (part > 1 || !str_ends(f->at[i].name, ".gguf") || strlen(f->at[i].name) >= sizeof n.want)
        return 0;
    snprintf(n.want, sizeof n.want, "%s", f->at[i].name);
    bool whole = !hub_choose(f, &n, &c, &ignored);
    for (int k = 0; whole && k < c.n; k++)
        size += f->at[c.at[k]].size;
    put_want(f, i, &want);
    hub_cache_path(&path, l->repo, "snapshots", f->commit, f->at[i].name);
    bool failed = want.failed || path.failed;
    if (!failed)
        put_row(l, want.data, whole ? size : f->at[i].size,
                !whole                        ? "parts are missing"
                : hub_is_draft(f->at[i].name) ? "draft"
                                              : block_state(path.data),
                path.data);
    str_fini(&want);
    str_fini(&path);
    return failed ? err_set(e, ERR_MEMORY, "no memory for a list") : 0;
}

static int list_snapshot(void *arg, const char *commit, struct err *e) {
    struct listing *l = arg;
    struct hub_files f = {0};
    struct hub_choice draft;
    struct str path = {0};
    int64_t before = l->rows;
    int rc = hub_cache_list(l->repo, commit, &f, e);
    for (int64_t i = 0; i < f.n && !rc; i++)
        rc = list_model(l, &f, i, e);
    hub_choose_draft(&f, false, &draft);
    if (!rc && l->rows == before && draft.n == 2 && hub_is_draft(l->repo)) {
        hub_cache_path(&path, l->repo, "snapshots", commit, f.at[draft.at[0]].name);
        if (!path.failed)
            put_row(l, "", f.at[draft.at[0]].size, "draft", path.data);
    }
    str_fini(&path);
    hub_files_fini(&f);
    return rc;
}

static int list_repo(void *arg, const char *repo, struct err *e) {
    struct listing *l = arg;
    l->repo = repo;
    int rc = hub_cache_snapshots(repo, list_snapshot, l, e);
    int64_t unfinished = hub_cache_unfinished(repo);
    if (!rc && unfinished)
        put_row(l, "", unfinished, "not complete: pull it again", NULL);
    return rc;
}

int cmd_list(const struct cli_args *a, struct err *e) {
    struct listing l = {.json = options_flag(&a->opt, OPT_JSON)};
    if (l.json)
        jw_begin(&l.w, '[');
    int rc = hub_cache_each(list_repo, &l, e);
    if (l.json)
        jw_end(&l.w, ']');
    if (!rc && !l.json && !l.rows) {
        struct str folder = {0};
        hub_cache_folder(&folder);
        fprintf(stderr, "coppice: there are no models in %s; 'coppice pull OWNER/REPO' gets one\n",
                folder.data ? folder.data : "the cache");
        str_fini(&folder);
    }
    if (!rc)
        rc = l.json ? cli_print_json(&l.w, e) : cli_print(&l.out, e);
    else {
        str_fini(&l.out);
        str_fini(&l.w.out);
    }
    return rc;
}

struct removal {
    const struct hub_name *name;
    const char *commit; // NULL: of all of them
    int64_t freed, files;
};

// The next models of a snapshot that `list` shows, from file *at on, which moves past them: GGUF
// files, or a draft; safetensors are other programs' otherwise.
static void choose_next(const struct hub_files *f, const char *repo, int64_t *at,
                        struct hub_choice *out) {
    bool first = *at == 0;
    *out = (struct hub_choice){0};
    for (; *at < f->n && out->n < HUB_PARTS_MAX; ++*at)
        if (str_ends(f->at[*at].name, ".gguf"))
            out->at[out->n++] = *at;
    if (first && !out->n && hub_is_draft(repo))
        hub_choose_draft(f, false, out);
}

static int remove_from(void *arg, const char *commit, struct err *e) {
    struct removal *r = arg;
    struct hub_files f = {0};
    struct hub_choice c;
    struct err ignored;
    int64_t at = 0;
    if (r->commit && strcmp(commit, r->commit) != 0)
        return 0;
    int rc = hub_cache_list(r->name->repo, commit, &f, e);
    while (!rc && at < f.n) {
        if (!r->name->want[0])
            choose_next(&f, r->name->repo, &at, &c);
        else if (at = f.n, hub_choose(&f, r->name, &c, &ignored))
            c.n = 0;
        if (c.n)
            rc = hub_cache_remove(r->name->repo, &f, &c, &r->freed, e);
        r->files += rc ? 0 : c.n;
    }
    hub_files_fini(&f);
    return rc;
}

int cmd_remove(const struct cli_args *a, struct err *e) {
    struct hub_name n;
    struct removal r = {.name = &n};
    int rc = hub_name_read(&n, a->opt.operands[0], e);
    if (rc)
        return rc;
    char commit[HUB_HASH_BYTES];
    bool all = !strcmp(n.revision, "main"); // what is there of it, at whatever revision
    if (!all && !hub_cache_commit(&n, commit))
        return err_set(e, ERR_IO, "there is no %s@%s in the cache", n.repo, n.revision);
    r.commit = all ? NULL : commit;
    int64_t before = all ? hub_cache_unfinished(n.repo) : 0;
    if (all && !n.want[0])
        hub_cache_clean(n.repo, &r.freed);
    rc = hub_cache_snapshots(n.repo, remove_from, &r, e);
    if (!rc && !r.files && !(before && r.freed))
        return err_set(e, ERR_IO,
                       "there is no %s%s%s%s%s in the cache; 'coppice list' shows what is", n.repo,
                       all ? "" : "@", all ? "" : n.revision, n.want[0] ? ":" : "", n.want);
    if (!rc)
        fprintf(stderr, "coppice: removed %s of %s\n", hub_size(r.freed).text, n.repo);
    return rc;
}
