// SPDX-License-Identifier: Apache-2.0
// From a name to files in the cache; see pull.h. The first MiB of each file come first: they hold
// the description of the model, from which the plan is made and by which a draft is tried before
// the rest is fetched.
#include "cli/hub/pull.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/num.h"
#include "cli/hub/cache.h"
#include "cli/hub/plan.h"
#include "cli/hub/progress.h"
#include "cli/hub/remote.h"
#include "cli/scratch.h"

enum { HEAD_MIN = 16 << 20, HEAD_MAX = 1 << 28, PART_HEAD = 4 << 20, DRAFTS_TRIED = 8 };

struct pull {
    const struct hub_pull *p;
    struct hub hub;
    struct hub_set target, draft;
    bool drafted;           // the draft is to be fetched
    struct scratch scratch; // beginnings of files
    struct hub_progress progress;
};

static void close_set(struct hub_set *s) {
    for (int i = 0; s->at && i < s->choice.n; i++)
        hub_download_close(&s->at[i]);
    free(s->at);
    hub_files_fini(&s->files);
    *s = (struct hub_set){0};
}

static void show_progress(void *arg) {
    struct pull *p = arg;
    int64_t have = 0;
    for (int i = 0; i < p->target.choice.n; i++)
        have += p->target.at[i].have;
    for (int i = 0; p->drafted && i < p->draft.choice.n; i++)
        have += p->draft.at[i].have;
    if (p->progress.total)
        hub_progress_show(&p->progress, have);
}

// What a set has still to fetch; *total: all of it.
static int64_t bytes_left(const struct hub_set *s, int64_t *total) {
    int64_t left = 0;
    for (int i = 0; i < s->choice.n; i++) {
        left += s->at[i].file.size - s->at[i].have;
        *total += s->at[i].file.size;
    }
    return left;
}

// Whether an earlier file of the same repository has the same blob, whose lock this process holds:
// to wait for it would never end.
static bool is_twin(const struct hub_set *s, int n, const struct hub_download *d) {
    for (int i = 0; s->at && i < n; i++)
        if (!strcmp(s->at[i].file.etag, d->file.etag) && !strcmp(s->name.repo, d->name->repo))
            return true;
    return false;
}

static int open_set(struct pull *p, struct hub_set *s, struct err *e) {
    int rc = 0;
    s->at = calloc((size_t)max_i64(s->choice.n, 1), sizeof *s->at);
    if (!s->at)
        return err_set(e, ERR_MEMORY, "no memory for a list of files");
    for (int i = 0; i < s->choice.n && !rc; i++) {
        s->at[i] = (struct hub_download){.name = &s->name,
                                         .commit = s->files.commit,
                                         .file = s->files.at[s->choice.at[i]],
                                         .progress = show_progress,
                                         .arg = p};
        if (is_twin(s, i, &s->at[i]) ||
            (s == &p->draft && is_twin(&p->target, p->target.choice.n, &s->at[i])))
            rc = err_set(e, ERR_MISMATCH, "%s has the bytes of another file of the model",
                         s->at[i].file.name);
        else
            rc = hub_download_open(&s->at[i], e);
    }
    return rc;
}

// Forgets what was fetched only to learn that it is of no use.
static void drop_heads(struct hub_set *s) {
    for (int i = 0; s->at && i < s->choice.n; i++)
        hub_download_drop(&s->at[i], HEAD_MIN);
}

// head: of the first file; others have short descriptions.
static int fetch_heads(struct pull *p, struct hub_set *s, int64_t head, struct err *e) {
    int rc = 0;
    for (int i = 0; i < s->choice.n && !rc; i++)
        rc = hub_download_fetch(&p->hub, &s->at[i], i ? min_i64(head, PART_HEAD) : head, e);
    return rc;
}

static int fetch_rest(struct pull *p, struct hub_set *s, struct err *e) {
    int rc = 0;
    for (int i = 0; i < s->choice.n && !rc; i++) {
        rc = hub_download_fetch(&p->hub, &s->at[i], INT64_MAX, e);
        if (!rc)
            rc = hub_download_finish(&s->at[i], e);
        hub_download_close(&s->at[i]);
    }
    return rc ? rc : hub_cache_note(&s->name, s->files.commit, e);
}

