// The request to delete a turn and all below it. What that does is in erasure.c. See erase.h.
#include "sessions/requests/erase.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/saving/erasure.h"
#include "sessions/saving/head.h"
#include "sessions/saving/save.h"
#include <string.h>

static bool is_saved(const struct turn *t) {
    return t->storage != TURN_UNSAVED && t->version == t->saved_version && t->n_saved >= t->out.n;
}

// An automatic title is made of the first words, which may be gone now.
static int forget_title(struct session *s, struct pending *p) {
    if (s->head != TURN_NONE || !s->rec.auto_title || p->title) return 0;
    char *none = strdup("");
    if (!none) return E_NOMEM;
    p->title = s->rec.title;
    s->rec.title = none;
    s->first_words[0] = '\0';
    s->marks |= MARK_TITLE;
    return 0;
}

int erase_start(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    if (!head_can_move(s, r, r->turn)) return 0;
    if (r->leaf && r->turn >= 0 && session_turn(s, r->turn)->children.n > 0)
        return refuse(ss, r, "unsupported", "other turns follow turn %lld", (long long)r->turn);
    if (erasure_mark(s, r->turn) < 0) {
        erasure_unmark(s);
        return E_NOMEM;
    }
    bool saved = s->n_versions == 0;
    for (size_t i = 0; i < s->n_erased; i++) saved = saved && is_saved(s->turns[s->erased[i]]);
    if (!saved) {
        erasure_unmark(s);
        return refuse(ss, r, "session_busy", "a turn of this branch is still being saved");
    }
    const struct turn *t = session_turn(s, r->turn);
    struct pending *p = save_pending(s, PENDING_ERASE, r, 0);
    if (!p || head_move(s, t->on_path ? t->rec.parent : s->head, RECORD_ERASED, p) < 0) {
        if (p) pending_drop(&s->pending, p);
        erasure_unmark(s);
        return E_NOMEM;
    }
    if (forget_title(s, p) < 0) {
        head_move_back(s, p);
        pending_drop(&s->pending, p);
        erasure_unmark(s);
        return E_NOMEM;
    }
    service_add_bytes(s, -erasure_bytes(s));
    p->turn = r->turn;
    p->seq = p->rewound_seq;
    save_now(s);
    return 0;
}
