// See responses_steer.h.
#include "ws/openai/responses_steer.h"
#include "base/json_form.h"
#include "base/random_id.h"
#include "ws/openai/failure.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define SETTINGS_MAX_BYTES ((size_t)1 << 20)

static bool is_of_user(const cJSON *item) {
    const char *role = json_string(item, "role"), *type = json_string(item, "type");
    return role && strcmp(role, "user") == 0 && (!type || strcmp(type, "message") == 0);
}

static bool is_input(const cJSON *input) {
    const cJSON *item;
    if (cJSON_IsString(input)) return *input->valuestring;
    cJSON_ArrayForEach(item, input) if (!is_of_user(item)) return false;
    return cJSON_IsArray(input) && input->child;
}

struct steer *steer_read(const cJSON *json, struct completion_failure *f) {
    const char *target = json_string(json, "previous_response_id");
    const cJSON *input = json_member(json, "input");
    if (!target || !*target || strlen(target) >= RESPONSES_ID_MAX) {
        openai_bad(f, "previous_response_id", "must be the id of a response");
        return NULL;
    }
    if (!is_input(input)) {
        openai_bad(f, "input", "must be text or messages of the user");
        return NULL;
    }
    struct steer *st = calloc(1, sizeof *st);
    if (st && (st->input = json_print(input))) {
        strcpy(st->target, target);
        return st;
    }
    free(st);
    openai_no_memory(f);
    return NULL;
}

void steers_free(struct steer **list) {
    struct steer *st, *next;
    DL_FOREACH_SAFE(*list, st, next) {
        free(st->input);
        free(st);
    }
    *list = NULL;
}

// --- events ---

static void begin_event(const struct steer *st, const char *type, int64_t number,
                        const char *stream_id, struct json_writer *w, struct buf *out) {
    buf_init(out, SIZE_MAX / 2);
    json_writer_init(w, out);
    json_form(w, "{type:%s,sequence_number:%ld,stream_id?:%s,steer:{previous_response_id:%s,id?:%s",
              type, number, stream_id, st->target, st->id);
}

void steer_write_accepted(struct steer *st, int64_t number, const char *stream_id,
                          struct buf *out) {
    struct json_writer w;
    char drawn[RANDOM_ID_LEN + 1];
    random_id(drawn);
    snprintf(st->id, sizeof st->id, "steer_%s", drawn);
    begin_event(st, "response.steer.accepted", number, stream_id, &w, out);
    json_form(&w, "}}");
}

void steer_write_failed(const struct steer *st, int64_t number, const char *stream_id,
                        const struct completion_failure *f, struct buf *out) {
    struct json_writer w;
    struct buf error;
    begin_event(st, "response.steer.failed", number, stream_id, &w, out);
    buf_init(&error, SIZE_MAX / 2);
    openai_write_failure(&error, f); // {"error":{...}}
    buf_addf(out, ",\"input\":%s},", st->input);
    buf_addz(out, buf_z(&error) + 1);
    if (error.error) out->error = error.error;
    buf_release(&error);
}

// --- the successor ---

char *steer_settings(cJSON *json) {
    static const char *const own[] = {"input", "previous_response_id", "generate"};
    if (json_member(json, "conversation")) return NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(json, own[i]);
    char *text = json_print(json);
    if (text && strlen(text) <= SETTINGS_MAX_BYTES) return text;
    free(text);
    return NULL;
}

char *steer_successor(const char *settings, const struct steer *list, size_t *len) {
    const struct steer *st;
    struct buf out;
    buf_init(&out, SIZE_MAX / 2);
    buf_addf(&out, "{\"previous_response_id\":\"%s\",\"input\":[", list->target); // a response's id
    DL_FOREACH(list, st) {
        const char *comma = st == list ? "" : ",";
        int n = (int)strlen(st->input);
        if (*st->input == '[')
            buf_addf(&out, "%s%.*s", comma, n - 2, st->input + 1);
        else
            buf_addf(&out, "%s{\"role\":\"user\",\"content\":%s}", comma, st->input);
    }
    buf_addf(&out, "],%s", settings + 1); // settings have the member type at least
    char *text = buf_take(&out, len);
    buf_release(&out);
    return text;
}
