// See completion.h. A completion goes through its states once: a worker makes its prompt, a session runs
// its turn, and the session's events become the answer's parts (speech.h).
#include "sessions/state/title.h"
#include "ws/completion/plan.h"
#include "ws/completion/state.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// New text up to INLINE_BYTES, of a rendered conversation up to HASHED_BYTES, is compared with its turn and encoded on
// the net thread; more on a worker.
#define INLINE_BYTES 4096
#define HASHED_BYTES 65536
#define LANE_COMPLETION ((uint64_t)5 << 61)
#define CANCEL_AFTER_MS 1 // of a session that a completion opens, once the completion is released

static struct completion *of_follower(struct follower *f) {
    return (struct completion *)f;
}

// --- answers ---

static void release_speeches(struct completion *c) {
    for (int32_t i = 0; i < c->n_answers; i++) speech_release(&c->speeches[i]);
}

// thinks: the prompt opens the thinking.
static void init_speeches(struct completion *c, bool thinks) {
    for (int32_t i = 0; i < c->n_answers; i++) {
        speech_init(&c->speeches[i], c->request, thinks);
        c->speeches[i].answer = i;
    }
}

// --- the end ---

static void cancel_turn(struct completion *c) {
    struct request r = service_request(&c->follower, REQUEST_CANCEL, c->owner, c->session);
    r.client = CLIENT_GONE;
    r.turn = c->turn;
    service_submit(c->service, &r);
}

static void destroy(struct completion *c) {
    struct service *s = c->service;
    if (c->state == RUNNING && !c->request->outlives) cancel_turn(c);
    if (c->request->forget && c->fresh) service_delete_session(s, c->owner, c->session);
    service_drop_follower(s, &c->follower);
    completion_request_free(c->request);
    release_speeches(c);
    free(c->speeches);
    store_told_free(c->found);
    told_free(c->told);
    free(c->ids);
    free(c->shown);
    free(c->owner);
    free(c);
}

void completion_release(struct completion *c) {
    if (!c) return;
    c->released = true;
    c->ready = NULL;
    // The turn cannot be cancelled before it has a number.
    bool waits = c->state == STARTING && c->service->state != SERVICE_CLOSING;
    if (c->state != MAKING && !waits) destroy(c);
}

static void push_later(struct completion *c) {
    if (follower_push_later(&c->service->followers, &c->follower)) return;
    completion_no_memory(&c->failure);
    c->live = NULL;
}

// --- beginning ---

static const char *system_of(const struct completion_request *r) {
    const cJSON *first = r->messages->child;
    const char *text = message_text(first, "content");
    bool is_system = message_has_role(first, "system") && text[0];
    return is_system && strlen(text) <= SESSION_SYSTEM_BYTES ? text : NULL;
}

// Drops the token by which the template ends the previous answer, if the log ends with it already.
static void drop_seam(struct completion *c) {
    if (c->n_ids < 2 || c->ids[0] != c->request->previous_last_id) return;
    memmove(c->ids, c->ids + 1, --c->n_ids * sizeof *c->ids);
}

// The turn follows previous_turn: only the rendering's new part is encoded.
static int make_exact(struct completion *c) {
    struct completion_request *r = c->request;
    TRY(completion_encode(r, r->plan->from, SIZE_MAX, &c->ids, &c->n_ids, &c->failure));
    drop_seam(c);
    c->told = completion_told_behind(r);
    r->plan->parent = r->previous_turn;
    snprintf(c->session, sizeof c->session, "%s", r->previous_session);
    return 0;
}

static int make_matched(struct completion *c) {
    struct completion_request *r = c->request;
    int rc = completion_continue(r, c->found, &c->failure);
    c->needs_all = rc == COMPLETION_NEEDS_ALL;
    if (rc != 0) return rc;
    TRY(completion_encode(r, r->plan->from, SIZE_MAX, &c->ids, &c->n_ids, &c->failure));
    const struct store_told *found = c->found;
    c->fresh = !found || (!found->found && !found->exists);
    if (!c->fresh)
        snprintf(c->session, sizeof c->session, "%s", found->found ? found->found : r->session);
    c->usage.prompt_tokens = completion_prompt_tokens(r->plan, c->n_ids);
    c->told = completion_told(r);
    return c->told ? 0 : completion_no_memory(&c->failure);
}

static void make(struct follower *f) {
    struct completion *c = of_follower(f);
    if ((c->request->previous_session ? make_exact : make_matched)(c) != 0) return;
    c->shown = completion_shown(c->request);
    if (!c->shown) completion_no_memory(&c->failure);
}

static void made(struct follower *f) {
    struct completion *c = of_follower(f);
    c->state = MADE;
    if (c->released)
        destroy(c);
    else
        push_later(c);
}

