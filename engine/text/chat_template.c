// Chat templates: finds a model folder's template, runs it (jinja.h) over conversations, and passes
// the result to the tokenizer, together with the spans of the users' text. Every byte of a message
// carries its origin through the template, so a message never yields a special token, even if the
// template has changed it.
#include "engine/text/chat_template.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/path.h"
#include "base/utf8.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/text/chat_forms.h"
#include "engine/text/chat_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEMPLATE_MAX_BYTES (1u << 20) // the longest published ones have 30 kB

// Stands for the earlier turns of a running session: an answer whose place in the text shows where
// the new turn begins.
#define EARLIER "X"
#define MARK "MARK"

// --- one rendering

struct message {
    const char *role, *content;
    size_t len;
    uint8_t origin;
};
struct rendering {
    struct jinja_run run;
    struct jinja_string text; // lives as long as the run
};

static void rendering_release(struct rendering *w) {
    jinja_end(&w->run);
}

static int put_message(struct jinja_run *r, struct jinja_list *l, const struct message *m) {
    struct jinja_value dict, content = jinja_z(m->content);
    uint8_t *origin = jinja_arena_get(&r->arena, m->len + 1);
    if (!origin) return r->arena.error;
    memset(origin, m->origin, m->len);
    content.s.origin = origin;
    TRY(jinja_dict_new(r, &dict));
    TRY(jinja_dict_setz(r, dict.dict, "role", jinja_z(m->role)));
    TRY(jinja_dict_setz(r, dict.dict, "content", content));
    return jinja_list_push(r, l, dict);
}

int chat_begin(const struct chat_template *c, size_t n_input, struct jinja_run *run,
               struct err *err) {
    time_t now = (time_t)(clock_wall_us(c->clock) / 1000000);
    struct tm tm;
    localtime_r(&now, &tm);
    return jinja_begin(run, n_input, &tm, err);
}

// The variables that transformers sets.
int chat_set_names(const struct chat_template *c, struct jinja_run *run,
                   struct jinja_value messages, struct jinja_value tools,
                   bool add_generation_prompt) {
    TRY(jinja_set(run, "messages", messages));
    TRY(jinja_set(run, "add_generation_prompt", jinja_bool(add_generation_prompt)));
    TRY(jinja_set(run, "tools", tools));
    TRY(jinja_set(run, "documents", jinja_none()));
    TRY(jinja_set(run, "bos_token", jinja_z(tokenizer_bos(c->tokenizer))));
    return jinja_set(run, "eos_token", jinja_z(tokenizer_eos(c->tokenizer)));
}

static int set_names(const struct chat_template *c, struct jinja_run *r, const struct message *m,
                     size_t n, bool add_generation_prompt) {
    struct jinja_value list;
    TRY(jinja_list_new(r, JINJA_LIST, &list));
    for (size_t i = 0; i < n; i++) TRY(put_message(r, list.list, &m[i]));
    return chat_set_names(c, r, list, jinja_none(), add_generation_prompt);
}

// Release *w on failure too.
static int render(const struct chat_template *c, const struct message *m, size_t n,
                  bool add_generation_prompt, struct rendering *w, struct err *err) {
    size_t n_input = 0;
    for (size_t i = 0; i < n; i++) n_input += m[i].len + 256; // and the size of the message itself
    int rc = chat_begin(c, n_input, &w->run, err);
    if (rc == 0) rc = set_names(c, &w->run, m, n, add_generation_prompt);
    if (rc == 0) rc = jinja_render(&w->run, c->jinja, &w->text);
    return rc < 0 && err && err->code == 0 ? err_set(err, rc, "no memory for %zu messages", n) : rc;
}

static uint8_t origin_at(const struct rendering *w, size_t at) {
    return jinja_string_origin(w->text, at);
}

// The first byte from `at` on that a message later than the mark has brought; the text's end.
static size_t next_new(const struct rendering *w, size_t at) {
    while (at < w->text.len && origin_at(w, at) < ORIGIN_NEW) at++;
    return at;
}

