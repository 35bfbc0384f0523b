// Finds out how much of a request's conversation the sessions already have. See plan.h, sessions/matching/told.h.
#include "base/array.h"
#include "sessions/matching/volatile_text.h"
#include "sessions/state/owners.h"
#include "ws/completion/plan.h"
#include <stdlib.h>
#include <string.h>

#define BOUNDS_MAX 2048
#define CONTENT_BYTES ((size_t)64 << 20)

// --- volatile text ---

// Removes volatile text from a message. 1: there was some; 0: there was none; E_NOMEM.
static int strip(cJSON *message, const struct volatile_text *v) {
    const char *content = message_text(message, "content");
    struct buf out;
    buf_init(&out, CONTENT_BYTES);
    int rc = volatile_text_remove(v, content, strlen(content), &out);
    if (rc == 1) return json_set(message, "content", json_take_text(&out)) ? 1 : E_NOMEM;
    buf_release(&out);
    return rc;
}

// Answers are the model's own words: nothing of them is volatile.
static int make_plain(struct completion_request *r) {
    const struct volatile_text *v = r->served->volatile_text;
    cJSON *plain = v ? cJSON_Duplicate(r->messages, true) : NULL, *message;
    bool any = false;
    int rc = v && !plain ? E_NOMEM : 0;
    cJSON_ArrayForEach(message, plain) {
        if (rc < 0 || message_has_role(message, "assistant")) continue;
        rc = strip(message, v);
        any |= rc == 1;
    }
    if (rc >= 0 && any)
        r->plan->plain = plain;
    else
        cJSON_Delete(plain);
    return rc < 0 ? rc : 0;
}

// The messages without volatile text, to find the conversation.
static const cJSON *plain_messages(const struct completion_request *r) {
    return r->plan->plain ? r->plan->plain : r->messages;
}

// --- chains ---

static int add_bound(struct completion_plan *p, int n_messages) {
    TRY(ARRAY_RESIZE(p->bounds, p->n_bounds + 1));
    struct plan_bound *b = &p->bounds[p->n_bounds++];
    told_digits(p->chain, b->digits);
    b->n_messages = n_messages;
    return 0;
}

int completion_chain(struct completion_request *r, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    const cJSON *message;
    int rc = make_plain(r), n = 0;
    p->chain = told_start(r->owner ? r->owner->name : "");
    p->n_bounds = 0;
    cJSON_ArrayForEach(message, plain_messages(r)) {
        n++;
        if (rc == 0) rc = told_add(&p->chain, message);
        if (rc == 0 && message_has_role(message, "assistant") && message->next)
            rc = add_bound(p, n);
    }
    for (size_t i = 0; i < p->n_bounds / 2; i++) {
        struct plan_bound swap = p->bounds[i];
        p->bounds[i] = p->bounds[p->n_bounds - 1 - i];
        p->bounds[p->n_bounds - 1 - i] = swap;
    }
    if (p->n_bounds > BOUNDS_MAX) p->n_bounds = BOUNDS_MAX;
    return rc < 0 ? completion_no_memory(f) : 0;
}

// --- the turn to continue ---

// Adds the thinking to an answer's message. 1: added; 0: the message has its own; E_NOMEM.
static int add_thought(cJSON *messages, const struct plan_bound *b, const char *thought) {
    cJSON *answer = cJSON_GetArrayItem(messages, b->n_messages - 1);
    if (!answer || message_text(answer, "reasoning_content")[0]) return 0;
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "reasoning_content");
    return cJSON_AddStringToObject(answer, "reasoning_content", thought) ? 1 : E_NOMEM;
}

// Puts the thinking of an answer back into its message, unless the client sent it.
static int restore_thought(struct completion_request *r, const struct plan_bound *b,
                           const cJSON *shown) {
    const char *thought = message_text(shown, "thought");
    if (!thought[0]) return 0;
    int rc = add_thought(r->messages, b, thought);
    if (rc == 1 && r->plan->plain) TRY(add_thought(r->plan->plain, b, thought));
    return rc;
}

