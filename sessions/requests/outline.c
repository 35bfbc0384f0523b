// The tree of a session's turns, a page at a time: what a map of it needs. See outline.h.
#include "sessions/requests/outline.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include <stdlib.h>

size_t outline_turns(const struct session *s, const struct request *r, int64_t *list,
                     int64_t *next) {
    size_t n = 0, most = r->limit > 0 ? (size_t)r->limit : SESSION_PAGE_TURNS;
    int64_t i = r->after > 0 ? r->after : 0;
    if (most > OUTLINE_TURNS_MAX) most = OUTLINE_TURNS_MAX;
    for (; i < (int64_t)s->n_turns && n < most; i++)
        if (session_turn_visible(s, s->turns[i])) list[n++] = i;
    *next = i < (int64_t)s->n_turns ? i : TURN_NONE;
    return n;
}

int outline_page(struct session *s, const struct request *r) {
    int64_t list[OUTLINE_TURNS_MAX];
    struct session_answer a = answer_of(r, ANSWER_OUTLINE);
    a.n_turns = outline_turns(s, r, list, &a.before);
    struct turn_view *views = calloc(a.n_turns + 1, sizeof *views);
    if (!views) return E_NOMEM;
    for (size_t i = 0; i < a.n_turns; i++) session_turn_view(s, s->turns[list[i]], &views[i]);
    a.turns = views;
    session_view_fill(s, &a.session);
    s->service->cb.on_answer(s->service->cb.ctx, r->client, &a);
    free(views);
    return 0;
}