// The position after the mark; SIZE_MAX unless the mark occurs exactly once, unchanged.
static size_t behind_mark(const struct rendering *w) {
    size_t at = 0, end, n = 0;
    while (at < w->text.len && origin_at(w, at) != ORIGIN_MARK) at++;
    end = at;
    while (end < w->text.len && origin_at(w, end) == ORIGIN_MARK) end++;
    for (size_t i = end; i < w->text.len; i++) n += origin_at(w, i) == ORIGIN_MARK;
    struct jinja_string mark = jinja_string_sub(w->text, at, end);
    return n == 0 && jinja_string_is(mark, MARK) ? end : SIZE_MAX;
}

// --- opening

static bool is_white(const char *s, size_t len) {
    return jinja_string_strip((struct jinja_string){.s = s, .len = len}, NULL, true, false).len ==
           0;
}

// A token that no text is made of: special, eos, or <...> as a whole.
static bool is_mark_up(const struct tokenizer *t, int32_t id, const char *s, size_t len) {
    return tokenizer_is_special(t, id) || id == tokenizer_find(t, tokenizer_eos(t)) ||
           (len > 2 && s[0] == '<' && s[len - 1] == '>');
}

static int32_t first_mark_up(const struct tokenizer *t, const char *text, size_t text_len) {
    struct token_list ids;
    int32_t found = -1;
    token_list_init(&ids);
    int rc = tokenizer_encode(t, text, text_len, NULL, &ids, NULL);
    for (size_t i = 0; rc == 0 && i < ids.len; i++) {
        size_t len;
        const char *s = tokenizer_bytes(t, ids.ids[i], &len);
        if (is_mark_up(t, ids.ids[i], s, len)) found = ids.ids[i];
        if (found >= 0 || !is_white(s, len)) break;
    }
    token_list_release(&ids);
    return found;
}

// Finds the token that the template puts directly after an assistant's text. A template that refuses
// this test conversation can still render others, so that is no error.
static void find_end_of_turn(struct chat_template *c) {
    static const struct message m[] = {{"user", EARLIER, sizeof EARLIER - 1, ORIGIN_EARLIER},
                                       {"assistant", MARK, sizeof MARK - 1, ORIGIN_MARK},
                                       {"user", EARLIER, sizeof EARLIER - 1, ORIGIN_NEW}};
    struct rendering w;
    c->end_of_turn = -1;
    if (render(c, m, 3, false, &w, NULL) == 0) {
        size_t from = behind_mark(&w);
        if (from != SIZE_MAX)
            c->end_of_turn =
                first_mark_up(c->tokenizer, w.text.s + from, next_new(&w, from) - from);
    }
    rendering_release(&w);
}

static bool has(const char *text, size_t len, const char *what) {
    return memmem(text, len, what, strlen(what));
}

// A template shows the model how to call tools by the words that it writes earlier calls with.
static struct chat_syntax find_syntax(const char *text, size_t len) {
    static const char *const thinking[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
    // The first that is there counts.
    static const struct {
        const char *mark;
        enum tool_syntax tools;
    } marks[] = {
        {"<arg_key>", TOOL_SYNTAX_GLM}, // within <tool_call>
        {"<function=", TOOL_SYNTAX_XML},
        {"<tool_call>", TOOL_SYNTAX_HERMES},
        {"[TOOL_CALLS]", TOOL_SYNTAX_MISTRAL},
        {"<|python_tag|>", TOOL_SYNTAX_LLAMA},
        {"<|tool_call|>", TOOL_SYNTAX_LIST},
        {"<|tool_list_start|>", TOOL_SYNTAX_OTHER}, // LFM2: Python's calls
        {"<|tool_call_start|>", TOOL_SYNTAX_OTHER},
        {"<|START_ACTION|>", TOOL_SYNTAX_OTHER},             // Cohere
        {"<|tool_call>", TOOL_SYNTAX_OTHER},                 // Gemma 4
        {"<｜tool▁calls▁begin｜>", TOOL_SYNTAX_OTHER},       // DeepSeek
        {"<tool_calls>", TOOL_SYNTAX_OTHER},                 // Hunyuan
        {"<|tool_calls_section_begin|>", TOOL_SYNTAX_OTHER}, // Kimi
        {"<minimax:tool_call>", TOOL_SYNTAX_OTHER},
        {"<|action_start|>", TOOL_SYNTAX_OTHER}, // InternLM
    };
    struct chat_syntax s = {0};
    for (int i = 0; i < 2 && !s.think_close; i++)
        if (has(text, len, thinking[i][1])) {
            s.think_open = thinking[i][0];
            s.think_close = thinking[i][1];
        }
    if (has(text, len, "<|channel|>") && has(text, len, "<|message|>"))
        return (struct chat_syntax){TOOL_SYNTAX_HARMONY, "<|channel|>analysis<|message|>",
                                    "<|end|>"};
    s.tools = has(text, len, "tools") ? TOOL_SYNTAX_JSON : TOOL_SYNTAX_NONE;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && s.tools == TOOL_SYNTAX_JSON; i++)
        if (has(text, len, marks[i].mark)) s.tools = marks[i].tools;
    return s;
}

