// Renders whole conversations, with tools, calls, results and thinking, by the model's own template.
// The client's strings have the origin of their message, strings of its tools ORIGIN_EARLIER. See
// chat_template.h.
#include "base/json.h"
#include "base/xxh64.h"
#include "engine/text/chat_internal.h"
#include "engine/text/chat_layout.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 64 // what a value of JSON takes besides its text, at least

struct chat_rendering {
    const struct chat_template *chat;
    struct jinja_run run;
    struct jinja_string text; // lives as long as the run
};

// --- JSON as values of the template

static int put_text(struct jinja_run *r, const char *s, uint8_t origin, struct jinja_value *out) {
    size_t len = strlen(s);
    uint8_t *marks = jinja_arena_bytes(&r->arena, len + 1);
    if (!marks) return r->arena.error;
    memset(marks, origin, len);
    *out = jinja_str((struct jinja_string){.s = s, .len = len, .origin = marks});
    return 0;
}

// label: what the value is to the client; NULL: errors do not name it.
static int put_json(struct jinja_run *r, const cJSON *v, uint8_t origin, const char *label,
                    struct jinja_value *out);

enum { LABEL_BYTES = 160 };

// "tool 'x'", and a part of it. NULL, or no memory: none.
static const char *label_of(struct jinja_run *r, const char *label, const char *part) {
    char *s = label ? jinja_arena_bytes(&r->arena, LABEL_BYTES) : NULL;
    if (s) snprintf(s, LABEL_BYTES, "%s%s%s", label, part[0] == '[' ? "" : ".", part);
    return s;
}

static int put_list(struct jinja_run *r, const cJSON *v, uint8_t origin, const char *label,
                    struct jinja_value *out) {
    const cJSON *item;
    struct jinja_value to;
    char place[32];
    int i = 0;
    TRY(jinja_list_new(r, JINJA_LIST, out));
    cJSON_ArrayForEach(item, v) {
        snprintf(place, sizeof place, "[%d]", i++);
        TRY(put_json(r, item, origin, cJSON_IsObject(item) ? label_of(r, label, place) : NULL,
                     &to));
        TRY(jinja_list_push(r, out->list, to));
    }
    return 0;
}

static int put_dict(struct jinja_run *r, const cJSON *v, uint8_t origin, const char *label,
                    struct jinja_value *out) {
    const cJSON *item;
    struct jinja_value key, to;
    TRY(jinja_dict_new(r, out));
    out->dict->label = label;
    cJSON_ArrayForEach(item, v) {
        bool nested = cJSON_IsObject(item) || cJSON_IsArray(item);
        TRY(put_text(r, item->string, origin, &key));
        TRY(put_json(r, item, origin, nested ? label_of(r, label, item->string) : NULL, &to));
        TRY(jinja_dict_set(r, out->dict, key, to));
    }
    return 0;
}

static int put_json(struct jinja_run *r, const cJSON *v, uint8_t origin, const char *label,
                    struct jinja_value *out) {
    double d = v->valuedouble;
    *out = jinja_none();
    if (cJSON_IsBool(v)) *out = jinja_bool(cJSON_IsTrue(v));
    if (cJSON_IsNumber(v))
        *out = d == floor(d) && fabs(d) < 9e15 ? jinja_int((int64_t)d) : jinja_float(d);
    if (cJSON_IsString(v)) return put_text(r, v->valuestring, origin, out);
    if (cJSON_IsArray(v)) return put_list(r, v, origin, label, out);
    if (cJSON_IsObject(v)) return put_dict(r, v, origin, label, out);
    return 0;
}

static size_t size_of(const cJSON *v) {
    const cJSON *item;
    size_t n = VALUE_BYTES;
    if (!v) return 0;
    if (v->string) n += strlen(v->string);
    if (cJSON_IsString(v)) n += strlen(v->valuestring);
    if (cJSON_IsArray(v) || cJSON_IsObject(v)) cJSON_ArrayForEach(item, v) n += size_of(item);
    return n;
}

// --- messages

