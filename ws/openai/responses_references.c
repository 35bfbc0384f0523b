// See responses_references.h.
#include "ws/openai/responses_references.h"
#include "ws/openai/conversation.h"
#include "ws/openai/responses_run.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)64 << 20)

// A turn, or (turn TURN_NONE) a session, which has the note of a conversation.
struct source {
    struct responses_id id;
    struct responses_record record;
    struct responses_session session;
    cJSON *items; // of the turn, with their ids; NULL: not written yet
    cJSON *note;  // of the conversation; NULL: it is none
    bool found, read;
};

struct responses_references {
    struct source *sources; // (n) each once: by session, and the session itself before its turns
    size_t n, looking_at;
    size_t bytes;     // of the turns that were read
    const char **ids; // (n_ids) borrowed, while the input is read
    size_t n_ids;
    struct responses_lookup *lookup;
    struct service *service;
    const char *owner; // borrowed while it looks
    responses_references_fn done;
    void *ctx;
};

// --- reading ---------------------------------------------------------------

static const char *reference_of(const cJSON *item) {
    return responses_item_is_reference(item) ? json_string(item, "id") : NULL;
}

bool responses_references_in(const cJSON *input) {
    const cJSON *item;
    if (!cJSON_IsArray(input)) return false;
    cJSON_ArrayForEach(item, input) if (responses_item_is_reference(item)) return true;
    return false;
}

// In OpenAI's words, which clients look for.
static int missing(struct completion_failure *f, const char *id) {
    char text[256];
    snprintf(text, sizeof text,
             "Item with id '%.64s' not found. Items are not persisted when `store` is set to "
             "false. Try again with `store` set to true, or remove this item from your input.",
             id);
    return openai_fail(f, 404, "item_not_found", "input", text);
}

static int by_place(const void *a, const void *b) {
    const struct source *x = a, *y = b;
    int order = strcmp(x->id.session, y->id.session);
    return order ? order : (x->id.turn > y->id.turn) - (x->id.turn < y->id.turn);
}

static void sort_once(struct responses_references *refs) {
    size_t kept = 0;
    qsort(refs->sources, refs->n, sizeof *refs->sources, by_place);
    for (size_t i = 0; i < refs->n; i++)
        if (kept == 0 || by_place(&refs->sources[kept - 1], &refs->sources[i]) != 0)
            refs->sources[kept++] = refs->sources[i];
    refs->n = kept;
}