struct chat_syntax chat_template_syntax(const struct chat_template *c) {
    return c->syntax;
}

static int open_text(struct chat_template *c, const char *text, size_t len, const char *where,
                     struct err *err) {
    struct err why = {0};
    if (!utf8_valid(text, len))
        return err_set(err, E_FORMAT, "%s: the chat template is not UTF-8", where);
    int rc = jinja_open(&c->jinja, text, len, &why);
    if (rc < 0) return err_set(err, rc, "%s: chat template, %s", where, why.text);
    c->text = strndup(text, len);
    if (!c->text || !(c->name = strdup(where)))
        return err_set(err, E_NOMEM, "%s: no memory for the chat template", where);
    c->syntax = find_syntax(text, len);
    return 0;
}

// A second template, for conversations with tools: calls are written by it.
static int open_tools_text(struct chat_template *c, const char *text, size_t len, const char *where,
                           struct err *err) {
    struct err why = {0};
    if (!utf8_valid(text, len))
        return err_set(err, E_FORMAT, "%s: the tool_use template is not UTF-8", where);
    if (len > TEMPLATE_MAX_BYTES)
        return err_set(err, E_LIMIT, "%s: a chat template of %zu bytes", where, len);
    int rc = jinja_open(&c->tools_jinja, text, len, &why);
    if (rc < 0) return err_set(err, rc, "%s: tool_use template, %s", where, why.text);
    struct chat_syntax s = find_syntax(text, len);
    c->syntax.tools = s.tools;
    if (!c->syntax.think_close) c->syntax = s;
    return 0;
}

// E_NOTFOUND leaves *err to the caller, who may know another place to look.
static int open_file(struct chat_template *c, const char *path, struct err *err) {
    struct buf text;
    struct err why = {0};
    int rc = buf_read_file(&text, path, TEMPLATE_MAX_BYTES, &why);
    if (rc < 0 && rc != E_NOTFOUND) err_set(err, rc, "%s", why.text);
    if (rc == 0) rc = open_text(c, buf_z(&text), text.len, path, err);
    buf_release(&text);
    return rc;
}

// chat_template of tokenizer_config.json: a string, or a list of {"name", "template"} of which
// the name's is meant.
static const char *template_in(const cJSON *config, const char *wanted) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *item;
    if (cJSON_IsString(value)) return strcmp(wanted, "default") == 0 ? value->valuestring : NULL;
    cJSON_ArrayForEach(item, value) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "template");
        if (cJSON_IsString(name) && strcmp(name->valuestring, wanted) == 0 && cJSON_IsString(text))
            return text->valuestring;
    }
    return NULL;
}

