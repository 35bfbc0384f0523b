// See conversation.h.
#include "ws/openai/conversation.h"
#include "base/err.h"
#include "base/json_form.h"
#include "ws/openai/responses_items.h"
#include <stdio.h>
#include <string.h>

static int64_t number(const cJSON *c, const char *key) {
    const cJSON *v = json_member(c, key);
    return cJSON_IsNumber(v) ? (int64_t)v->valuedouble : 0;
}

cJSON *conversation_read(const char *note) {
    cJSON *c = note ? json_parse(note, strlen(note), &json_limits_file, NULL) : NULL;
    if (cJSON_IsObject(c) && json_member(c, "conversation")) return c;
    cJSON_Delete(c);
    return NULL;
}

static bool set_number(cJSON *c, const char *key, int64_t value) {
    return json_set(c, key, cJSON_CreateNumber((double)value));
}

cJSON *conversation_new(cJSON *metadata, int64_t created_ms) {
    cJSON *c = json_tree("{conversation:1,revision:0,created_ms:%ld,next:0,items:[],deleted:[]}",
                         created_ms);
    if (json_set(c, "metadata", metadata ? metadata : cJSON_CreateObject())) return c;
    cJSON_Delete(c);
    return NULL;
}

int64_t conversation_note_revision(const char *note) {
    long long revision;
    bool known = note && sscanf(note, "{\"conversation\":1,\"revision\":%lld,", &revision) == 1;
    return known ? revision : -1;
}

static bool changed(cJSON *c) {
    return set_number(c, "revision", number(c, "revision") + 1);
}

// --- changes ---

static bool add_one(cJSON *list, const cJSON *item, int64_t n, int64_t before) {
    cJSON *entry = json_append(list, json_tree("{n:%ld,before:%ld}", n, before));
    return json_set(entry, "item", cJSON_Duplicate(item, true));
}

int conversation_add(cJSON *c, const cJSON *items, int64_t n_turns, int64_t *first) {
    cJSON *list = cJSON_GetObjectItemCaseSensitive(c, "items");
    const cJSON *item;
    int64_t n = *first = number(c, "next");
    cJSON_ArrayForEach(item, items) if (!add_one(list, item, n++, n_turns)) return E_NOMEM;
    return set_number(c, "next", n) && changed(c) ? 0 : E_NOMEM;
}

int conversation_set_metadata(cJSON *c, const cJSON *metadata) {
    return json_set(c, "metadata", cJSON_Duplicate(metadata, true)) ? 0 : E_NOMEM;
}

static const cJSON *find_added(const cJSON *c, int64_t n, int *at) {
    const cJSON *entry;
    *at = 0;
    cJSON_ArrayForEach(entry, json_member(c, "items")) {
        if (number(entry, "n") == n) return entry;
        ++*at;
    }
    return NULL;
}

// Removes an added item; hides an item of a turn.
int conversation_remove(cJSON *c, const char *id) {
    struct responses_id parsed;
    int at;
    if (responses_id_parse_item(id, &parsed) && parsed.added) {
        if (find_added(c, parsed.index, &at))
            cJSON_DeleteItemFromArray(cJSON_GetObjectItemCaseSensitive(c, "items"), at);
        return changed(c) ? 0 : E_NOMEM;
    }
    return json_append(json_member(c, "deleted"), cJSON_CreateString(id)) && changed(c) ? 0
                                                                                        : E_NOMEM;
}

// --- items ---

static bool is_deleted(const cJSON *c, const char *id) {
    const cJSON *v;
    cJSON_ArrayForEach(v, json_member(c, "deleted")) {
        if (cJSON_IsString(v) && strcmp(v->valuestring, id) == 0) return true;
    }
    return false;
}

int64_t conversation_chunk_of(const cJSON *c, const struct responses_id *id, const char *text) {
    int at;
    if (!id->added) return is_deleted(c, text) ? -1 : id->turn;
    const cJSON *entry = find_added(c, id->index, &at);
    return entry ? number(entry, "before") : -1;
}

const cJSON *conversation_added_item(const cJSON *c, int64_t index) {
    int at;
    return json_member(find_added(c, index, &at), "item");
}

static int put_added(const cJSON *c, const char *session, int64_t chunk, struct json_writer *w) {
    const cJSON *entry;
    char id[RESPONSES_ID_MAX];
    cJSON_ArrayForEach(entry, json_member(c, "items")) {
        const cJSON *item = json_member(entry, "item");
        const char *type = json_string(item, "type");
        if (number(entry, "before") != chunk) continue;
        responses_id_added(id, responses_id_prefix(type), session, number(entry, "n"));
        responses_item_put(w, item, id);
    }
    return w->buf->error ? E_NOMEM : 0;
}

static cJSON *added_items(const cJSON *c, const char *session, int64_t chunk) {
    struct json_writer w;
    struct buf text;
    cJSON *items = NULL;
    buf_init(&text, SIZE_MAX / 2);
    json_writer_init(&w, &text);
    json_open(&w, NULL, '[');
    int rc = put_added(c, session, chunk, &w);
    json_close(&w, ']');
    if (rc == 0 && !text.error) items = json_parse(buf_z(&text), text.len, &json_limits_file, NULL);
    buf_release(&text);
    return items;
}

int conversation_chunk(const cJSON *c, const char *session, int64_t chunk,
                       const struct responses_record *turn, cJSON *items) {
    cJSON *found = added_items(c, session, chunk), *item;
    int rc = !found ? E_NOMEM : turn ? responses_record_items(turn, found) : 0;
    while (rc == 0 && (item = cJSON_DetachItemFromArray(found, 0))) {
        const char *id = json_string(item, "id");
        if (id && is_deleted(c, id))
            cJSON_Delete(item);
        else
            cJSON_AddItemToArray(items, item);
    }
    cJSON_Delete(found);
    return rc;
}

void conversation_put(const cJSON *c, const char *session, struct json_writer *w) {
    char id[RESPONSES_ID_MAX], *metadata = cJSON_PrintUnformatted(json_member(c, "metadata"));
    responses_id_conversation(id, session);
    json_form(w, "{id:%s,object:'conversation',created_at:%ld", id, number(c, "created_ms") / 1000);
    json_put_raw(w, "metadata", metadata ? metadata : "{}", metadata ? strlen(metadata) : 2);
    if (!metadata) w->buf->error = E_NOMEM;
    json_close(w, '}');
    cJSON_free(metadata);
}