static const cJSON *member(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_of(const cJSON *message, const char *key) {
    const char *s = cJSON_GetStringValue(member(message, key));
    return s ? s : "";
}

// Of an object's member and a key: most differ in the first byte.
static bool is_key(const cJSON *item, struct jinja_string key) {
    return item->string[0] == key.s[0] && strcmp(item->string, key.s) == 0;
}

static bool is_role(const cJSON *message, const char *role) {
    return strcmp(text_of(message, "role"), role) == 0;
}

// Its words go on, instead of a new answer after them.
static bool goes_on(const cJSON *message) {
    return is_role(message, "assistant") && text_of(message, "content")[0] &&
           cJSON_GetArraySize(member(message, "tool_calls")) == 0;
}

// --- ids of calls

enum { SHORT_ID = 9 };

// Mistral's templates accept only ids of nine letters and digits. Other ids, of other protocols or another model's
// conversation, become such, a call's and its result's the same.
static void short_id(const char *id, char out[SHORT_ID + 1]) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t h = xxh64(id, strlen(id), 0);
    if (strlen(id) == SHORT_ID && strspn(id, digits) == SHORT_ID) {
        memcpy(out, id, SHORT_ID + 1);
        return;
    }
    for (int i = 0; i < SHORT_ID; i++, h /= 62) out[i] = digits[h % 62];
    out[SHORT_ID] = '\0';
}

static int put_id(struct jinja_run *r, const char *id, uint8_t origin, struct jinja_value *out) {
    char *text = jinja_arena_bytes(&r->arena, SHORT_ID + 1); // put_text borrows it
    if (!text) return r->arena.error;
    short_id(id, text);
    return put_text(r, text, origin, out);
}

// A message's calls; the i-th message.
static int put_calls(const struct chat_template *c, struct jinja_run *r, const cJSON *calls,
                     size_t i, struct jinja_value *out) {
    const cJSON *call;
    struct jinja_value to, id, key = jinja_z("id");
    char label[64];
    size_t k = 0;
    TRY(jinja_list_new(r, JINJA_LIST, out));
    cJSON_ArrayForEach(call, calls) {
        snprintf(label, sizeof label, "messages[%zu].tool_calls[%zu]", i, k++);
        char *kept = jinja_arena_bytes(&r->arena, sizeof label);
        if (kept) memcpy(kept, label, sizeof label);
        TRY(put_json(r, call, origin_of_message(i), kept, &to));
        if (c->syntax.tools == TOOL_SYNTAX_MISTRAL && to.kind == JINJA_DICT) {
            TRY(put_id(r, text_of(call, "id"), origin_of_message(i), &id));
            TRY(jinja_dict_set(r, to.dict, key, id));
        }
        TRY(jinja_list_push(r, out->list, to));
    }
    return 0;
}

