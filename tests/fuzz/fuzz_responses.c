// The input of a response: items, then after a NUL an id. Accepted items are messages with a role, and their
// recorded form has the same messages. An accepted id is written the same.
#include "base/json.h"
#include "tests/fuzz/fuzz.h"
#include "ws/openai/responses_id.h"
#include "ws/openai/responses_items.h"

static char *messages_of(const cJSON *items, bool *taken) {
    struct completion_failure f = {0};
    cJSON *messages = cJSON_CreateArray();
    const cJSON *m;
    int rc = responses_items_read(messages, items, "input", &f);
    FUZZ_CHECK((rc < 0) == (f.status != 0) && (rc < 0) == (f.message[0] != '\0'));
    *taken = rc == 0;
    if (rc == 0)
        cJSON_ArrayForEach(m, messages)
            FUZZ_CHECK(cJSON_IsString(cJSON_GetObjectItemCaseSensitive(m, "role")));
    char *text = cJSON_PrintUnformatted(messages);
    cJSON_Delete(messages);
    return text;
}

static void check_items(const cJSON *items) {
    bool taken, again;
    char *messages = messages_of(items, &taken);
    if (taken) {
        cJSON *normal = responses_items_normal(items);
        char *same = messages_of(normal, &again);
        FUZZ_CHECK(again && strcmp(same, messages) == 0);
        cJSON_free(same);
        cJSON_Delete(normal);
    }
    cJSON_free(messages);
}

static void check_id(const char *text) {
    char again[RESPONSES_ID_MAX];
    struct responses_id id;
    if (!responses_id_parse(text, &id)) return;
    responses_id_response(again, id.session, id.turn);
    FUZZ_CHECK(strcmp(again, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *rest;
    size_t n_rest, n = fuzz_split(data, size, &rest, &n_rest);
    struct err err = {0};
    char id[256];
    if (n_rest < sizeof id) {
        memcpy(id, rest, n_rest);
        id[n_rest] = '\0';
        check_id(id);
    }
    cJSON *json = json_parse((const char *)data, n, &json_limits_message, &err);
    if (json) check_items(json);
    cJSON_Delete(json);
    return 0;
}
