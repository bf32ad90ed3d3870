// SPDX-License-Identifier: Apache-2.0
// Reading names, choosing among the files of a repository; see names.h. The assembler copies the
// table of known pairs (drafts.tsv: target, tab, repository of its draft) into the program.
#include "cli/hub/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/num.h"
#include "base/vec.h"

__asm__(".pushsection .rodata\n"
        "coppice_hub_drafts:\n"
        ".incbin \"" HUB_DRAFTS "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char coppice_hub_drafts[];

enum { WORD_MAX = 96 };

static bool is_word_char(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

// Length of an owner's or repository's name at s, 0: there is none.
static size_t word_length(const char *s) {
    size_t n = 0;
    while (is_word_char(s[n]))
        n++;
    bool dots = n >= 2 && memmem(s, n, "..", 2);
    return n <= WORD_MAX && n && isalnum((unsigned char)s[0]) && !dots ? n : 0;
}

// What is left of an address after the Hub's name; the text itself where it is no address.
static const char *after_host(const char *text, bool *address) {
    static const char *const hosts[] = {"https://huggingface.co/", "https://hf.co/",
                                        "huggingface.co/", "hf.co/"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (!strncmp(text, hosts[i], strlen(hosts[i]))) {
            *address = true;
            return text + strlen(hosts[i]);
        }
    *address = false;
    return text;
}

static bool ends_like_file(const char *s, size_t n) {
    return n > 5 && !strncasecmp(s + n - 5, ".gguf", 5);
}

// owner, repository, and what is after them.
static const char *split_name(const char *text, size_t *repo_bytes) {
    bool address;
    const char *s = after_host(text, &address);
    size_t owner = word_length(s), repo = owner && s[owner] == '/' ? word_length(s + owner + 1) : 0;
    const char *rest = s + owner + 1 + repo;
    if (!repo || ends_like_file(s + owner + 1, repo) ||
        (*rest && *rest != ':' && *rest != '@' && !(address && *rest == '/')))
        return NULL;
    *repo_bytes = owner + 1 + repo;
    return s;
}

bool hub_name_like(const char *text) {
    size_t n;
    return split_name(text, &n) != NULL;
}

static bool copy_bounded(char *to, const char *from, size_t n) {
    if (n == 0 || n >= HUB_NAME_BYTES)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

// What an address says after the repository: resolve, blob or tree, a revision, a file.
static bool read_address(struct hub_name *n, const char *rest) {
    static const char *const kinds[] = {"/resolve/", "/blob/", "/tree/"};
    if (!rest[1])
        return true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t skip = strlen(kinds[i]);
        if (strncmp(rest, kinds[i], skip) != 0)
            continue;
        size_t revision = strcspn(rest + skip, "/?"), at = skip + revision;
        if (!copy_bounded(n->revision, rest + skip, revision))
            return false;
        return rest[at] != '/' || copy_bounded(n->want, rest + at + 1, strcspn(rest + at + 1, "?"));
    }
    return false;
}

// Without control characters and what is at most `least`.
static bool clean(const char *s, char least) {
    for (; *s; s++)
        if ((unsigned char)*s <= (unsigned char)least || *s == 127)
            return false;
    return true;
}

int hub_name_read(struct hub_name *n, const char *text, struct err *e) {
    size_t repo = 0;
    const char *s = split_name(text, &repo);
    *n = (struct hub_name){.revision = "main"};
    bool ok = s && copy_bounded(n->repo, s, repo);
    const char *rest = ok ? s + repo : "";
    if (ok && *rest == '@') {
        size_t k = strcspn(rest + 1, ":");
        ok = copy_bounded(n->revision, rest + 1, k);
        rest += 1 + k;
    }
    if (ok && *rest == ':')
        ok = copy_bounded(n->want, rest + 1, strlen(rest + 1));
    else if (ok && *rest == '/')
        ok = read_address(n, rest);
    if (ok && clean(n->revision, ' ') && clean(n->want, 31) && !strstr(n->revision, "..") &&
        n->revision[0] != '/')
        return 0;
    return err_set(
        e, ERR_USAGE,
        "'%s' is no name of a model: OWNER/REPO, OWNER/REPO:QUANT or OWNER/REPO:FILE, as "
        "in Qwen/Qwen3-4B-GGUF:Q4_K_M",
        text);
}

// Whether a name stays inside the folder that it is put in.
static bool safe_file(const char *name) {
    if (!*name || *name == '/' || strlen(name) > 1024)
        return false;
    for (const char *s = name; *s;) {
        size_t n = strcspn(s, "/");
        bool dots = (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.');
        if (n == 0 || n > 255 || dots)
            return false;
        s += n + (s[n] == '/');
        if (!*s && s[-1] == '/')
            return false;
    }
    return clean(name, 31) && !strchr(name, '\\');
}

bool hub_is_hash(const char *text) {
    size_t n = strspn(text, "0123456789abcdef");
    return !text[n] && (n == 40 || n == 64);
}

int hub_files_add(struct hub_files *f, const char *name, const char *etag, int64_t size,
                  struct err *e) {
    if (!safe_file(name))
        return 0;
    int rc = vec_reserve(&f->at, &f->cap, f->n + 1, sizeof *f->at, e);
    if (rc)
        return rc;
    struct hub_file *to = &f->at[f->n];
    *to = (struct hub_file){.name = strdup(name), .size = size};
    if (!to->name)
        return err_set(e, ERR_MEMORY, "no memory for the names of files");
    if (hub_is_hash(etag))
        memcpy(to->etag, etag, strlen(etag) + 1);
    f->n++;
    return 0;
}

void hub_files_fini(struct hub_files *f) {
    for (int64_t i = 0; i < f->n; i++)
        free(f->at[i].name);
    free(f->at);
    free(f->unread);
    *f = (struct hub_files){0};
}

static const char *base_of(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

int hub_part(const char *file, int *of, size_t *stem) {
    size_t n = strlen(file);
    int part = 0, used = 0;
    if (n <= 20 || sscanf(file + n - 20, "-%5d-of-%5d.gguf%n", &part, of, &used) != 2 ||
        used != 20 || part < 1 || *of < 1)
        return 0;
    *stem = n - 20;
    return part;
}

static bool begins_like_type(const char *s) {
    static const char *const begins[] = {"Q",  "IQ",   "TQ",    "F16",   "F32",
                                         "BF", "FP16", "MXFP4", "NVFP4", "UD-"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        bool digit = i < 3 || i == 5;
        if (!strncasecmp(s, begins[i], n) && (!digit || isdigit((unsigned char)s[n])))
            return true;
    }
    return false;
}

void hub_label(const char *file, char out[HUB_LABEL_BYTES]) {
    const char *s = base_of(file);
    int of;
    size_t n = strlen(s), stem;
    if (hub_part(s, &of, &stem))
        n = stem;
    else if (ends_like_file(s, n))
        n -= 5;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        bool start = i == 0 || s[i - 1] == '-' || s[i - 1] == '.';
        if (!start || !begins_like_type(s + i) || n - i >= HUB_LABEL_BYTES)
            continue;
        size_t skip = strncasecmp(s + i, "UD-", 3) ? 0 : 3, k = i + skip;
        while (k < n && (isalnum((unsigned char)s[k]) || s[k] == '_'))
            k++;
        if (k < n || k == i + skip)
            continue;
        for (size_t c = 0; c < n - i; c++)
            out[c] = (char)toupper((unsigned char)s[i + c]);
        out[n - i] = '\0';
        return;
    }
}

bool hub_is_draft(const char *file) {
    const char *s = base_of(file);
    return strcasestr(s, "dflash") || strcasestr(s, "eagle3") || strcasestr(s, "-draft") ||
           strcasestr(s, "draft-") ||
           !strncasecmp(s, "mtp-", 4); // a prediction block in a file of its own
}

// Whether a file may be what a name without a file means: one GGUF file, or the first part.
static bool is_model(const char *file) {
    const char *s = base_of(file);
    int of, part;
    size_t stem;
    if (!ends_like_file(s, strlen(s)) || strcasestr(s, "mmproj") || strcasestr(s, "imatrix") ||
        hub_is_draft(s))
        return false;
    part = hub_part(s, &of, &stem);
    return part == 0 || part == 1;
}

// Whether a word stands in a name by itself.
static bool has_word(const char *name, const char *word) {
    size_t n = strlen(word);
    for (const char *s = name; (s = strcasestr(s, word)); s++) {
        bool before = s == name || !(isalnum((unsigned char)s[-1]) || s[-1] == '_');
        bool after = !(isalnum((unsigned char)s[n]) || s[n] == '_');
        if (before && after)
            return true;
    }
    return false;
}

enum match_kind { BY_FILE, BY_BASE, BY_LABEL, BY_WORD, ALL, KINDS };

static bool matches(const char *file, const char *want, enum match_kind kind) {
    char label[HUB_LABEL_BYTES];
    bool named = ends_like_file(want, strlen(want));
    int of;
    size_t stem;
    switch (kind) {
    case BY_FILE:
        return !strcmp(file, want);
    case BY_BASE: // also without the number of its part
        return named && (!strcmp(base_of(file), want) ||
                         (hub_part(base_of(file), &of, &stem) == 1 && strlen(want) - 5 == stem &&
                          !strncmp(base_of(file), want, stem)));
    case BY_LABEL:
        hub_label(file, label);
        return !named && !strcasecmp(label, want);
    case BY_WORD:
        return !named && has_word(file, want);
    default:
        return true;
    }
}

// Files that match: their number, the first two.
struct found {
    int n;
    int64_t at[2];
};

static struct found find_files(const struct hub_files *f, const char *want, enum match_kind kind) {
    struct found found = {0};
    for (int64_t i = 0; i < f->n; i++)
        if ((is_model(f->at[i].name) || kind == BY_FILE || kind == BY_BASE) &&
            matches(f->at[i].name, want, kind)) {
            if (found.n < 2)
                found.at[found.n] = i;
            found.n++;
        }
    return found;
}

// The types of a repository's models, or their files where they have none.
static void put_choices(const struct hub_files *f, struct str *out) {
    for (int64_t i = 0; i < f->n && out->len < 300; i++) {
        char label[HUB_LABEL_BYTES];
        if (!is_model(f->at[i].name))
            continue;
        hub_label(f->at[i].name, label);
        str_printf(out, "%s%s", out->len ? ", " : "", label[0] ? label : f->at[i].name);
    }
}

static int fail_choice(const struct hub_files *f, const struct hub_name *n, struct err *e) {
    struct str has = {0};
    put_choices(f, &has);
    int rc;
    if (f->n == 0)
        rc = err_set(e, ERR_MISMATCH, "%s holds no files", n->repo);
    else if (has.failed || has.len == 0)
        rc = err_set(e, ERR_MISMATCH,
                     "%s holds no model as GGUF: such repositories are often called %s-GGUF, and "
                     "'coppice convert' makes a GGUF file of a folder of safetensors",
                     n->repo, n->repo);
    else if (n->want[0])
        rc = err_set(e, ERR_MISMATCH, "%s has no %s; it has %s", n->repo, n->want, has.data);
    else
        rc = err_set(e, ERR_MISMATCH, "%s has several models; name one as %s:QUANT, of %s", n->repo,
                     n->repo, has.data);
    str_fini(&has);
    return rc;
}

static int choose_parts(const struct hub_files *f, int64_t first, struct hub_choice *out,
                        struct err *e) {
    const char *name = f->at[first].name;
    int of = 1;
    size_t stem = 0;
    *out = (struct hub_choice){.at = {first}, .n = 1};
    if (!hub_part(name, &of, &stem))
        return 0;
    if (of > HUB_PARTS_MAX)
        return err_set(e, ERR_LIMIT, "%s is one of %d parts; at most %d are possible", name, of,
                       HUB_PARTS_MAX);
    for (int k = 1; k <= of; k++) {
        int total;
        size_t s;
        out->at[k - 1] = -1;
        for (int64_t i = 0; i < f->n; i++)
            if (hub_part(f->at[i].name, &total, &s) == k && total == of && s == stem &&
                !strncmp(f->at[i].name, name, stem))
                out->at[k - 1] = i;
        if (out->at[k - 1] < 0)
            return err_set(e, ERR_MISMATCH, "part %d of %d of %s is missing", k, of, name);
    }
    out->n = of;
    return 0;
}

int hub_choose(const struct hub_files *f, const struct hub_name *n, struct hub_choice *out,
               struct err *e) {
    static const char *const usual[] = {"Q4_K_M", "UD-Q4_K_XL", "Q4_K_XL", "MXFP4",  "Q4_K_S",
                                        "IQ4_XS", "Q4_0",       "Q4_1",    "Q5_K_M", "Q6_K",
                                        "Q8_0",   "BF16",       "F16"};
    struct found found = {0};
    if (n->want[0]) {
        for (enum match_kind k = BY_FILE; k < ALL && !found.n; k++)
            found = find_files(f, n->want, k);
    } else {
        found = find_files(f, "", ALL);
        for (size_t i = 0; i < sizeof usual / sizeof *usual && found.n != 1; i++) {
            struct found one = find_files(f, usual[i], BY_LABEL);
            if (one.n) {
                found = one;
                break;
            }
        }
    }
    if (found.n == 1)
        return choose_parts(f, found.at[0], out, e);
    if (found.n == 0)
        return fail_choice(f, n, e);
    const char *one = f->at[found.at[0]].name, *other = f->at[found.at[1]].name;
    char a[HUB_LABEL_BYTES], b[HUB_LABEL_BYTES];
    hub_label(one, a);
    hub_label(other, b);
    if (!n->want[0] && strcmp(a, b) != 0)
        return fail_choice(f, n, e);
    return err_set(e, ERR_MISMATCH,
                   "%s%s%s is the name of several models, among them %s and %s; name one as "
                   "%s:FILE",
                   n->repo, n->want[0] ? ":" : "", n->want, one, other, n->repo);
}

static int64_t find_file(const struct hub_files *f, const char *name) {
    for (int64_t i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].name, name))
            return i;
    return -1;
}

void hub_choose_draft(const struct hub_files *f, bool named, struct hub_choice *out) {
    int64_t best = -1;
    *out = (struct hub_choice){0};
    for (int64_t i = 0; i < f->n; i++) {
        const char *name = f->at[i].name;
        char label[HUB_LABEL_BYTES];
        int of;
        size_t stem;
        if (!ends_like_file(name, strlen(name)) || strcasestr(name, "mmproj") ||
            hub_part(name, &of, &stem) || (named && !hub_is_draft(name)))
            continue;
        hub_label(name, label);
        if (best < 0 || !strcmp(label, "Q8_0"))
            best = i;
    }
    if (best >= 0) {
        *out = (struct hub_choice){.at = {best}, .n = 1};
        return;
    }
    int64_t weights = find_file(f, "model.safetensors"), config = find_file(f, "config.json");
    if (!named && weights >= 0 && config >= 0)
        *out = (struct hub_choice){.at = {weights, config}, .n = 2};
}

// Whether a repository of quantised files is made of that model: Qwen3-4B, Qwen_Qwen3-4B.
static bool is_of(const char *base, size_t n, const char *model, size_t k) {
    return n >= k && !strncasecmp(base + n - k, model, k) && (n == k || base[n - k - 1] == '_');
}

bool hub_draft_name(const char *repo, int i, struct hub_name *out) {
    const char *base = base_of(repo);
    size_t n = strlen(base);
    *out = (struct hub_name){.revision = "main"};
    if (n > 5 && !strcasecmp(base + n - 5, "-GGUF"))
        n -= 5;
    for (const char *row = coppice_hub_drafts; *row;) {
        size_t model = strcspn(row, "\t\n"), line = strcspn(row, "\n");
        if (row[model] == '\t' && is_of(base, n, row, model) && i-- == 0)
            return copy_bounded(out->repo, row + model + 1, line - model - 1);
        row += line + (row[line] == '\n');
    }
    if (i > 1)
        return false;
    int m = snprintf(out->repo, sizeof out->repo, "%.*s-DFlash%s", (int)(base - repo + (long)n),
                     repo, i ? "-GGUF" : "");
    return m > 0 && (size_t)m < sizeof out->repo;
}