// A template joins contents with other text, so there is one, if an empty one. The role is the
// template's own word: it is one of a few.
static int put_message(const struct chat_template *c, struct jinja_run *r, const cJSON *message,
                       size_t i, struct jinja_value *out) {
    static const struct jinja_string roles[] = {JINJA_LITERAL("system"), JINJA_LITERAL("user"),
                                                JINJA_LITERAL("assistant"), JINJA_LITERAL("tool")};
    enum { ROLE, CONTENT, THOUGHT, CALLS, CALL_ID, N_KEYS = 6 };
    static const struct jinja_string keys[N_KEYS] = {[ROLE] = JINJA_LITERAL("role"),
                                                     [CONTENT] = JINJA_LITERAL("content"),
                                                     [THOUGHT] = JINJA_LITERAL("reasoning_content"),
                                                     [CALLS] = JINJA_LITERAL("tool_calls"),
                                                     [CALL_ID] = JINJA_LITERAL("tool_call_id"),
                                                     JINJA_LITERAL("name")};
    static const struct jinja_string thinking = JINJA_LITERAL("thinking"); // gpt-oss
    const cJSON *found[N_KEYS] = {NULL}, *item;
    size_t n = 2;
    struct jinja_value to;
    uint8_t origin = origin_of_message(i);
    size_t role = 0;
    // In one pass: a conversation that is sent again has hundreds of messages.
    cJSON_ArrayForEach(item, message) {
        for (size_t k = 0; k < N_KEYS; k++)
            if (is_key(item, keys[k])) found[k] = item;
    }
    const char *said = cJSON_GetStringValue(found[ROLE]),
               *content = cJSON_GetStringValue(found[CONTENT]);
    while (role < 4 && !(said && strcmp(said, roles[role].s) == 0)) role++;
    if (role == 4)
        return err_set(r->err, E_INVAL,
                       "message %zu: role '%.40s' is not system, user, assistant or tool", i,
                       said ? said : "");
    const bool harmony = c->syntax.tools == TOOL_SYNTAX_HARMONY;
    if (harmony && cJSON_GetArraySize(found[CALLS]) == 0)
        found[CALLS] = NULL; // it asks for the key
    if (harmony && found[CALLS] && content && content[0])
        found[THOUGHT] = NULL; // it takes one of both
    for (size_t k = CONTENT + 1; k < N_KEYS; k++) n += found[k] != NULL;
    TRY(jinja_dict_new(r, out));
    TRY(jinja_dict_reserve(r, out->dict, n));
    TRY(jinja_dict_add(r, out->dict, keys[ROLE], jinja_str(roles[role])));
    TRY(put_text(r, content ? content : "", origin, &to));
    TRY(jinja_dict_add(r, out->dict, keys[CONTENT], to));
    for (size_t k = CONTENT + 1; k < N_KEYS; k++) {
        if (!found[k] || cJSON_IsNull(found[k])) continue;
        if (k == CALLS && cJSON_IsArray(found[k]))
            TRY(put_calls(c, r, found[k], i, &to));
        else if (k == CALL_ID && c->syntax.tools == TOOL_SYNTAX_MISTRAL)
            TRY(put_id(r, text_of(message, "tool_call_id"), origin, &to));
        else
            TRY(put_json(r, found[k], origin, NULL, &to));
        const bool renamed = harmony && k == THOUGHT;
        TRY(jinja_dict_add(r, out->dict, renamed ? thinking : keys[k], to));
    }
    return 0;
}

// Errors name a tool by its name.
static int put_tools(struct jinja_run *r, const cJSON *tools, struct jinja_value *out) {
    const cJSON *tool;
    struct jinja_value to;
    TRY(jinja_list_new(r, JINJA_LIST, out));
    cJSON_ArrayForEach(tool, tools) {
        const char *name = text_of(member(tool, "function"), "name");
        char *label = jinja_arena_bytes(&r->arena, LABEL_BYTES);
        if (label) snprintf(label, LABEL_BYTES, "tool '%.64s'", name);
        TRY(put_json(r, tool, ORIGIN_EARLIER, label, &to));
        TRY(jinja_list_push(r, out->list, to));
    }
    return 0;
}

static int set_all(const struct chat_template *c, struct jinja_run *r,
                   const struct chat_conversation *conversation, bool prompt) {
    struct jinja_value list, tools = jinja_none(), to;
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, conversation->args) {
        TRY(put_json(r, item, ORIGIN_EARLIER, NULL, &to));
        TRY(jinja_set(r, item->string, to));
    }
    TRY(jinja_list_new(r, JINJA_LIST, &list));
    cJSON_ArrayForEach(item, conversation->messages) {
        TRY(put_message(c, r, item, i++, &to));
        TRY(jinja_list_push(r, list.list, to));
    }
    if (cJSON_GetArraySize(conversation->tools) > 0) TRY(put_tools(r, conversation->tools, &tools));
    return chat_set_names(c, r, list, tools, prompt);
}

static bool is_blank(const char *s) {
    return s[strspn(s, " \t\r\n\v\f")] == '\0';
}

// What a client says must reach the model; an answer may lose its thinking.
static int check_written(const struct chat_rendering *r, const cJSON *messages, struct err *err) {
    bool seen[N_ORIGINS] = {0};
    const cJSON *message;
    size_t i = 0;
    for (size_t k = 0; k < r->text.len && r->text.origin; k++) seen[r->text.origin[k]] = true;
    cJSON_ArrayForEach(message, messages) {
        bool missing = !seen[origin_of_message(i)] && !is_role(message, "assistant");
        if (missing && !is_blank(text_of(message, "content")))
            return err_set(err, E_INVAL, "the chat template leaves out message %zu (%s)", i,
                           text_of(message, "role"));
        i++;
    }
    return 0;
}

