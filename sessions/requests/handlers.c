// The short requests of one session. See handlers.h.
#include "sessions/requests/handlers.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/deliver.h"
#include "sessions/clients/limits.h"
#include "sessions/replay/debug_replay.h"
#include "sessions/saving/save.h"
#include "sessions/state/sampling_layers.h"
#include "sessions/state/title.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/turns.h"
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((size_t)512 << 10)
#define TURN_BYTES 400 // of a turn's other fields

int handle_attach(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    int64_t now = session_tellable(s);
    bool reset = r->after > now || (r->after > 0 && event_log_is_lost(&s->events, r->after));
    int64_t cursor = r->after < 0 || reset ? now : r->after;
    if (clients_attach(s, r->client, cursor) < 0) return E_NOMEM;
    struct session_answer a = answer_of(r, ANSWER_ATTACHED);
    a.reset = reset;
    session_view_fill(s, &a.session);
    a.seq = a.session.rec.seq;
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
    return 0;
}

int handle_detach(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    deliver_answer_told(s, r->client, INT64_MAX);
    struct attachment *at = session_attachment(s, r->client);
    if (at) clients_detach(at);
    if (s->author == r->client) clients_forget_author(s);
    struct session_answer a = answer_of(r, ANSWER_DETACHED);
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
    return 0;
}

// The siblings of all turns of a page, one list after another, and which of them have the same input.
struct page_siblings {
    int64_t *list;
    int32_t *inputs;
};

static int list_siblings(const struct session *s, const struct session_page *page,
                         struct turn_view *views, struct page_siblings *out) {
    size_t total = 0, n, at = 0;
    for (size_t i = 0; i < page->n; i++)
        total += session_siblings(s, s->turns[page->turns[i]], NULL);
    out->list = malloc((total + 1) * sizeof *out->list);
    out->inputs = malloc((total + 1) * sizeof *out->inputs);
    if (!out->list || !out->inputs) return E_NOMEM;
    for (size_t i = 0; i < page->n; i++, at += n) {
        n = session_siblings(s, s->turns[page->turns[i]], out->list + at);
        TRY(session_sibling_inputs(s, out->list + at, n, out->inputs + at));
        views[i].siblings = out->list + at;
        views[i].inputs = out->inputs + at;
        views[i].n_siblings = n > 1 ? n : 0;
    }
    return 0;
}

// As many of the newest turns as fit into PAGE_BYTES, and at least one: the net thread encodes the
// answer.
static void shorten(struct session_page *page, struct turn_view *views) {
    size_t first = page->n, bytes = 0;
    while (first > 0 && bytes < PAGE_BYTES) {
        first--;
        bytes += TURN_BYTES + views[first].text_len + views[first].input.text_len;
    }
    page->n -= first;
    page->more |= first > 0;
    memmove(page->turns, page->turns + first, page->n * sizeof *page->turns);
    memmove(views, views + first, page->n * sizeof *views);
}

int handle_get(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct session_page page = {0};
    struct turn_view *views = NULL;
    struct page_siblings siblings = {0};
    struct session_answer a = answer_of(r, ANSWER_STATE);
    int rc = E_NOMEM;
    if (session_page(s, r->last, r->before, &page) == 0) views = calloc(page.n + 1, sizeof *views);
    for (size_t i = 0; views && i < page.n; i++)
        session_turn_view(s, s->turns[page.turns[i]], &views[i]);
    if (views) shorten(&page, views);
    if (views) rc = list_siblings(s, &page, views, &siblings);
    if (rc == 0 && r->attach) rc = clients_attach(s, r->client, session_tellable(s));
    if (rc == 0) {
        a.more = page.more;
        a.before = r->before;
        a.turns = views;
        a.n_turns = page.n;
        session_view_fill(s, &a.session);
        a.seq = a.session.rec.seq;
        ss->cb.on_answer(ss->cb.ctx, r->client, &a);
    }
    free(siblings.list);
    free(siblings.inputs);
    free(views);
    free(page.turns);
    return rc;
}