// Bytes of the rendering that need not be encoded, if the deepest turn found suits.
static size_t known_bytes(const struct completion *c) {
    const struct store_told *found = c->found;
    bool deepest = found && !found->all && found->n_matches;
    size_t known = deepest ? told_length(found->matches[0].shown) : 0;
    return known <= c->request->plan->len ? known : 0;
}

static void work(struct completion *c) {
    const struct completion_plan *p = c->request->plan;
    c->job = (struct service_job){.run = make, .done = made};
    c->state = MAKING;
    if (p->rendering && p->len <= HASHED_BYTES && p->len - known_bytes(c) <= INLINE_BYTES) {
        make(&c->follower);
        made(&c->follower);
        return;
    }
    if (service_work(c->service, &c->follower, c->owner, LANE_COMPLETION, &c->job) == 0) return;
    c->state = MADE;
    completion_refuse(&c->failure, "overloaded", "",
                      "the server has too many long messages to read");
    push_later(c);
}

static struct request request_of(const struct completion *c, enum request_kind kind) {
    return service_request(&c->follower, kind, c->owner, c->session);
}

// Looks for the sessions whose conversation this one may continue.
static void match(struct completion *c) {
    const struct completion_request *q = c->request;
    const struct completion_plan *p = q->plan;
    struct request r = service_request(&c->follower, REQUEST_MATCH, c->owner, q->session);
    const char **digests = malloc((p->n_bounds + 1) * sizeof *digests);
    if (!digests) {
        completion_no_memory(&c->failure);
        push_later(c);
        return;
    }
    for (size_t i = 0; i < p->n_bounds; i++) digests[i] = p->bounds[i].digits;
    r.match.fingerprint = q->served->info->fingerprint;
    r.match.digests = digests;
    r.match.n_digests = p->n_bounds;
    r.match.all = c->needs_all || p->plain;
    r.turn = TURN_NONE;
    c->needs_all = false;
    c->state = MATCHING;
    service_submit(c->service, &r);
    free(digests);
}

static void attach(struct completion *c, int64_t after) {
    struct request r = request_of(c, REQUEST_ATTACH);
    r.after = after;
    sessions_submit(c->service->sessions, &r);
}

static void start_turn(struct completion *c) {
    const struct completion_request *q = c->request;
    char title[SESSION_AUTO_TITLE_BYTES];
    if (c->fresh && q->session)
        strcpy(c->session, q->session);
    else if (c->fresh)
        sessions_draw_id(c->service->sessions, c->session);
    struct request r = request_of(c, REQUEST_START);
    r.start.in = c->fresh ? START_IN_NEW : q->stays ? START_HERE : START_OR_FORK;
    r.start.open.served = q->served;
    r.start.open.system = c->fresh ? system_of(q) : NULL;
    r.title = c->fresh && completion_title(q, title, sizeof title) ? title : NULL;
    r.temporary = q->temporary;
    r.cancel_after_ms = q->outlives ? 0 : CANCEL_AFTER_MS;
    r.attach = true;
    r.turn = c->fresh ? TURN_HEAD : q->plan->parent;
    r.input = (struct turn_input){.kind = INPUT_CONTENT,
                                  .text = c->shown,
                                  .text_len = strlen(c->shown),
                                  .ids = c->ids,
                                  .n_ids = c->n_ids};
    r.sampling = q->sampling;
    r.start.expected = q->plan->expected.ids;
    r.start.n_expected = q->plan->expected.len;
    r.start.given = q->plan->given;
    r.start.told = c->told;
    r.note = q->note;
    service_submit(c->service, &r);
}

static void begin(struct completion *c) {
    c->state = STARTING;
    release_speeches(c); // of a session that was lost
    init_speeches(c, c->request->plan->thinks);
    start_turn(c);
}

// --- as a follower ---

// Forgets what was found of the conversation, and looks again.
static void match_again(struct completion *c) {
    store_told_free(c->found);
    told_free(c->told);
    given_answer_free(c->request->plan->given);
    free(c->ids);
    free(c->shown);
    c->found = NULL;
    c->told = NULL;
    c->request->plan->given = NULL;
    c->ids = NULL;
    c->shown = NULL;
    match(c);
}

// Called outside of sessions_* calls.
static void push(struct follower *f) {
    struct completion *c = of_follower(f);
    bool goes_on = !c->failure.status && !c->released;
    if (goes_on && (c->state == LOST || (c->state == MADE && c->needs_all)))
        match_again(c);
    else if (goes_on && c->state == MATCHING && c->found)
        work(c);
    else if (goes_on && c->state == MADE && c->request->counts)
        c->state = ENDED;
    else if (goes_on && c->state == MADE)
        begin(c);
    if (c->state == STARTING && c->failure.status) c->state = ENDED;
    if (c->released && c->state != MAKING && c->state != STARTING) {
        destroy(c);
        return;
    }
    bool counted = c->request->counts && c->state == ENDED;
    if (c->ready && (c->live || c->failure.status || counted)) c->ready(c->user, c);
}

