// See conversation_work.h.
#include "ws/openai/conversation_work.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_form.h"
#include "ws/openai/body.h"
#include "ws/openai/conversations.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_MAX_BYTES ((size_t)256 << 20)
#define ITEMS_AT_ONCE 20

void openai_conversations_release(void *decoded) {
    struct conversation_body *b = decoded;
    if (!b) return;
    cJSON_Delete(b->metadata);
    cJSON_Delete(b->items);
    free(b->model);
    free(b);
}

// --- the body --------------------------------------------------------------

static void read_items(struct conversation_body *b, const cJSON *items) {
    if (!items || cJSON_IsNull(items)) return;
    cJSON *messages = cJSON_CreateArray();
    if (!cJSON_IsArray(items) || cJSON_GetArraySize(items) > ITEMS_AT_ONCE) {
        openai_bad(&b->failure, "items", "must be an array of at most 20 items");
    } else if (!messages) {
        openai_no_memory(&b->failure);
    } else if (responses_items_read(messages, items, "items", &b->failure) == 0) {
        b->items = responses_items_normal(items);
        if (!b->items) openai_no_memory(&b->failure);
    }
    cJSON_Delete(messages);
}

void *openai_conversations_decode(void *service, const struct http_payload *p) {
    struct conversation_body *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    cJSON *json =
        p->len == 0 ? cJSON_CreateObject() : openai_body_read(p->body, p->len, &b->failure);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(json, "metadata");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(json, "model");
    if (json && responses_metadata_check(metadata, &b->failure) == 0)
        read_items(b, cJSON_GetObjectItemCaseSensitive(json, "items"));
    if (cJSON_IsObject(metadata)) b->metadata = cJSON_Duplicate(metadata, true);
    if (cJSON_IsString(model)) b->model = strdup(model->valuestring);
    cJSON_Delete(json);
    return b;
}

// --- refusals ---------------------------------------------------------------

void conversation_refuse_missing(struct conversation_work *c) {
    char id[RESPONSES_ID_MAX], message[256];
    responses_id_conversation(id, c->session);
    snprintf(message, sizeof message, "Conversation with id '%s' not found.", id);
    openai_fail(&c->failure, 404, "conversation_not_found", NULL, message);
}

static void refuse_item(struct conversation_work *c) {
    char message[256];
    snprintf(message, sizeof message, "Item with id '%s' not found.", c->item);
    openai_fail(&c->failure, 404, "item_not_found", NULL, message);
}

// --- the worker's part -----------------------------------------------------

static void write_conversation(struct conversation_work *c) {
    struct json_writer w;
    json_writer_init(&w, &c->out);
    conversation_put(c->note, c->session, &w);
}

static void write_deleted(struct conversation_work *c) {
    char id[RESPONSES_ID_MAX];
    responses_id_conversation(id, c->session);
    json_form_to(&c->out, "{id:%s,object:'conversation.deleted',deleted:true}", id);
}

static const char *id_of(const cJSON *item) {
    return json_string(item, "id");
}

static void write_list(struct conversation_work *c) {
    struct json_writer w;
    int n = cJSON_GetArraySize(c->items), shown = n;
    if (shown > c->page.limit) shown = (int)c->page.limit;
    json_writer_init(&w, &c->out);
    json_form(&w, "{object:'list',data:[");
    for (int i = 0; i < shown; i++) {
        char *text = cJSON_PrintUnformatted(cJSON_GetArrayItem(c->items, i));
        if (text) json_put_raw(&w, NULL, text, strlen(text));
        if (!text) c->out.error = E_NOMEM;
        cJSON_free(text);
    }
    json_form(&w, "],first_id:%s,last_id:%s,has_more:%hhd}",
              shown ? id_of(cJSON_GetArrayItem(c->items, 0)) : NULL,
              shown ? id_of(cJSON_GetArrayItem(c->items, shown - 1)) : NULL, n > shown);
}

static void make_note(struct conversation_work *c) {
    c->new_note = cJSON_PrintUnformatted(c->note);
    if (!c->new_note) openai_no_memory(&c->failure);
    if (c->new_note && strlen(c->new_note) > SESSION_NOTE_BYTES)
        openai_fail(
            &c->failure, 400, "limit_reached", NULL,
            "What is added to a conversation, and its metadata, may be 256 KiB: longer items come "
            "with a response.");
}

// The added items, as the reply shows them.
static void add_items(struct conversation_work *c) {
    int64_t first, n = cJSON_GetArraySize(c->body->items);
    cJSON *all = cJSON_CreateArray();
    if (!all || conversation_add(c->note, c->body->items, c->found.n_turns, &first) < 0 ||
        conversation_chunk(c->note, c->session, c->found.n_turns, NULL, all) < 0)
        openai_no_memory(&c->failure);
    while (cJSON_GetArraySize(all) > n) cJSON_DeleteItemFromArray(all, 0);
    c->items = all;
    c->page.limit = n;
    write_list(c);
    make_note(c);
}

