// See call_form.h.
//
// Four conversations are rendered: a question alone, and the question with an answer that has one call without
// arguments, one call with two arguments, or two calls. Names, keys and values are words that occur nowhere else, so
// what stands between them is the template's. An end-of-answer token ends a call's text.
#include "ws/completion/call_form.h"
#include "base/json_form.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "probe_one"
#define SECOND "probe_two"
#define KEY "probe_key"
#define VALUE "probe_value"
#define LATER "probe_later"
#define NUMBER 170417
#define NUMBER_TEXT "170417"
#define CALL_ID "prbCallId" // nine characters, as Mistral's templates demand

struct probe {
    char *text; // the rendering
    char *said; // what the answer's text says, behind its thinking
};

static void probe_release(struct probe *p) {
    free(p->text);
    free(p->said);
}

// --- rendering ---

static bool add_call(cJSON *calls, cJSON *messages, const char *name, const char *arguments) {
    cJSON *call = json_append(
        calls, json_tree("{function:{name:%s},id:'" CALL_ID "',type:'function'}", name));
    return json_set(json_member(call, "function"), "arguments",
                    json_parse(arguments, strlen(arguments), &json_limits_message, NULL)) &&
           json_append(
               messages,
               json_tree("{role:'tool',tool_call_id:'" CALL_ID "',name:%s,content:'?'}", name));
}

// [question] or [question, answer with calls, results]. NULL: no memory.
static cJSON *conversation(const char *const *names, const char *arguments) {
    cJSON *messages = json_tree("[{role:'user',content:'?'}]"), *answer = NULL;
    bool ok = messages;
    if (names[0])
        answer = json_append(messages, json_tree("{role:'assistant',content:'',tool_calls:[]}"));
    for (; ok && *names; names++)
        ok = add_call(json_member(answer, "tool_calls"), messages, *names, arguments);
    if (ok) return messages;
    cJSON_Delete(messages);
    return NULL;
}

// *text is NULL where the template refuses the conversation; free it. E_NOMEM.
static int render(const struct completion_request *r, const cJSON *tools, const char *const *names,
                  const char *arguments, char **text) {
    struct chat_rendering *rendering = NULL;
    struct err err = {0};
    size_t len;
    *text = NULL;
    cJSON *messages = conversation(names, arguments);
    int rc = messages ? engine_render(r->served->engine, messages, tools, r->template_args,
                                      &rendering, &err)
                      : E_NOMEM;
    if (rc == 0) {
        const char *said = engine_rendering_text(rendering, &len);
        *text = strndup(said, len);
        if (!*text) rc = E_NOMEM;
    }
    engine_rendering_free(rendering);
    cJSON_Delete(messages);
    return rc == E_NOMEM ? rc : 0;
}

// Where the text behind the prompt begins. A prompt that opens the thinking, or leaves it out, ends otherwise than an
// earlier answer begins: it is compared without its thinking. NULL: the answer does not follow this prompt.
static char *behind_prompt(const char *prompt, char *text, const struct chat_syntax *syntax) {
    size_t n = strlen(prompt);
    const char *last = NULL, *open = syntax->think_open;
    for (const char *at = prompt; open && (at = strstr(at, open)); at++) last = at;
    if (strncmp(prompt, text, n) != 0 && last) n = (size_t)(last - prompt);
    return strncmp(prompt, text, n) == 0 ? text + n : NULL;
}

// Cuts the text at the first token that ends an answer, from `from` on.
static bool cut_at_end(const struct engine *e, char *from) {
    const struct engine_info *info = engine_info(e);
    char *first = NULL;
    for (int32_t i = 0; i < info->n_eos; i++) {
        size_t len;
        const char *bytes = engine_token_bytes(e, info->eos_ids[i], &len);
        char *at = bytes && len ? memmem(from, strlen(from), bytes, len) : NULL;
        if (at && (!first || at < first)) first = at;
    }
    if (engine_syntax(e).tools == TOOL_SYNTAX_HARMONY) {
        char *at = strstr(from, "<|call|>");
        if (at && (!first || at < first)) first = at;
    }
    if (first) *first = '\0';
    return first;
}