static int read_reference(struct responses_references *refs, const cJSON *item, int at,
                          struct completion_failure *f) {
    const char *id = reference_of(item);
    struct responses_id place;
    char param[48];
    snprintf(param, sizeof param, "input[%d].id", at);
    if (!id) return openai_bad(f, param, "must be a string");
    if (!responses_id_parse_item(id, &place)) return missing(f, id);
    place.index = -1;
    if (!place.added) refs->sources[refs->n++].id = place;
    place.turn = TURN_NONE;
    refs->sources[refs->n++].id = place;
    refs->ids[refs->n_ids++] = id;
    return 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Bounds the total: naming one item many times would make a short request a long conversation.
static int refuse_twice(struct responses_references *refs, struct completion_failure *f) {
    char text[256];
    qsort(refs->ids, refs->n_ids, sizeof *refs->ids, by_text);
    for (size_t i = 1; i < refs->n_ids; i++) {
        if (strcmp(refs->ids[i - 1], refs->ids[i]) != 0) continue;
        snprintf(text, sizeof text,
                 "Duplicate item found with id '%.64s'. Remove duplicate items from your input and "
                 "try again.",
                 refs->ids[i]);
        return openai_fail(f, 400, "invalid_value", "input", text);
    }
    return 0;
}

static int read_all(struct responses_references *refs, const cJSON *input,
                    struct completion_failure *f) {
    const cJSON *item;
    size_t n = 0;
    int at = 0;
    cJSON_ArrayForEach(item, input) n += responses_item_is_reference(item);
    if (n > RESPONSES_ITEMS_MAX)
        return openai_bad(f, "input", "names more than 8192 items by their ids");
    refs->sources = calloc(2 * n, sizeof *refs->sources);
    refs->ids = calloc(n, sizeof *refs->ids);
    if (!refs->sources || !refs->ids) return openai_no_memory(f);
    cJSON_ArrayForEach(item, input) {
        if (responses_item_is_reference(item)) TRY(read_reference(refs, item, at, f));
        at++;
    }
    TRY(refuse_twice(refs, f));
    sort_once(refs);
    return 0;
}

int responses_references_read(struct responses_references **out, const cJSON *input,
                              struct completion_failure *f) {
    struct responses_references *refs = calloc(1, sizeof *refs);
    int rc = refs ? read_all(refs, input, f) : openai_no_memory(f);
    if (rc < 0) {
        responses_references_free(refs);
        return rc;
    }
    free(refs->ids); // the input's
    refs->ids = NULL;
    *out = refs;
    return 0;
}

void responses_references_free(struct responses_references *refs) {
    if (!refs) return;
    responses_lookup_drop(refs->lookup);
    for (size_t i = 0; i < refs->n; i++) {
        struct source *src = &refs->sources[i];
        responses_record_release(&src->record);
        responses_session_release(&src->session);
        cJSON_Delete(src->items);
        cJSON_Delete(src->note);
    }
    free(refs->sources);
    free(refs->ids);
    free(refs);
}

// --- looking ---------------------------------------------------------------

static void look_on(struct responses_references *refs, const struct completion_failure *f);

static void turn_found(void *ctx, struct responses_record *r, const struct completion_failure *f) {
    struct responses_references *refs = ctx;
    struct source *src = &refs->sources[refs->looking_at];
    struct completion_failure busy = *f;
    refs->lookup = NULL;
    src->found = !f->status;
    src->record = *r;
    refs->bytes += r->text_len + (r->request ? strlen(r->request) : 0);
    if (src->found && !r->finish[0])
        completion_failure_set(&busy, "session_busy",
                               "the response of an item that the input names is in progress");
    if (refs->bytes > BYTES_MAX)
        completion_failure_set(&busy, "invalid",
                               "the items that the input names are of responses that have more "
                               "than 64 MiB");
    look_on(refs, &busy);
}

static void session_found(void *ctx, struct responses_session *s,
                          const struct completion_failure *f) {
    struct responses_references *refs = ctx;
    struct source *src = &refs->sources[refs->looking_at];
    refs->lookup = NULL;
    src->found = !f->status;
    src->session = *s;
    look_on(refs, f);
}

static void start_lookup(struct responses_references *refs) {
    const struct responses_id *id = &refs->sources[refs->looking_at].id;
    refs->lookup =
        id->turn == TURN_NONE
            ? responses_lookup_session(refs->service, refs->owner, id->session, session_found, refs)
            : responses_lookup_start(refs->service, refs->owner, id->session, id->turn, turn_found,
                                     refs);
}

// Goes on after the source that it looked at.
static void look_on(struct responses_references *refs, const struct completion_failure *f) {
    struct completion_failure why = *f;
    if (why.status == 404) why = (struct completion_failure){0};
    refs->looking_at++;
    if (!why.status && refs->looking_at < refs->n) {
        start_lookup(refs);
        if (refs->lookup) return;
        completion_failure_set(&why, "overloaded", "the server is out of memory");
    }
    if (why.status) snprintf(why.param, sizeof why.param, "input");
    refs->done(refs->ctx, &why);
}

int responses_references_look(struct responses_references *refs, struct service *s,
                              const char *owner, responses_references_fn done, void *ctx) {
    refs->service = s;
    refs->owner = owner;
    refs->done = done;
    refs->ctx = ctx;
    start_lookup(refs);
    return refs->lookup ? 0 : E_NOMEM;
}

// --- resolving -------------------------------------------------------------

static struct source *find_source(struct responses_references *refs, const char *session,
                                  int64_t turn) {
    struct source key = {.id = {.turn = turn}};
    snprintf(key.id.session, sizeof key.id.session, "%s", session);
    struct source *src = bsearch(&key, refs->sources, refs->n, sizeof key, by_place);
    return src && src->found ? src : NULL;
}

// The conversation of the session, where it is one.
static const cJSON *conversation_of(struct responses_references *refs, const char *session) {
    struct source *src = find_source(refs, session, TURN_NONE);
    if (!src) return NULL;
    if (!src->read) src->note = conversation_read(src->session.note);
    src->read = true;
    return src->note;
}

static int read_turn(struct source *src, const struct service *s) {
    if (src->read) return 0;
    TRY(responses_record_read(&src->record, s));
    src->read = true;
    src->items = responses_record_known_items(&src->record);
    return src->items ? 0 : E_NOMEM;
}

static const cJSON *find_item(const cJSON *items, const char *id) {
    const cJSON *item;
    cJSON_ArrayForEach(item, items) {
        const char *its = json_string(item, "id");
        if (its && strcmp(its, id) == 0) return item;
    }
    return NULL;
}

// A copy of the item, for the caller. E_NOTFOUND, E_NOMEM.
static int resolve(struct responses_references *refs, const struct service *s, const char *id,
                   cJSON **out) {
    struct responses_id place;
    if (!responses_id_parse_item(id, &place)) return E_NOTFOUND;
    const cJSON *conversation = conversation_of(refs, place.session), *item = NULL;
    int64_t chunk = conversation ? conversation_chunk_of(conversation, &place, id) : place.turn;
    if (chunk < 0) return E_NOTFOUND; // deleted from the conversation
    if (place.added) {
        if (!conversation) return E_NOTFOUND;
        item = conversation_added_item(conversation, place.index);
    } else {
        struct source *src = find_source(refs, place.session, place.turn);
        if (!src) return E_NOTFOUND;
        TRY(read_turn(src, s));
        item = find_item(src->items, id);
    }
    if (!item) return E_NOTFOUND;
    *out = cJSON_Duplicate(item, true);
    return *out ? 0 : E_NOMEM;
}

int responses_references_resolve(struct responses_references *refs, const struct service *s,
                                 cJSON *items, struct completion_failure *f) {
    cJSON *item = items->child, *next;
    for (; item; item = next) {
        const char *id = reference_of(item);
        cJSON *found = NULL;
        next = item->next;
        if (!id) continue;
        int rc = resolve(refs, s, id, &found);
        if (rc < 0) return rc == E_NOTFOUND ? missing(f, id) : openai_no_memory(f);
        cJSON_ReplaceItemViaPointer(items, item, found);
    }
    return 0;
}
