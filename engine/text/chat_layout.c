// See chat_layout.h.
#include "engine/text/chat_layout.h"
#include <string.h>

#define BETWEEN "\n\n"
#define TEXT_BYTES ((size_t)64 << 20)

static bool has_role(const cJSON *message, const char *role) {
    const char *is = json_string(message, "role");
    return is && strcmp(is, role) == 0;
}

static const char *content_of(const cJSON *message) {
    const char *s = json_string(message, "content");
    return s ? s : "";
}

static bool set_text(cJSON *message, const char *key, const char *text) {
    cJSON *v = cJSON_CreateString(text);
    cJSON_bool done = v && (cJSON_HasObjectItem(message, key)
                                ? cJSON_ReplaceItemInObjectCaseSensitive(message, key, v)
                                : cJSON_AddItemToObject(message, key, v));
    if (!done) cJSON_Delete(v);
    return done;
}

// a, and b behind it.
static bool set_joined(cJSON *message, const char *a, const char *b) {
    struct buf text;
    buf_init(&text, TEXT_BYTES);
    buf_addz(&text, a);
    if (a[0] && b[0]) buf_addz(&text, BETWEEN);
    buf_addz(&text, b);
    bool done = !text.error && set_text(message, "content", buf_z(&text));
    buf_release(&text);
    return done;
}

// Takes the message: joins it to the user's message before it, or appends it.
static bool add(cJSON *list, cJSON *message) {
    cJSON *last = list->child ? list->child->prev : NULL; // cJSON's first element knows the last
    bool joins = last && has_role(last, "user") && has_role(message, "user");
    if (!joins) return cJSON_AddItemToArray(list, message);
    bool done = set_joined(last, content_of(last), content_of(message));
    cJSON_Delete(message);
    return done;
}

static bool put_system(cJSON *list, const char *system, bool to_user) {
    cJSON *first = list->child, *message;
    if (!system[0]) return true;
    while (to_user && first && !has_role(first, "user")) first = first->next;
    if (to_user && first) return set_joined(first, system, content_of(first));
    message = cJSON_CreateObject();
    bool done = message && set_text(message, "role", to_user ? "user" : "system") &&
                set_text(message, "content", system) && cJSON_InsertItemInArray(list, 0, message);
    if (!done) cJSON_Delete(message);
    return done;
}

static bool add_all(cJSON *list, const cJSON *messages, bool to_front, struct buf *system) {
    const cJSON *one;
    bool leading = true, fixed = false;
    cJSON_ArrayForEach(one, messages) {
        bool is_system = has_role(one, "system");
        leading = leading && is_system;
        if (is_system && (leading || to_front)) {
            if (fixed) return false;
            if (system->len) buf_addz(system, BETWEEN);
            buf_addz(system, content_of(one));
            continue;
        }
        fixed = fixed || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(one, "fixed"));
        cJSON *copy = cJSON_Duplicate(one, true);
        bool done = copy && (!is_system || set_text(copy, "role", "user"));
        if (!done) cJSON_Delete(copy);
        if (!done || !add(list, copy)) return false;
    }
    return true;
}

cJSON *chat_layout_of(const cJSON *messages, enum chat_layout layout) {
    bool to_front = layout == LAYOUT_LATER_TO_FRONT || layout == LAYOUT_ALL_TO_FIRST_USER;
    bool to_user = layout == LAYOUT_ALL_TO_USER || layout == LAYOUT_ALL_TO_FIRST_USER;
    cJSON *list = cJSON_CreateArray();
    struct buf system;
    buf_init(&system, TEXT_BYTES);
    bool done = list && add_all(list, messages, to_front, &system) && !system.error &&
                put_system(list, buf_z(&system), to_user);
    buf_release(&system);
    if (done) return list;
    cJSON_Delete(list);
    return NULL;
}