// A sentence about a beginning of a file begins with its path, which means nothing to the user.
static const char *without_folder(const char *text, const char *folder) {
    const char *colon = strstr(text, ": ");
    return strncmp(text, folder, strlen(folder)) || !colon ? text : colon + 2;
}

static bool is_refusal(int rc) {
    return rc == ERR_FORMAT || rc == ERR_UNSUPPORTED || rc == ERR_MISMATCH;
}

// Fetches as much of the target as its description takes. *why: it cannot be read, or not be put
// into the folder (ERR_IO).
static int fetch_description(struct pull *p, const char *folder, struct err *why, struct err *e) {
    struct hub_set *s = &p->target;
    int rc = 0;
    for (int64_t head = HEAD_MIN; !rc; head *= 4) {
        *why = (struct err){0};
        rc = fetch_heads(p, s, head, e);
        if (rc || hub_plan_files(s, folder, head, why) || !hub_plan_read(s, folder, why))
            break;
        if (head >= min_i64(s->at[0].file.size, HEAD_MAX))
            break;
    }
    return rc;
}

// The plan of what was asked for. *planned: there is one.
static int plan_target(struct pull *p, struct memory_plan *plan, bool *planned, struct err *e) {
    struct hub_set *s = &p->target;
    struct str folder = {0};
    struct err why = {0};
    str_printf(&folder, "%s/target", p->scratch.path);
    int rc = folder.failed ? err_set(e, ERR_MEMORY, "no memory for a path")
                           : fetch_description(p, folder.data, &why, e);
    if (!rc && !why.code)
        hub_plan_measure(s, folder.data, NULL, NULL, plan, &why);
    str_fini(&folder);
    *planned = !rc && (!why.code || why.code == ERR_MEMORY);
    if (!rc && is_refusal(why.code)) {
        drop_heads(s);
        return err_set(e, why.code, "%s cannot be run: %s", s->at[0].file.name,
                       without_folder(why.text, p->scratch.path));
    }
    if (!rc && !*planned)
        fprintf(stderr, "coppice: what %s takes in memory is not known: %s\n", s->at[0].file.name,
                why.text);
    return rc;
}

// Tries one draft: true where it fits. Errors of the network mean that there is none.
static bool try_draft(struct pull *p, int number, struct memory_plan *plan) {
    struct hub_set *d = &p->draft;
    struct str model = {0}, folder = {0};
    struct memory_plan pair;
    struct err why = {0};
    str_printf(&model, "%s/target", p->scratch.path);
    str_printf(&folder, "%s/%d", p->scratch.path, number);
    int rc = model.failed || folder.failed ? ERR_MEMORY : open_set(p, d, &why);
    if (!rc)
        rc = fetch_heads(p, d, HEAD_MIN, &why);
    if (!rc)
        rc = hub_plan_files(d, folder.data, HEAD_MIN, &why);
    if (!rc)
        rc = hub_plan_measure(&p->target, model.data, d, folder.data, &pair, &why);
    bool fits = !rc || rc == ERR_MEMORY;
    if (fits)
        *plan = pair;
    else
        drop_heads(d);
    if (!fits && rc != ERR_CANCELLED)
        fprintf(stderr, "coppice: the draft %s of %s is not used: %s\n",
                d->at ? d->at[0].file.name : "", d->name.repo,
                without_folder(why.text, p->scratch.path));
    str_fini(&model);
    str_fini(&folder);
    return fits;
}

static int copy_files(const struct hub_files *from, struct hub_files *to, struct err *e) {
    int rc = 0;
    memcpy(to->commit, from->commit, sizeof to->commit);
    for (int64_t i = 0; i < from->n && !rc; i++)
        rc = hub_files_add(to, from->at[i].name, from->at[i].etag, from->at[i].size, e);
    return rc;
}

// Whether the target predicts further tokens itself, so that no draft need come with it.
static bool has_block(struct pull *p) {
    struct str folder = {0};
    str_printf(&folder, "%s/target", p->scratch.path);
    bool yes = !folder.failed && hub_plan_has_block(&p->target, folder.data);
    str_fini(&folder);
    return yes;
}