static int open_config(struct chat_template *c, const char *model_dir, const char *path,
                       struct err *err) {
    struct err why = {0};
    cJSON *config = NULL;
    if (gguf_is(model_dir))
        gguf_folder_templates(&config, model_dir, &why);
    else
        config = json_parse_file(path, &json_limits_file, &why);
    if (!config)
        return why.code == E_NOTFOUND ? E_NOTFOUND : err_set(err, why.code, "%s", why.text);
    const char *text = template_in(config, "default"), *tools = template_in(config, "tool_use");
    size_t len = text ? strlen(text) : 0;
    int rc = !text ? E_NOTFOUND
             : len > TEMPLATE_MAX_BYTES
                 ? err_set(err, E_LIMIT, "%s: a chat template of %zu bytes", path, len)
                 : open_text(c, text, len, path, err);
    if (rc == 0 && tools) rc = open_tools_text(c, tools, strlen(tools), path, err);
    cJSON_Delete(config);
    return rc;
}

// transformers keeps further templates in files of this folder.
static int open_additional(struct chat_template *c, const char *model_dir, struct err *err) {
    char path[PATH_MAX];
    struct buf text;
    struct err why = {0};
    TRY(path_join(path, model_dir, "additional_chat_templates/tool_use.jinja", err));
    int rc = buf_read_file(&text, path, TEMPLATE_MAX_BYTES, &why);
    if (rc == 0)
        rc = open_tools_text(c, buf_z(&text), text.len, path, err);
    else if (rc == E_NOTFOUND)
        rc = 0;
    else
        err_set(err, rc, "%s", why.text);
    buf_release(&text);
    return rc;
}

static int open_folder(struct chat_template *c, const char *model_dir, struct err *err) {
    // The last one is what processors of older versions of transformers saved.
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json",
                                        "chat_template.json"};
    const int last = gguf_is(model_dir) ? 1 : 2;
    char path[PATH_MAX];
    for (int i = gguf_is(model_dir) ? 1 : 0; i <= last; i++) {
        if (gguf_is(model_dir)) // named as what it is
            snprintf(path, sizeof path, "%s", model_dir);
        else
            TRY(path_join(path, model_dir, names[i], err));
        int rc = i == 0 ? open_file(c, path, err) : open_config(c, model_dir, path, err);
        if (rc == 0 && !c->tools_jinja && !gguf_is(model_dir))
            rc = open_additional(c, model_dir, err);
        if (rc != E_NOTFOUND) return rc;
    }
    return err_set(err, E_NOTFOUND, "%s has no chat template", model_dir);
}

static int open_override(struct chat_template *c, const char *override, struct err *err) {
    const struct chat_form *form = chat_form_named(override);
    if (form) return open_text(c, form->text, strlen(form->text), form->name, err);
    int rc = open_file(c, override, err);
    if (rc != E_NOTFOUND) return rc;
    return err_set(err, E_NOTFOUND, "'%.100s' is neither a file nor one of the known forms: %s",
                   override, chat_template_names());
}

int chat_template_open(struct chat_template **out, const char *model_dir, const char *override,
                       const struct tokenizer *t, struct err *err) {
    *out = NULL;
    struct chat_template *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, E_NOMEM, "no memory for a chat template");
    c->tokenizer = t;
    c->clock = &clock_system;
    int rc = override ? open_override(c, override, err) : open_folder(c, model_dir, err);
    if (rc < 0) {
        chat_template_close(c);
        return rc;
    }
    find_end_of_turn(c);
    *out = c;
    return 0;
}

void chat_template_close(struct chat_template *c) {
    if (!c) return;
    jinja_close(c->jinja);
    if (c->tools_jinja) jinja_close(c->tools_jinja);
    free(c->name);
    free(c->text);
    free(c);
}

const char *chat_template_name(const struct chat_template *c) {
    return c->name;
}

const char *chat_template_text(const struct chat_template *c) {
    return c->text;
}

const char *chat_template_names(void) {
    return chat_form_names();
}

int32_t chat_template_end_of_turn(const struct chat_template *c) {
    return c->end_of_turn;
}

void chat_template_set_clock(struct chat_template *c, const struct clock *clock) {
    c->clock = clock;
}