// What the answer with these calls says. said stays NULL where it cannot be told.
static int probe(const struct completion_request *r, const cJSON *tools, const char *prompt,
                 const char *const *names, const char *arguments, struct probe *out) {
    const struct chat_syntax syntax = engine_syntax(r->served->engine);
    TRY(render(r, tools, names, arguments, &out->text));
    char *said = out->text ? behind_prompt(prompt, out->text, &syntax) : NULL;
    char *name = said ? strstr(said, names[0]) : NULL;
    if (!name || !cut_at_end(r->served->engine, name)) return 0;
    // Harmony's thinking is a message of its own.
    const char *close = syntax.tools == TOOL_SYNTAX_HARMONY ? NULL : syntax.think_close;
    for (char *at = said; close && (at = strstr(at, close)) && at < name;) {
        at += strlen(close);
        said = at + strspn(at, "\n");
    }
    if (strstr(said, CALL_ID)) return 0; // ids are drawn later
    out->said = strdup(said);
    return out->said ? 0 : E_NOMEM;
}

// --- the parts of the text ---

static bool add(cJSON *form, const char *key, const char *text, size_t len) {
    char *part = strndup(text, len);
    bool ok = part && cJSON_AddStringToObject(form, key, part);
    free(part);
    return ok;
}

static bool add_text(cJSON *list, const char *text, size_t len) {
    char *part = strndup(text, len);
    cJSON *item = part ? cJSON_CreateString(part) : NULL;
    free(part);
    return json_append(list, item);
}

// Behind thinking, the engine has written line ends already (thinking_gap): a model that thinks may leave them out.
static bool add_open(cJSON *form, const char *text, size_t len, bool thinks) {
    cJSON *list = cJSON_AddArrayToObject(form, "open");
    const size_t white = strspn(text, "\n");
    bool ok = list && add_text(list, text, len);
    if (ok && thinks && white > 0 && white < len) ok = add_text(list, text + white, len - white);
    return ok;
}

// Arguments as JSON: the separators of a template's tojson. NULL: they are not written as JSON.
static const char *const *find_separators(const char *two) {
    static const char *const known[][2] = {{", ", ": "}, {",", ":"}, {", ", ":"}, {",", ": "}};
    char text[256];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(text, sizeof text, "{\"" KEY "\"%s\"" VALUE "\"%s\"" LATER "\"%s" NUMBER_TEXT "}",
                 known[i][1], known[i][0], known[i][1]);
        if (strstr(two, text)) return known[i];
    }
    return NULL;
}

// 1: added; 0: the arguments are not JSON; E_NOMEM. one, two: behind the name.
static int add_json(cJSON *form, const char *one, const char *two, const char **close) {
    const char *const *separators = find_separators(two), *at = strstr(one, "{}");
    if (!separators || !at) return 0;
    *close = at + 2;
    bool ok = add(form, "arguments", one, (size_t)(at - one)) &&
              cJSON_AddStringToObject(form, "comma", separators[0]) &&
              cJSON_AddStringToObject(form, "colon", separators[1]);
    return ok ? 1 : E_NOMEM;
}

// Each argument on its own, as <parameter=KEY>VALUE</parameter>. The call's end is what both texts end with.
static int add_members(cJSON *form, const char *one, const char *two, const char **close) {
    const char *key = strstr(two, KEY), *value = key ? strstr(key, VALUE) : NULL,
               *later = value ? strstr(value, LATER) : NULL,
               *number = later ? strstr(later, NUMBER_TEXT) : NULL;
    if (!number) return 0;
    const char *key_end = key + strlen(KEY), *value_end = value + strlen(VALUE),
               *later_end = later + strlen(LATER), *number_end = number + strlen(NUMBER_TEXT);
    const size_t n_value = (size_t)(value - key_end), n_next = (size_t)(later - value_end);
    if (n_value != (size_t)(number - later_end) || memcmp(key_end, later_end, n_value) != 0)
        return 0;
    size_t n = 0, n_one = strlen(one), n_last = strlen(number_end);
    while (n < n_one && n < n_last && one[n_one - 1 - n] == number_end[n_last - 1 - n]) n++;
    // A string ends where the text behind it begins, without its line end.
    const char *stop = value_end + strspn(value_end, "\n");
    n_last -= n;
    if (n_last == 0 || stop[0] != '<' || (size_t)(stop - value_end) >= n_last) return 0;
    if (n_next < n_last || memcmp(value_end, number_end, n_last) != 0) return 0;
    *close = one + n_one - n;
    bool ok = add(form, "first", two, (size_t)(key - two)) &&
              add(form, "value", key_end, n_value) && add(form, "next", value_end, n_next) &&
              add(form, "last", number_end, n_last) && add(form, "empty", one, n_one - n) &&
              add(form, "stop", stop, n_last - (size_t)(stop - value_end)) &&
              cJSON_AddStringToObject(form, "comma", ", ") &&
              cJSON_AddStringToObject(form, "colon", ": ");
    return ok ? 1 : E_NOMEM;
}