// The place of the newest turn found with this `told`; n_matches: there is none.
static size_t place_of(const struct store_told *found, const char *told) {
    size_t i = 0;
    while (i < found->n_matches && strcmp(found->digests[found->matches[i].digest], told) != 0) i++;
    return i;
}

// What is stored of the turns found (sessions/matching/told.h). It is parsed once asked for: of a long conversation only
// the deepest turn is, as a rule.
struct shown {
    const struct store_told *found; // NULL: none was found
    cJSON **parsed;                 // (found->n_matches) NULL: not yet
};

static const cJSON *shown_of(const struct shown *s, size_t i) {
    const char *text = s->found->matches[i].shown;
    if (!s->parsed[i]) s->parsed[i] = json_parse(text, strlen(text), &json_limits_file, NULL);
    return s->parsed[i];
}

// A key cannot be within a value: quotes are escaped there.
static bool has_thought(const struct shown *s, size_t i) {
    return strstr(s->found->matches[i].shown, "\"thought\"");
}

// Whether the log of the i-th turn found is the beginning of this conversation's rendering, which goes on at
// *from. A turn that was started by previous_turn has only its own messages on record, so the turns before it are
// checked first (path: room for n_matches places).
static bool suits(const struct completion_plan *p, const struct shown *shown, size_t i,
                  size_t *path, size_t *from) {
    const struct store_told *found = shown->found;
    size_t n = 0;
    for (; *told_follows(shown_of(shown, i)); n++) {
        path[n] = i;
        i = place_of(found, told_follows(shown_of(shown, i)));
        if (i == found->n_matches || n + 1 == found->n_matches) return false;
    }
    *from = 0;
    path[n++] = i;
    while (n > 0)
        if (!told_suits(shown_of(shown, path[--n]), completion_plain_rendering(p), from))
            return false;
    return true;
}

// The conversation continues no turn.
static void start_over(struct completion_plan *p) {
    p->parent = TURN_NONE;
    p->parent_tokens = 0;
    p->from = 0;
    p->n_old = 0;
}

// Chooses the deepest of the turns found that suit.
static void find_parent(struct completion_plan *p, const struct shown *shown, size_t *path) {
    const struct store_told *found = shown->found;
    start_over(p);
    for (size_t i = 0; found && i < found->n_matches; i++) {
        const struct stored_match *m = &found->matches[i];
        if (!suits(p, shown, i, path, &p->from)) continue;
        p->parent = m->turn;
        p->parent_tokens = m->log_end;
        p->n_old = p->bounds[m->digest].n_messages;
        return;
    }
    p->from = 0;
}

// The first n messages of one conversation, then the rest of another. NULL: no memory.
static cJSON *splice(const cJSON *first, int n, const cJSON *further) {
    cJSON *both = cJSON_CreateArray();
    const cJSON *message;
    int i = 0;
    cJSON_ArrayForEach(message, further) {
        const cJSON *one = i < n ? cJSON_GetArrayItem(first, i) : message;
        i++;
        if (json_append(both, cJSON_Duplicate(one, true))) continue;
        cJSON_Delete(both);
        return NULL;
    }
    return both;
}

// Renders the old messages without volatile text, and the new ones with theirs. Up to `from` this must be the
// plain rendering; then `from` is where the new messages begin here too. If the template writes earlier messages
// in another form because of a later one, the whole conversation is computed again.
static int render_behind(struct completion_request *r, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    struct chat_rendering *mixed = NULL;
    size_t len, len_mixed;
    cJSON *messages = splice(p->plain, p->n_old, r->messages);
    if (!messages) return completion_no_memory(f);
    int rc = completion_render_messages(r, messages, &mixed, f);
    if (rc < 0) {
        cJSON_Delete(messages);
        return rc;
    }
    const char *plain = engine_rendering_text(p->plain_rendering, &len);
    const char *text = engine_rendering_text(mixed, &len_mixed);
    if (p->from > len_mixed || memcmp(plain, text, p->from) != 0) {
        start_over(p);
        engine_rendering_free(mixed);
        cJSON_Delete(messages);
        return 0;
    }
    cJSON_Delete(r->messages);
    r->messages = messages;
    engine_rendering_free(p->rendering);
    p->rendering = mixed;
    p->text = text;
    p->len = len_mixed;
    return 0;
}