// Since the search, another request has opened a session of this name, or deleted the one that was found.
static bool is_lost(const struct completion *c, const char *code) {
    const struct completion_request *r = c->request;
    bool searches = !r->previous_session && !r->alone && !r->stays && !c->failure.status;
    const char *lost = c->fresh ? "session_exists" : "session_not_found";
    return searches && c->state == STARTING && strcmp(code, lost) == 0;
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct completion *c = of_follower(f);
    if (a->kind == ANSWER_ACCEPTED && c->state == STARTING) {
        c->turn = a->turn;
        c->fresh |= strcmp(c->session, a->session_id) != 0; // a fork
        snprintf(c->session, sizeof c->session, "%s", a->session_id);
        c->state = RUNNING;
        if (c->released || c->live) push_later(c);
    }
    if (a->kind == ANSWER_MATCHED) {
        c->found = *a->matched;
        *a->matched = NULL;
        push_later(c);
    }
    if (a->kind != ANSWER_ERROR) return;
    if (is_lost(c, a->code))
        c->state = LOST;
    else
        completion_failure_take(&c->failure, a);
    push_later(c);
}

static void on_ready(struct follower *f, struct session *s) {
    struct completion *c = of_follower(f);
    c->live = s;
    push_later(c);
}

static void on_progress(struct follower *f, struct session *s, int64_t turn, int64_t done,
                        int64_t total) {
    struct completion *c = of_follower(f);
    if (c->reported != NO_EVENT || c->state != RUNNING || turn != c->turn) return;
    c->live = s; // it has begun
    push_later(c);
}

static void on_store_failed(struct follower *f, const char *message) {
    struct completion *c = of_follower(f);
    completion_fail(c, "store_failed", message);
    push_later(c);
}

static void on_gone(struct follower *f, struct session *s) {
    struct completion *c = of_follower(f);
    c->live = NULL;
    if (completion_has_session(c)) c->state = ENDED;
    completion_failure_set(&c->failure, "error", "the completion's session was deleted");
    push_later(c);
}

static bool is_drained(const struct follower *f) {
    return !((const struct completion *)f)->live;
}

static void on_end(struct follower *f) {
    struct completion *c = of_follower(f);
    completion_fail(c, "shutting_down", "the server is shutting down");
    if (c->released && c->state != MAKING)
        destroy(c);
    else if (c->ready)
        c->ready(c->user, c);
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = on_ready,
                                                 .on_progress = on_progress,
                                                 .on_store_failed = on_store_failed,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .drained = is_drained,
                                                 .end = on_end,
                                                 .sole = true};

// --- starting ---

static struct completion *completion_new(struct service *s, const char *owner,
                                         struct completion_request *r, completion_ready_fn ready,
                                         void *user) {
    struct completion *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (struct completion){.follower.ops = &follower_ops,
                             .service = s,
                             .ready = ready,
                             .user = user,
                             .turn = TURN_NONE,
                             .state = MADE,
                             .owner = strdup(owner)};
    c->n_answers = r->sampling && r->sampling->params.n > 1 ? r->sampling->params.n : 1;
    if (r->counts) c->n_answers = 0;
    c->speeches = calloc((size_t)c->n_answers + 1, sizeof *c->speeches);
    if (!c->owner || !c->speeches || followers_add(&s->followers, &c->follower) < 0) {
        free(c->speeches);
        free(c->owner);
        free(c);
        return NULL;
    }
    c->request = r;
    return c;
}

struct completion *completion_start(struct service *s, const char *owner,
                                    struct completion_request *r, completion_ready_fn ready,
                                    void *user) {
    struct completion *c = completion_new(s, owner, r, ready, user);
    if (c && !r->previous_session && !r->alone && (r->session || r->plan->n_bounds > 0))
        match(c);
    else if (c)
        work(c);
    return c;
}

struct completion *completion_follow(struct service *s, const char *owner,
                                     struct completion_request *r, const struct completion_turn *t,
                                     completion_ready_fn ready, void *user) {
    struct completion *c = completion_new(s, owner, r, ready, user);
    if (!c) return NULL;
    init_speeches(c, t->thinks);
    snprintf(c->session, sizeof c->session, "%s", t->session);
    c->turn = t->turn;
    c->state = RUNNING;
    attach(c, t->after);
    service_poll_soon(s);
    return c;
}

void completion_cancel(struct completion *c) {
    if (c->state == RUNNING) {
        cancel_turn(c);
    } else {
        completion_fail(c, "error", "the completion was cancelled before it began");
        push_later(c);
    }
}
