// SPDX-License-Identifier: Apache-2.0
// Texts that were kept; see daemon.h. A slot is a help and never a promise: what of its text agrees
// with a prompt need not be run again, and the rest is run.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "cli/daemon/daemon.h"

int daemon_slot_save(struct daemon *d, int slot, bool thin, struct err *e) {
    struct daemon_slot s = {.used = true, .thin = thin};
    if (!d->text)
        return err_set(e, ERR_STATE, "there is no text to keep; generate one first");
    int64_t n = transcript_len(d->text);
    int rc = vec_reserve(&s.ids.at, &s.ids.cap, n, sizeof *s.ids.at, e);
    if (!rc)
        rc = transcript_save(d->text, &s.state, e);
    if (rc) {
        free(s.ids.at);
        return rc;
    }
    memcpy(s.ids.at, transcript_tokens(d->text), (size_t)n * sizeof *s.ids.at);
    s.ids.n = n;
    daemon_slot_free(d, slot);
    d->slots[slot] = s;
    return 0;
}

void daemon_slot_free(struct daemon *d, int slot) {
    bookmark_destroy(d->slots[slot].state);
    free(d->slots[slot].ids.at);
    d->slots[slot] = (struct daemon_slot){0};
}

void daemon_slots_park(struct daemon *d) {
    for (int i = 0; i < DAEMON_SLOTS; i++) {
        bookmark_destroy(d->slots[i].state);
        d->slots[i].state = NULL;
    }
}

static int64_t in_common(const struct daemon_ids *a, const struct daemon_ids *b) {
    int64_t n = min_i64(a->n, b->n), i = 0;
    while (i < n && a->at[i] == b->at[i])
        i++;
    return i;
}

int daemon_slot_best(const struct daemon *d, const struct daemon_task *task, int64_t *common) {
    int64_t most = 0;
    int best = -1;
    *common = 0;
    for (int i = 0; i < task->n_from; i++) {
        const struct daemon_slot *s = &d->slots[task->from[i]];
        int64_t n = s->used && s->state ? in_common(&s->ids, &task->prompt) : 0;
        n = n > 0 ? min_i64(n, bookmark_prompt(s->state)) : 0;
        // A state of more than that may have to go back further than it can.
        int64_t worth = n > 0 && bookmark_ready(s->state) <= n ? 1 + bookmark_ready(s->state) : 0;
        if (worth < most || (worth == most && n <= *common))
            continue;
        most = worth;
        *common = n;
        best = task->from[i];
    }
    return best;
}