// The text ends behind the last message's words.
static void cut_behind(struct jinja_string *text, size_t n_messages) {
    uint8_t origin = origin_of_message(n_messages - 1);
    size_t end = text->len;
    while (end > 0 && jinja_string_origin(*text, end - 1) != origin) end--;
    if (end > 0) text->len = end;
}

// Renders the conversation as it is. *r is released on failure.
static int render(struct chat_rendering *r, const struct chat_conversation *conversation,
                  struct err *err) {
    const struct chat_template *c = r->chat;
    const cJSON *messages = conversation->messages;
    int n = cJSON_GetArraySize(messages);
    bool with_tools = c->tools_jinja && cJSON_GetArraySize(conversation->tools) > 0;
    bool on = goes_on(cJSON_GetArrayItem(messages, n - 1));
    size_t size = size_of(messages) + size_of(conversation->tools) + size_of(conversation->args);
    int rc = chat_begin(c, size, &r->run, err);
    if (rc == 0) rc = set_all(c, &r->run, conversation, !on);
    if (rc == 0) rc = jinja_render(&r->run, with_tools ? c->tools_jinja : c->jinja, &r->text);
    if (rc == 0) rc = check_written(r, messages, err);
    if (rc < 0) {
        jinja_end(&r->run);
        return err->code == 0 ? err_set(err, rc, "no memory for %d messages", n) : rc;
    }
    if (on) cut_behind(&r->text, (size_t)n);
    return 0;
}

// The template refuses the conversation: other layouts of its roles may suit it. E_INVAL: none does.
static int render_other(struct chat_rendering *r, const struct chat_conversation *conversation) {
    int rc = E_INVAL;
    for (int i = 0; i < N_CHAT_LAYOUTS && rc == E_INVAL; i++) {
        struct chat_conversation other = *conversation;
        struct err why = {0};
        cJSON *messages = chat_layout_of(conversation->messages, (enum chat_layout)i);
        other.messages = messages;
        if (messages) rc = render(r, &other, &why);
        cJSON_Delete(messages);
    }
    return rc;
}

int chat_rendering_new(const struct chat_template *c, const struct chat_conversation *conversation,
                       struct chat_rendering **out, struct err *err) {
    const cJSON *messages = conversation->messages;
    int n = cJSON_GetArraySize(messages);
    struct err why = {0};
    *out = NULL;
    if (n == 0) return err_set(err, E_INVAL, "a conversation without messages");
    size_t size = size_of(messages) + size_of(conversation->tools) + size_of(conversation->args);
    if (size > TEXT_MAX_BYTES)
        return err_set(err, E_LIMIT, "a conversation of more than %u bytes", TEXT_MAX_BYTES);
    struct chat_rendering *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, E_NOMEM, "no memory for %d messages", n);
    r->chat = c;
    int rc = render(r, conversation, &why);
    if (rc == E_INVAL && render_other(r, conversation) == 0) rc = 0;
    if (rc < 0) {
        free(r);
        return err_set(err, rc, "%s", why.text);
    }
    r->run.err = &r->run.own_err; // the caller's is not kept
    *out = r;
    return 0;
}

void chat_rendering_free(struct chat_rendering *r) {
    if (!r) return;
    jinja_end(&r->run);
    free(r);
}

const char *chat_rendering_text(const struct chat_rendering *r, size_t *len) {
    *len = r->text.len;
    return r->text.s;
}

int chat_rendering_encode(const struct chat_rendering *r, size_t from, size_t to,
                          struct token_list *ids, struct err *err) {
    if (to > r->text.len) to = r->text.len;
    if (from >= to) return 0;
    return chat_encode(r->chat, jinja_string_sub(r->text, 0, to), from, false, ids, err);
}

size_t chat_rendering_turn_end(const struct chat_rendering *r, size_t from) {
    size_t len, next = from;
    const char *end = r->chat->end_of_turn < 0
                          ? NULL
                          : tokenizer_bytes(r->chat->tokenizer, r->chat->end_of_turn, &len);
    if (!end) return SIZE_MAX;
    while (next < r->text.len && jinja_string_origin(r->text, next) == 0) next++;
    struct jinja_string between = jinja_string_sub(r->text, from, next);
    size_t at = jinja_string_find(between, (struct jinja_string){.s = end, .len = len}, 0);
    return at == SIZE_MAX ? SIZE_MAX : from + at + len;
}