// A draft in the target's own repository (number 0), in those of known pairs, and in those that
// are called like the target's.
static void find_draft(struct pull *p, struct memory_plan *plan) {
    struct hub_set *d = &p->draft;
    for (int i = 0; i < DRAFTS_TRIED && !p->drafted && !cli_interrupted(); i++) {
        struct err why = {0};
        close_set(d);
        if (i && !hub_draft_name(p->target.name.repo, i - 1, &d->name))
            break;
        if (!i)
            d->name = p->target.name;
        int rc = i ? hub_list(&p->hub, &d->name, &d->files, &why)
                   : copy_files(&p->target.files, &d->files, &why);
        if (!rc)
            hub_choose_draft(&d->files, i == 0, &d->choice);
        p->drafted = !rc && d->choice.n && try_draft(p, i, plan);
    }
    if (p->drafted)
        fprintf(stderr, "coppice: the draft %s of %s fits and comes with it\n", d->at[0].file.name,
                d->name.repo);
    else
        close_set(d);
}

static int check_disk(int64_t left, struct err *e) {
    struct str folder = {0};
    struct statvfs v;
    hub_cache_folder(&folder);
    str_puts(&folder, "/");
    int rc = folder.failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
    if (!rc && !statvfs(folder.data, &v)) {
        int64_t room = (int64_t)(v.f_bavail * v.f_frsize);
        if (left > room)
            rc = err_set(e, ERR_IO,
                         "%s has room for %s, and %s are still to come: make room, or set HF_HOME "
                         "to a folder on another disk",
                         folder.data, hub_size(room).text, hub_size(left).text);
    }
    str_fini(&folder);
    return rc;
}

static int choose(struct pull *p, struct hub_set *s, struct err *e) {
    if (!p->p->as_draft || s->name.want[0])
        return hub_choose(&s->files, &s->name, &s->choice, e);
    hub_choose_draft(&s->files, false, &s->choice);
    return s->choice.n ? 0
                       : err_set(e, ERR_MISMATCH,
                                 "%s holds no draft: neither a GGUF file nor "
                                 "model.safetensors with its config.json",
                                 s->name.repo);
}

static int plan_all(struct pull *p, struct err *e) {
    struct memory_plan plan;
    bool planned = false;
    int64_t total = 0, left = bytes_left(&p->target, &total);
    int rc = check_disk(left, e);
    if (!rc && left)
        fprintf(stderr, "coppice: %s of %s is %s in %d file%s\n", p->target.at[0].file.name,
                p->target.name.repo, hub_size(total).text, p->target.choice.n,
                p->target.choice.n == 1 ? "" : "s");
    if (!rc && !p->p->as_draft && (left || p->p->with_draft))
        rc = plan_target(p, &plan, &planned, e);
    if (!rc && planned && p->p->with_draft && !has_block(p))
        find_draft(p, &plan);
    if (!rc && planned && left)
        hub_plan_say(&plan);
    total = 0;
    left = bytes_left(&p->target, &total) + (p->drafted ? bytes_left(&p->draft, &total) : 0);
    if (!rc)
        rc = check_disk(left, e);
    p->progress.total = left ? total : 0;
    return rc;
}

static int pull_files(struct pull *p, struct err *e) {
    struct hub_set *s = &p->target;
    s->name = p->p->name;
    int rc = hub_open(&p->hub, e);
    if (!rc)
        rc = hub_list(&p->hub, &s->name, &s->files, e);
    if (!rc)
        rc = choose(p, s, e);
    if (!rc)
        rc = open_set(p, s, e);
    if (!rc)
        rc = scratch_open(&p->scratch, e);
    if (!rc)
        rc = plan_all(p, e);
    scratch_close(&p->scratch);
    if (!rc)
        rc = fetch_rest(p, s, e);
    if (!rc && p->drafted)
        rc = fetch_rest(p, &p->draft, e);
    hub_progress_end(&p->progress);
    return rc;
}

static int take_cached(const struct hub_pull *p, struct str *path, struct err *e) {
    int rc = hub_cache_find(&p->name, p->as_draft, path, e);
    if (rc || path->len)
        return rc;
    return err_set(
        e, ERR_IO,
        "%s%s%s is not in the cache, and without a network it cannot be fetched: 'coppice "
        "list' shows what is there",
        p->name.repo, p->name.want[0] ? ":" : "", p->name.want);
}