static void find_item(struct conversation_work *c) {
    const cJSON *item, *found = NULL;
    cJSON_ArrayForEach(item, c->items) {
        if (id_of(item) && strcmp(id_of(item), c->item) == 0) found = item;
    }
    if (!found) {
        refuse_item(c);
    } else if (c->asked == ITEM_RETRIEVE) {
        char *text = cJSON_PrintUnformatted(found);
        buf_addz(&c->out, text ? text : "");
        if (!text) c->out.error = E_NOMEM;
        cJSON_free(text);
    } else if (conversation_remove(c->note, c->item) < 0) {
        openai_no_memory(&c->failure);
    } else {
        write_conversation(c);
        make_note(c);
    }
}

// Puts a chunk's items after page.after into the page, in the page's direction.
static void take_page(struct conversation_work *c, cJSON *found) {
    cJSON *item;
    bool up = c->page.ascending;
    while ((item = cJSON_DetachItemFromArray(found, up ? 0 : cJSON_GetArraySize(found) - 1))) {
        if (c->past_after) {
            cJSON_AddItemToArray(c->items, item);
            continue;
        }
        c->past_after = id_of(item) && strcmp(id_of(item), c->page.after) == 0;
        cJSON_Delete(item);
    }
}

static void take_chunk(struct conversation_work *c, const struct service *s) {
    cJSON *found = cJSON_CreateArray();
    struct responses_record *r = c->has_record ? &c->record : NULL;
    int rc = found ? 0 : E_NOMEM;
    if (rc == 0 && r) rc = responses_record_read(r, s);
    if (r && (!responses_record_in_conversation(r) || !r->finish[0])) r = NULL;
    if (rc == 0) rc = conversation_chunk(c->note, c->session, c->chunk, r, found);
    if (rc == E_NOTFOUND) // its input is too long to be on record
        rc = conversation_chunk(c->note, c->session, c->chunk, NULL, found);
    if (rc < 0) openai_no_memory(&c->failure);
    if (rc == 0) take_page(c, found);
    cJSON_Delete(found);
}

// Finds where the page begins. false: there is no such item.
static bool begin_items(struct conversation_work *c) {
    const char *from = c->item[0] ? c->item : c->page.after;
    struct responses_id id;
    c->items = cJSON_CreateArray();
    if (!c->items) openai_no_memory(&c->failure);
    c->past_after = c->item[0] || !c->page.after[0];
    c->chunk = c->page.ascending ? 0 : c->found.n_turns;
    if (!from[0]) return true;
    bool ours = responses_id_parse_item(from, &id) && strcmp(id.session, c->session) == 0;
    c->chunk = ours ? conversation_chunk_of(c->note, &id, from) : -1;
    if (c->chunk >= 0 && c->chunk <= c->found.n_turns) return true;
    if (c->item[0]) refuse_item(c);
    if (!c->item[0])
        openai_fail(&c->failure, 400, "invalid_value", "after",
                    "after names no item of this conversation");
    return false;
}

static void go_on_items(struct conversation_work *c, const struct service *s) {
    take_chunk(c, s);
    bool enough = c->asked != ITEMS_LIST || cJSON_GetArraySize(c->items) > c->page.limit;
    c->next_chunk = c->page.ascending ? c->chunk + 1 : c->chunk - 1;
    if (c->next_chunk > c->found.n_turns || enough) c->next_chunk = -1;
    if (c->next_chunk >= 0 || c->failure.status) return;
    if (c->asked == ITEMS_LIST)
        write_list(c);
    else
        find_item(c);
}

static void make_conversation(struct conversation_work *c) {
    int64_t first;
    struct conversation_body *b = c->body;
    c->note = conversation_new(b->metadata, clock_wall_us(&clock_system) / 1000);
    b->metadata = NULL;
    if (!c->note || (b->items && conversation_add(c->note, b->items, 0, &first) < 0)) {
        openai_no_memory(&c->failure);
        return;
    }
    write_conversation(c);
    make_note(c);
}

static void change_metadata(struct conversation_work *c) {
    if (c->body->metadata && conversation_set_metadata(c->note, c->body->metadata) < 0)
        openai_no_memory(&c->failure);
    write_conversation(c);
    make_note(c);
}

void conversation_work_step(struct conversation_work *c, const struct service *s) {
    bool first = !c->note;
    c->next_chunk = -1;
    if (c->asked == CREATE) {
        make_conversation(c);
        return;
    }
    if (first && !(c->note = conversation_read(c->found.note))) {
        conversation_refuse_missing(c);
        return;
    }
    switch (c->asked) {
    case RETRIEVE:
        write_conversation(c);
        break;
    case DELETE:
        write_deleted(c);
        break;
    case UPDATE:
        change_metadata(c);
        break;
    case ITEMS_CREATE:
        add_items(c);
        break;
    default:
        if (first) {
            if (begin_items(c)) c->next_chunk = c->chunk;
        } else {
            go_on_items(c, s);
        }
    }
}

void conversation_work_reset(struct conversation_work *c) {
    responses_session_release(&c->found);
    responses_record_release(&c->record);
    cJSON_Delete(c->note);
    cJSON_Delete(c->items);
    c->note = c->items = NULL;
    free(c->new_note);
    c->new_note = NULL;
    buf_release(&c->out);
    buf_init(&c->out, REPLY_MAX_BYTES);
}

void conversation_work_release(struct conversation_work *c) {
    conversation_work_reset(c);
    openai_conversations_release(c->body);
}