// The text between two calls, if the template writes both and the rest as for one call.
static bool add_between(cJSON *form, const char *single, const char *open_end, const char *close,
                        const char *both) {
    const size_t before = (size_t)(open_end - single), inner = (size_t)(close - open_end);
    const char *second = both ? strstr(both, SECOND) : NULL;
    if (!second || strncmp(both, single, before + inner) != 0) return true;
    const char *behind = open_end + strlen(NAME), *from = both + before + inner;
    if (from > second || strcmp(second + strlen(SECOND), behind) != 0) return true;
    return add(form, "between", from, (size_t)(second - from));
}

static int put_form(cJSON *form, const char *one, const char *two, const char *both, bool thinks) {
    const char *name = strstr(one, NAME), *second = strstr(two, NAME), *close = "";
    const char *behind = name + strlen(NAME), *behind_two = second + strlen(NAME);
    const size_t n = (size_t)(name - one);
    if (n != (size_t)(second - two) || strncmp(one, two, n) != 0) return 0;
    int rc = add_json(form, behind, behind_two, &close);
    if (rc == 0) rc = add_members(form, behind, behind_two, &close);
    if (rc <= 0) return rc;
    bool ok = add_open(form, one, n, thinks) && add(form, "close", close, strlen(close)) &&
              add_between(form, one, name, close, both);
    return ok ? 1 : E_NOMEM;
}

int call_form_find(const struct completion_request *r, bool several, cJSON **out) {
    static const char *const none[] = {NULL}, *const single[] = {NAME, NULL},
                             *const pair[] = {NAME, SECOND, NULL};
    static const char two_arguments[] = "{\"" KEY "\":\"" VALUE "\",\"" LATER "\":" NUMBER_TEXT "}";
    struct probe one = {0}, two = {0}, both = {0};
    char *prompt = NULL;
    cJSON *tools = cJSON_CreateArray(), *form = cJSON_CreateObject();
    cJSON *tool = cJSON_Duplicate(cJSON_GetArrayItem(r->tools, 0), true);
    int rc = form && tool && cJSON_AddItemToArray(tools, tool) ? 0 : E_NOMEM;
    *out = NULL;
    if (rc == 0) rc = render(r, tools, none, "", &prompt);
    if (rc == 0 && prompt) rc = probe(r, tools, prompt, single, "{}", &one);
    if (rc == 0 && one.said) rc = probe(r, tools, prompt, single, two_arguments, &two);
    if (rc == 0 && two.said && several) rc = probe(r, tools, prompt, pair, "{}", &both);
    if (rc == 0 && two.said)
        rc = put_form(form, one.said, two.said, both.said,
                      engine_syntax(r->served->engine).think_close != NULL);
    if (rc == 1) {
        *out = form;
        form = NULL;
    }
    probe_release(&one);
    probe_release(&two);
    probe_release(&both);
    free(prompt);
    cJSON_Delete(tools);
    cJSON_Delete(form);
    return rc < 0 ? rc : 0;
}

// --- a tool's parameters ---

// A string without quotes takes no other assertion than a list of values.
static bool suits_string(const cJSON *property) {
    static const char *const others[] = {"pattern", "format", "minLength", "maxLength", "not",
                                         "const",   "anyOf",  "oneOf",     "allOf",     "$ref"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cJSON_HasObjectItem(property, others[i])) return false;
    return true;
}

bool call_form_suits(const cJSON *form, const cJSON *parameters) {
    static const char *const known[] = {
        "type",    "properties",  "required", "additionalProperties", "title",
        "$schema", "description", "$defs",    "definitions"};
    const cJSON *member, *property, *properties = json_member(parameters, "properties"), *required;
    if (json_string(form, "arguments")) return true;
    if (!cJSON_IsObject(properties)) return false;
    cJSON_ArrayForEach(member, parameters) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || strcmp(member->string, known[i]) == 0;
        if (!is_known) return false;
    }
    cJSON_ArrayForEach(required, json_member(parameters, "required")) {
        const char *name = cJSON_GetStringValue(required);
        if (!name || !json_member(properties, name)) return false;
    }
    cJSON_ArrayForEach(property, properties) {
        const char *type = json_string(property, "type");
        if (!cJSON_IsObject(property) || !type) return false;
        if (strcmp(type, "string") == 0 && !suits_string(property)) return false;
    }
    return true;
}