static bool note_refused(const struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    const char *now = s->rec.note ? s->rec.note : "";
    if (!r->note) return false;
    if (strlen(r->note) > SESSION_NOTE_BYTES)
        refuse(ss, r, "limit_reached", "a session's note may have %d bytes", SESSION_NOTE_BYTES);
    else if (r->update.old_note && strcmp(r->update.old_note, now) != 0)
        refuse(ss, r, "session_busy", "the session's note has changed meanwhile");
    else
        return limits_refuse_bytes(ss, r, (int64_t)strlen(r->note));
    return true;
}

// A new link's token, and its digest. NULL: no memory.
static char *new_share(char token[SHARE_TOKEN_LEN + 1]) {
    char digest[SHARE_DIGEST_LEN + 1];
    share_draw(token);
    (void)share_digest(token, digest);
    return strdup(digest);
}

// What the request changes, made in its pending entry. E_NOMEM.
static int make_update(struct session *s, const struct request *r, struct pending *p) {
    bool failed = false;
    if (r->title) p->title = r->title[0] ? strdup(r->title) : title_first_words(s);
    p->note = record_strdup(r->note, &failed);
    if (r->share == FLAG_ON) p->share = new_share(p->share_token);
    if (r->folder && r->folder[0]) p->folder = record_strdup(r->folder, &failed);
    p->note_changed = r->note;
    p->share_changed = r->share;
    p->folder_changed = r->folder;
    failed = failed || (r->title && !p->title) || (r->share == FLAG_ON && !p->share);
    return failed ? E_NOMEM : event_log_reserve(&s->events, 1);
}

// Swaps the new settings in; the pending request keeps the old ones, in case its commit fails.
int handle_update(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct err err = {0};
    char *sampling = NULL;
    if (r->cancel_after_ms > SESSION_CANCEL_AFTER_MAX_MS)
        return refuse(ss, r, "invalid", "cancel_after_ms must be from 1 to %d",
                      SESSION_CANCEL_AFTER_MAX_MS);
    if (r->title && strlen(r->title) > SESSION_TITLE_BYTES)
        return refuse(ss, r, "invalid", "title has more than %d bytes", SESSION_TITLE_BYTES);
    if (r->folder && r->folder[0] && !session_folder_valid(r->folder))
        return refuse(ss, r, "invalid",
                      "folder must have at most %d characters, one of them visible, and no control "
                      "characters",
                      SESSION_FOLDER_CHARS);
    if (note_refused(s, r)) return 0;
    int rc = preparing_grammar(s, r, &err);
    if (rc > 0) return 0;
    if (rc < 0) return refuse_err(ss, r, &err);
    if (r->sampling && !(sampling = layers_normal(service_model(s), r->sampling, &err)))
        return refuse_err(ss, r, &err);
    struct pending *p = save_pending(s, PENDING_UPDATE, r, event_log_seq(&s->events) + 1);
    if (!p || make_update(s, r, p) < 0) {
        free(sampling);
        if (p) pending_drop(&s->pending, p);
        return E_NOMEM;
    }
    p->sampling = sampling;
    event_log_add(&s->events, EVENT_UPDATED, -1, NULL, service_now_ms(ss));
    if (p->title) {
        char *old = s->rec.title;
        s->rec.title = p->title;
        p->title = old;
        s->rec.auto_title = r->title[0] == '\0';
        s->marks |= MARK_TITLE;
    }
    if (p->note_changed) s->marks |= MARK_NOTE;
    save_swap_settings(s, p);
    if (r->cancel_after_ms >= 0) s->rec.cancel_after_ms = r->cancel_after_ms;
    if (r->pinned) s->rec.pinned = r->pinned == FLAG_ON;
    if (r->archived) s->rec.archived = r->archived == FLAG_ON;
    s->version++;
    save_now(s);
    return 0;
}

int handle_cancel(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    if (r->cancel.replay)
        replays_cancel(ss, r->client, s->rec.key);
    else
        turns_cancel(s, r->turn);
    struct session_answer a = answer_of(r, ANSWER_CANCELLING);
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
    return 0;
}

// Only for a session in memory: reading one from disk costs more than a hint is worth.
void handle_typing(struct sessions *ss, const struct request *r) {
    struct session *s = service_find(ss, r->owner, r->session);
    if (!s || !session_is_known(s)) return;
    if (session_has_turn(s)) return;
    if (s->cache == PLACE_HOST) engine_sequence_warm(s->instance->engine, (uint64_t)s->rec.key);
    if (session_state(s) == SESSION_COLD) turns_hint(s);
}