static int go_on(struct completion_request *r, const struct shown *shown, size_t *path,
                 struct completion_failure *f) {
    const struct store_told *found = shown->found;
    struct completion_plan *p = r->plan;
    bool changed = false;
    for (size_t i = 0; found && i < found->n_matches; i++) {
        if (!has_thought(shown, i)) continue;
        const struct plan_bound *b = &p->bounds[found->matches[i].digest];
        int rc = restore_thought(r, b, shown_of(shown, i));
        if (rc < 0) return completion_no_memory(f);
        changed |= rc == 1;
    }
    if (p->plain) TRY(completion_render_messages(r, p->plain, &p->plain_rendering, f));
    if (!p->rendering || changed) TRY(completion_render(r, f));
    find_parent(p, shown, path);
    if (found && !found->all && found->n_matches && p->parent == TURN_NONE)
        return COMPLETION_NEEDS_ALL;
    if (p->plain && p->parent != TURN_NONE) TRY(render_behind(r, f));
    const struct stored_match *deepest = found && found->n_matches ? found->matches : NULL;
    bool differs = deepest && p->bounds[deepest->digest].n_messages > p->n_old;
    return differs ? completion_give(r, deepest, shown_of(shown, 0), f) : 0;
}

int completion_continue(struct completion_request *r, const struct store_told *found,
                        struct completion_failure *f) {
    size_t n = found ? found->n_matches : 0;
    struct shown shown = {.found = found, .parsed = calloc(n + 1, sizeof *shown.parsed)};
    size_t *path = calloc(n + 1, sizeof *path);
    int rc = shown.parsed && path ? go_on(r, &shown, path, f) : completion_no_memory(f);
    for (size_t i = 0; shown.parsed && i < n; i++) cJSON_Delete(shown.parsed[i]);
    free(shown.parsed);
    free(path);
    return rc;
}

// --- what is stored ---

struct told *completion_told(const struct completion_request *r) {
    const struct completion_plan *p = r->plan;
    size_t len;
    const char *text = engine_rendering_text(completion_plain_rendering(p), &len);
    struct told_of of = {.chain = p->chain,
                         .text = text,
                         .len = len,
                         .thinks = p->thinks,
                         .tools = r->tool_choice == TOOLS_NONE ? NULL : r->tools};
    return told_new(&of);
}

// Where the turn's own text begins: after the previous answer, and after the end-of-turn text if the previous
// log ends with that token.
static size_t text_behind(const struct completion_request *r,
                          const struct chat_rendering *rendering, size_t answer_end) {
    bool closed = r->previous_last_id == r->served->info->end_of_turn;
    return closed ? engine_rendering_turn_end(rendering, answer_end) : answer_end;
}

struct told *completion_told_behind(struct completion_request *r) {
    struct completion_plan *p = r->plan;
    struct completion_failure f;
    size_t len, from = p->from;
    if (p->plain && completion_render_messages(r, p->plain, &p->plain_rendering, &f) < 0)
        return NULL;
    const struct chat_rendering *rendering = completion_plain_rendering(p);
    const char *text = engine_rendering_text(rendering, &len);
    // Up to the stand-in for the previous answer (check.c), both renderings are the same.
    if (p->plain && (from > len || memcmp(text, p->text, from) != 0)) return NULL;
    from = text_behind(r, rendering, from);
    cJSON *messages = cJSON_Duplicate(plain_messages(r), true);
    for (int i = 0; messages && i < p->n_old; i++) cJSON_DeleteItemFromArray(messages, 0);
    struct told_of of = {.text = text + (from <= len ? from : len),
                         .len = from <= len ? len - from : 0,
                         .thinks = p->thinks,
                         .tools = r->tool_choice == TOOLS_NONE ? NULL : r->tools,
                         .messages = messages};
    struct told *told = messages && from <= len ? told_new(&of) : NULL;
    cJSON_Delete(messages);
    return told;
}
