// The engine's text functions: thin, since tokenizer and templates are read-only after opening. Any
// thread.
#include "engine/engine.h"

#include "engine/engine_internal.h"
#include "engine/model/text_files.h"

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

// --- conversations ---

_Static_assert(ENGINE_TOOLS_MISTRAL == (int)TOOL_SYNTAX_MISTRAL, "engine_tool_syntax");

struct engine_syntax engine_syntax(const struct engine *e) {
    if (!e->chat) return (struct engine_syntax){0};
    struct chat_syntax s = chat_template_syntax(e->chat);
    return (struct engine_syntax){.tools = (enum engine_tool_syntax)s.tools,
                                  .think_open = s.think_open,
                                  .think_close = s.think_close};
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