int hub_pull(const struct hub_pull *options, struct str *path, struct err *e) {
    if (options->offline)
        return take_cached(options, path, e);
    struct pull *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for a download");
    p->p = options;
    cli_catch_interrupt();
    int rc = pull_files(p, e);
    if (!rc) {
        hub_cache_path(path, p->target.name.repo, "snapshots", p->target.files.commit,
                       p->target.at[0].file.name);
        rc = path->failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
    }
    if (rc == ERR_CANCELLED)
        fputs("coppice: interrupted; what has come stays, and the same command goes on there\n",
              stderr);
    close_set(&p->target);
    close_set(&p->draft);
    hub_close(&p->hub);
    free(p);
    return rc;
}

bool hub_offline(const struct cli_args *a) {
    const char *v = getenv("HF_HUB_OFFLINE");
    return options_flag(&a->opt, OPT_OFFLINE) ||
           (v && (!strcmp(v, "1") || !strcasecmp(v, "true") || !strcasecmp(v, "yes") ||
                  !strcasecmp(v, "on")));
}

bool hub_cached_draft(const char *model, int i, struct str *path) {
    char repo[HUB_NAME_BYTES];
    struct hub_name n;
    if (!hub_cache_repo(model, repo) || !hub_draft_name(repo, i, &n))
        return false;
    hub_cache_find(&n, true, path, NULL);
    return true;
}

// A path for a value that is a name of the Hub; the value itself where it is none.
static int resolve(struct cli_args *a, bool as_draft, const char **value, struct err *e) {
    struct hub_pull p = {.as_draft = as_draft, .offline = hub_offline(a)};
    struct str path = {0};
    if (!*value || !hub_name_like(*value) || access(*value, F_OK) == 0)
        return 0;
    bool guesses = a->command->id == CLI_CHAT || a->command->id == CLI_SERVE;
    p.with_draft =
        !as_draft && guesses &&
        (!options_given(&a->opt, OPT_DRAFT) || !strcmp(options_str(&a->opt, OPT_DRAFT), "auto"));
    int rc = hub_name_read(&p.name, *value, e);
    if (!rc)
        rc = hub_cache_find(&p.name, as_draft, &path, e);
    if (!rc && !path.len) {
        rc = hub_pull(&p, &path, e);
        if (!cli_interrupted()) {
            signal(SIGINT, SIG_DFL);
            signal(SIGTERM, SIG_DFL);
        }
    }
    if (rc == ERR_IO)
        err_prefix(e, "there is no file %s; from the Hub", *value);
    if (!rc && !(*value = arena_strndup(&a->opt.arena, path.data, path.len)))
        rc = err_set(e, ERR_MEMORY, "no memory for a path");
    str_fini(&path);
    return rc;
}

// The same for a list of drafts; a file of the whole name is one.
static int resolve_drafts(struct cli_args *a, const char **value, struct err *e) {
    struct str list = {0};
    int rc = 0;
    if (!*value || !strchr(*value, ',') || access(*value, F_OK) == 0)
        return resolve(a, true, value, e);
    for (const char *at = *value; at && !rc;) {
        const char *end = strchr(at, ',');
        const char *item = arena_strndup(&a->opt.arena, at, end ? (size_t)(end - at) : strlen(at));
        rc = item ? resolve(a, true, &item, e) : err_set(e, ERR_MEMORY, "no memory for a path");
        if (!rc)
            str_printf(&list, "%s%s", at == *value ? "" : ",", item);
        at = end ? end + 1 : NULL;
    }
    if (!rc && (list.failed || !(*value = arena_strndup(&a->opt.arena, list.data, list.len))))
        rc = err_set(e, ERR_MEMORY, "no memory for a list of drafts");
    str_fini(&list);
    return rc;
}

int hub_resolve(struct cli_args *a, struct err *e) {
    static const int rows[] = {OPT_MODEL, OPT_DRAFT, OPT_PREFILL_DRAFTER};
    const enum cli_command_id id = a->command->id;
    int rc = 0, operands = id == CLI_INSPECT || id == CLI_QUANTIZE ? 1 : id == CLI_DAEMON ? 2 : 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !rc; i++)
        if (options_given(&a->opt, rows[i]))
            rc = rows[i] == OPT_DRAFT ? resolve_drafts(a, &a->opt.values[rows[i]].s, e)
                                      : resolve(a, false, &a->opt.values[rows[i]].s, e);
    const char **values = (const char **)a->opt.operands; // of the parser's own arena
    for (int i = 0; i < operands && i < a->opt.n_operands && !rc; i++)
        rc = i == 1 ? resolve_drafts(a, &values[i], e) : resolve(a, false, &values[i], e);
    return rc;
}
