// The engine's texts: opens the tokenizer and the chat template, and passes calls on to them. Both are
// read-only after opening, so all but opening may run on any thread.
#include "engine/engine.h"

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine/model/text_files.h"
#include <malloc.h>
#include <stdio.h>
#include <string.h>

// --- opening ---

// Without marks that the tokenizer can write, a thinking_budget is refused.
static int open_thinking(struct engine *e, struct err *err) {
    struct chat_syntax s = engine_syntax(e);
    struct err why = {0};
    if (!s.think_close) return 0;
    const bool harmony = s.tools == TOOL_SYNTAX_HARMONY;
    const char *text = chat_template_text(e->chat);
    const char *answer = harmony ? "<|start|>assistant<|channel|>final<|message|>" : NULL;
    int rc =
        thinking_marks_new_before(harmony ? &e->channel : &e->thinking, e->tokenizer, s.think_open,
                                  s.think_close, answer, text, strlen(text), &why);
    if (rc == E_NOMEM) return err_set(err, rc, "%s", why.text);
    if (rc < 0) log_warn("engine.thinking", "why=\"%s\"", why.text);
    return 0;
}

// What the parser of answers reads must be in their text.
static void show_marks(struct engine *e) {
    const char *marks[ANSWER_MARKS_MAX];
    if (!e->chat) return;
    answer_marks(engine_syntax(e), marks);
    for (size_t i = 0; marks[i]; i++) tokenizer_show(e->tokenizer, marks[i]);
}

static int open_text(struct engine *e, const struct engine_options *o, struct err *err) {
    struct err why = {0};
    char dir[PATH_MAX];
    TRY(text_files_dir(dir, o->model_dir, o->tokenizer, err));
    int rc = tokenizer_open(&e->tokenizer, dir, &why);
    if (rc == E_NOTFOUND && !o->chat_template) { // a model without a tokenizer still takes ids
        e->tokenizer = NULL;
        snprintf(e->template_error, sizeof e->template_error, "the model has no tokenizer: %.400s",
                 why.text);
        return 0;
    }
    if (rc < 0) return err_set(err, rc, "%s", why.text);
    rc = chat_template_open(&e->chat, dir, o->chat_template, e->tokenizer, &why);
    if (rc < 0) e->chat = NULL;
    // A form that was named must work. The model's own may be missing: chat turns are refused then.
    if (rc < 0 && (o->chat_template || (rc != E_NOTFOUND && rc != E_UNSUPPORTED))) {
        return err_set(err, rc, "%s", why.text);
    }
    if (rc < 0) snprintf(e->template_error, sizeof e->template_error, "%s", why.text);
    show_marks(e);
    return open_thinking(e, err);
}

// Of harmony's marks two end an answer, and the one that the template writes behind a message does not.
static void collect_harmony_eos(struct engine *e) {
    static const char *const ends[] = {"<|return|>", "<|call|>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const int32_t id = tokenizer_find(e->tokenizer, ends[i]);
        bool known = id < 0 || id >= e->config->vocab_size || e->n_eos == MODEL_MAX_EOS;
        for (int32_t k = 0; k < e->n_eos; k++) known = known || e->eos_ids[k] == id;
        if (!known) e->eos_ids[e->n_eos++] = id;
    }
}

static void collect_eos(struct engine *e) {
    const struct model_config *mc = e->config;
    const bool harmony = e->chat && engine_syntax(e).tools == TOOL_SYNTAX_HARMONY;
    int32_t end = e->chat && !harmony ? chat_template_end_of_turn(e->chat) : -1;
    bool known = end < 0 || end >= mc->vocab_size;
    for (int32_t i = 0; i < mc->n_eos; i++) {
        e->eos_ids[e->n_eos++] = mc->eos_ids[i];
        known = known || mc->eos_ids[i] == end;
    }
    if (!known) e->eos_ids[e->n_eos++] = end;
    if (harmony) collect_harmony_eos(e);
}

int engine_open_texts(struct engine *e, const struct engine_options *o, struct err *err) {
    int rc = open_text(e, o, err);
    malloc_trim(0); // reading a large vocabulary takes several times what is kept of it
    return rc;
}

int engine_open_tasks(struct engine *e, const struct engine_options *o, struct err *err) {
    return prompt_tasks_load(&e->tasks, e->config, o->model_dir,
                             o->prompt_tasks ? o->prompt_tasks : "", err);
}

void engine_describe_texts(struct engine *e) {
    collect_eos(e);
    e->info.model_name = e->model_name;
    e->info.chat_template = e->chat ? chat_template_name(e->chat) : NULL;
    e->info.template_error = e->chat ? NULL : e->template_error;
    e->info.template_text = e->chat ? chat_template_text(e->chat) : NULL;
    e->info.bos_token = e->tokenizer ? tokenizer_bos(e->tokenizer) : "";
    e->info.eos_token = e->tokenizer ? tokenizer_eos(e->tokenizer) : "";
    e->info.tokenizer = e->tokenizer ? tokenizer_description(e->tokenizer) : NULL;
    e->info.longest_token = e->tokenizer ? (int32_t)tokenizer_longest_token(e->tokenizer) : 0;
    e->info.eos_ids = e->eos_ids;
    e->info.n_eos = e->n_eos;
    e->info.end_of_turn = e->chat ? chat_template_end_of_turn(e->chat) : -1;
    e->info.prompt_tasks = e->tasks.list;
    e->info.n_prompt_tasks = e->tasks.n;
    e->info.prompt_start_id = e->tasks.start_id >= 0 ? e->tasks.start_id : e->config->vocab_size;
}