// --- messages

static int read_message(const struct chat_message *from, size_t i, struct message *to,
                        struct err *err) {
    static const char *const roles[] = {"system", "user", "assistant"};
    if (!from->role || !from->content)
        return err_set(err, E_INVAL, "message %zu has no role or content", i);
    *to = (struct message){from->role, from->content, strlen(from->content), origin_of_message(i)};
    if (!utf8_valid(to->content, to->len))
        return err_set(err, E_INVAL, "message %zu is not valid UTF-8", i);
    for (int r = 0; r < 3; r++)
        if (strcmp(from->role, roles[r]) == 0) return 0;
    return err_set(err, E_INVAL, "message %zu: role '%.40s' is not system, user or assistant", i,
                   from->role);
}

// All messages, after the answer that stands for the earlier turns, if there were any.
static int read_messages(const struct chat_message *messages, size_t n, size_t n_front,
                         struct message **out, struct err *err) {
    static const struct message front[] = {{"user", EARLIER, sizeof EARLIER - 1, ORIGIN_EARLIER},
                                           {"assistant", MARK, sizeof MARK - 1, ORIGIN_MARK}};
    size_t total = 0;
    *out = NULL;
    if (n == 0) return err_set(err, E_INVAL, "a conversation without messages");
    if (n > TEXT_MAX_BYTES / sizeof **out)
        return err_set(err, E_LIMIT, "a conversation of %zu messages", n);
    struct message *m = malloc((n_front + n) * sizeof *m);
    if (!m) return err_set(err, E_NOMEM, "no memory for %zu messages", n);
    memcpy(m, front, n_front * sizeof *m);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = read_message(&messages[i], i, &m[n_front + i], err);
        if (rc == 0 && (total += m[n_front + i].len) > TEXT_MAX_BYTES)
            rc = err_set(err, E_LIMIT, "a conversation of more than %u bytes", TEXT_MAX_BYTES);
    }
    if (rc == 0) {
        *out = m;
        return 0;
    }
    free(m);
    return rc;
}

// Some templates omit messages of some roles; a session refuses that. Allowed: an answer that loses
// its reasoning, and a conversation that ends in an answer, which asks for no turn (Mistral's put the
// system's text into the last question only).
static int check_written(const struct rendering *w, const struct message *m, size_t n,
                         struct err *err) {
    bool seen[N_ORIGINS] = {0};
    if (strcmp(m[n - 1].role, "assistant") == 0) return 0;
    for (size_t i = 0; i < w->text.len; i++) seen[origin_at(w, i)] = true;
    for (size_t i = 0; i < n; i++)
        if (!seen[m[i].origin] && strcmp(m[i].role, "assistant") != 0 &&
            !is_white(m[i].content, m[i].len))
            return err_set(err, E_INVAL, "the chat template leaves out message %zu (%s)", i,
                           m[i].role);
    return 0;
}

int chat_encode(const struct chat_template *c, struct jinja_string text, size_t from, bool forge,
                struct token_list *ids, struct err *err) {
    struct encode_options opt = {.continues = from > 0};
    struct text_span *plain = NULL;
    const uint8_t *origin = text.origin;
    size_t n = 0, len = text.len;
    for (size_t i = from; i < len && origin && !forge; i++)
        n += origin[i] && (i == from || !origin[i - 1]);
    if (n > 0 && !(plain = malloc(n * sizeof *plain)))
        return err_set(err, E_NOMEM, "no memory for a conversation of %zu bytes", len);
    for (size_t i = from, k = 0; k < n; k++) {
        while (!origin[i]) i++;
        plain[k].from = i - from;
        while (i < len && origin[i]) i++;
        plain[k].to = i - from;
    }
    opt.plain = plain;
    opt.n_plain = n;
    int rc = tokenizer_encode(c->tokenizer, text.s + from, len - from, &opt, ids, err);
    free(plain);
    return rc;
}

// --- conversations

