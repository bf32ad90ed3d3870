// SPDX-License-Identifier: Apache-2.0
// Lists of drafts; see named_drafts.h.
#include "engine/session/named_drafts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(PRICE_DRAFTS == 3, "as a sentence says");

static int refuse(const char *text, const char *why, struct err *e) {
    return err_set(e, ERR_USAGE, "the list of drafts '%s' %s", text, why);
}

static int add_item(struct named_drafts *l, const char *text, const char *item, struct err *e) {
    if (!*item)
        return refuse(text, "has an empty name; separate names by one comma", e);
    if (!strcmp(item, "none"))
        return refuse(text, "says none beside others; leave out one or the other", e);
    bool twice = l->find && !strcmp(item, "auto");
    for (int i = 0; i < l->n; i++)
        twice = twice || !strcmp(l->item[i], item);
    if (twice)
        return refuse(text, "names one twice; name each once", e);
    if (l->n + l->find == PRICE_DRAFTS)
        return refuse(text, "names more than three; leave some out", e);
    if (!strcmp(item, "auto"))
        l->find = true;
    else
        l->item[l->n++] = item;
    return 0;
}

int named_drafts_read(struct named_drafts *l, const char *text, struct err *e) {
    int rc = 0;
    *l = (struct named_drafts){0};
    if (!text || !*text || !strcmp(text, "none"))
        return 0;
    l->text = strdup(text);
    if (!l->text)
        return err_set(e, ERR_MEMORY, "no memory for a list of drafts");
    if (access(text, F_OK) == 0) {
        l->item[l->n++] = l->text;
        return 0;
    }
    for (char *item = l->text, *rest; item && !rc; item = rest) {
        rest = strchr(item, ',');
        if (rest)
            *rest++ = '\0';
        rc = add_item(l, text, item, e);
    }
    if (rc)
        named_drafts_fini(l);
    return rc;
}

void named_drafts_fini(struct named_drafts *l) {
    free(l->text);
    *l = (struct named_drafts){0};
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void named_drafts_use(const struct named_drafts *l, struct session_options *o) {
    o->n_further = 0;
    for (int i = 0; i < l->n; i++) {
        const char *found = o->draft && o->draft_optional ? o->draft : NULL;
        if (found && found != DRAFT_OF_TARGET && same_file(found, l->item[i])) {
            o->draft_optional = false; // it was named
        } else if (!o->draft) {
            o->draft = l->item[i];
            o->draft_optional = false;
        } else if (o->n_further < PRICE_DRAFTS - 1) {
            o->further[o->n_further++] = l->item[i];
        }
    }
}