// --- ids and text ---

static int need_tokenizer(const struct engine *e, struct err *err) {
    if (e->tokenizer) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "%s has no tokenizer (tokenizer.json or the like in its folder): it takes and "
                   "gives token ids only",
                   e->model_name);
}

static int need_chat(const struct engine *e, struct err *err) {
    if (e->chat) return 0;
    return err_set(err, E_UNSUPPORTED, "no chat turns with %s: %s", e->model_name,
                   e->template_error);
}

bool engine_has_tokenizer(const char *model_dir) {
    char dir[PATH_MAX];
    return text_files_dir(dir, model_dir, NULL, NULL) == 0 && text_files_tokenizer(dir);
}

int engine_tokenize(const struct engine *e, const char *text, size_t len, bool special,
                    struct token_list *out, struct err *err) {
    TRY(need_tokenizer(e, err));
    struct encode_options opt = {.no_special = !special};
    return tokenizer_encode(e->tokenizer, text, len, &opt, out, err);
}

int engine_tokenize_start(const struct engine *e, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    const size_t at = out->len;
    TRY(need_tokenizer(e, err));
    const int32_t start = tokenizer_start(e->tokenizer);
    if (start >= 0 && token_list_push(out, start) < 0)
        return err_set(err, E_NOMEM, "no memory for the ids of a text");
    TRY(engine_tokenize(e, text, len, true, out, err));
    const int32_t end = e->info.embeds_only ? tokenizer_end(e->tokenizer) : -1;
    if (end >= 0 && len > 0 && out->ids[out->len - 1] != end && token_list_push(out, end) < 0)
        return err_set(err, E_NOMEM, "no memory for the ids of a text");
    if (start < 0 || (out->len > at + 1 && out->ids[at + 1] != start)) return 0;
    out->len--;
    memmove(out->ids + at, out->ids + at + 1, (out->len - at) * sizeof *out->ids);
    return 0;
}

int engine_tokenize_after(const struct engine *e, int32_t last_id, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    TRY(need_tokenizer(e, err));
    size_t n;
    bool in_midst = tokenizer_bytes(e->tokenizer, last_id, &n) != NULL &&
                    !tokenizer_is_special(e->tokenizer, last_id);
    struct encode_options opt = {.continues = in_midst, .in_midst = in_midst};
    return tokenizer_encode(e->tokenizer, text, len, &opt, out, err);
}

// The two structs are the same, under the door's name and the template's.
_Static_assert(sizeof(struct engine_message) == sizeof(struct chat_message) &&
                   offsetof(struct engine_message, content) ==
                       offsetof(struct chat_message, content),
               "engine_message and chat_message");

int engine_render_turn(const struct engine *e, const struct engine_message *messages, size_t n,
                       int32_t last_id, struct token_list *out, struct err *err) {
    TRY(need_chat(e, err));
    return chat_template_render_next(e->chat, (const struct chat_message *)messages, n, last_id,
                                     out, err);
}

int engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *err) {
    TRY(need_tokenizer(e, err));
    return tokenizer_decode(e->tokenizer, ids, n, skip_special, out, err);
}

const char *engine_token_bytes(const struct engine *e, int32_t id, size_t *len) {
    return e->tokenizer ? tokenizer_bytes(e->tokenizer, id, len) : NULL;
}

bool engine_token_is_text(const struct engine *e, int32_t id) {
    size_t len;
    return engine_token_bytes(e, id, &len) && !tokenizer_is_special(e->tokenizer, id);
}

// --- conversations ---

struct chat_syntax engine_syntax(const struct engine *e) {
    return e->chat ? chat_template_syntax(e->chat) : (struct chat_syntax){0};
}

int engine_render(const struct engine *e, const struct cJSON *messages, const struct cJSON *tools,
                  const struct cJSON *args, struct chat_rendering **out, struct err *err) {
    struct chat_conversation conversation = {.messages = messages, .tools = tools, .args = args};
    *out = NULL;
    TRY(need_chat(e, err));
    return chat_rendering_new(e->chat, &conversation, out, err);
}

void engine_rendering_free(struct chat_rendering *r) {
    chat_rendering_free(r);
}

const char *engine_rendering_text(const struct chat_rendering *r, size_t *len) {
    return chat_rendering_text(r, len);
}

int engine_rendering_encode(const struct chat_rendering *r, size_t from, size_t to,
                            struct token_list *ids, struct err *err) {
    return chat_rendering_encode(r, from, to, ids, err);
}

size_t engine_rendering_turn_end(const struct chat_rendering *r, size_t from) {
    return chat_rendering_turn_end(r, from);
}