// For a template without a system role: the system's words begin the user's message behind them. Free the
// result's content. False: the conversation does not begin so, or no memory.
static bool join_system(struct message *m, size_t n, char **joined) {
    if (n < 2 || strcmp(m[0].role, "system") != 0 || strcmp(m[1].role, "user") != 0) return false;
    size_t len = m[0].len + m[1].len + 2;
    *joined = malloc(len + 1);
    if (!*joined) return false;
    snprintf(*joined, len + 1, "%s\n\n%s", m[0].content, m[1].content);
    m[1].content = *joined;
    m[1].len = len;
    return true;
}

// Renders the messages, in another layout if the template refuses theirs.
static int render_checked(const struct chat_template *c, struct message *m, size_t n, bool prompt,
                          bool forge, struct rendering *w, struct err *err) {
    char *joined = NULL;
    struct err why = {0};
    int rc = render(c, m, n, prompt, w, &why);
    if (rc == 0 && !forge) rc = check_written(w, m, n, &why);
    if (rc == E_INVAL && join_system(m, n, &joined)) {
        struct rendering other = {0};
        int again = render(c, m + 1, n - 1, prompt, &other, NULL);
        if (again == 0 && !forge) again = check_written(&other, m + 1, n - 1, NULL);
        rendering_release(again == 0 ? w : &other);
        if (again == 0) *w = other;
        if (again == 0) rc = 0;
    }
    free(joined);
    return rc < 0 ? err_set(err, rc, "%s", why.text) : 0;
}

int chat_template_render(const struct chat_template *c, const struct chat_message *messages,
                         size_t n, bool add_generation_prompt, bool forge, struct token_list *ids,
                         struct buf *text, struct err *err) {
    struct message *m = NULL;
    struct rendering w;
    TRY(read_messages(messages, n, 0, &m, err));
    int rc = render_checked(c, m, n, add_generation_prompt, forge, &w, err);
    if (rc == 0 && ids) rc = chat_encode(c, w.text, 0, forge, ids, err);
    if (rc == 0 && text && (rc = buf_add(text, w.text.s, w.text.len)) < 0)
        err_set(err, rc, "no room for the conversation's text");
    rendering_release(&w);
    free(m);
    return rc;
}

// Where the new turn begins: after the mark, or, if the log ends with the end-of-turn token, after
// that token. E_INVAL if the template moves or changes the text before.
static int find_start(const struct chat_template *c, const struct rendering *w, int32_t last_id,
                      size_t *out, struct err *err) {
    size_t start = behind_mark(w), len;
    if (start == SIZE_MAX)
        return err_set(err, E_INVAL,
                       "the chat template does not write an earlier answer as it was given, so no "
                       "turn can follow it");
    if (next_new(w, 0) < start)
        return err_set(err, E_INVAL,
                       "the chat template writes a new message in front of earlier ones, which a "
                       "running session cannot take");
    *out = start;
    if (last_id < 0 || last_id != c->end_of_turn) return 0;
    const char *end = tokenizer_bytes(c->tokenizer, last_id, &len);
    struct jinja_string between = jinja_string_sub(w->text, start, next_new(w, start));
    size_t at = jinja_string_find(between, (struct jinja_string){.s = end, .len = len}, 0);
    if (at != SIZE_MAX) *out = start + at + len;
    return 0;
}

int chat_template_render_next(const struct chat_template *c, const struct chat_message *messages,
                              size_t n, int32_t last_id, struct token_list *ids, struct err *err) {
    if (last_id < 0) return chat_template_render(c, messages, n, true, false, ids, NULL, err);
    struct message *m = NULL;
    struct rendering w;
    size_t start = 0;
    TRY(read_messages(messages, n, 2, &m, err));
    int rc = render(c, m, n + 2, true, &w, err);
    if (rc == 0) rc = check_written(&w, m + 2, n, err);
    if (rc == 0) rc = find_start(c, &w, last_id, &start, err);
    if (rc == 0) rc = chat_encode(c, w.text, start, false, ids, err);
    rendering_release(&w);
    free(m);
    return rc;
}
