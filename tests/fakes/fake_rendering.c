// The conversations of engine.h without a model: their text is that of the messages, one behind the
// other, and has one id.
#include "base/json.h"
#include "engine/engine.h"
#include <stdlib.h>

struct chat_rendering {
    struct buf text;
};
struct chat_syntax engine_syntax(const struct engine *e) {
    return (struct chat_syntax){0};
}
int engine_render(const struct engine *e, const struct cJSON *messages, const struct cJSON *tools,
                  const struct cJSON *args, struct chat_rendering **out, struct err *err) {
    const cJSON *message;
    struct chat_rendering *r = *out = calloc(1, sizeof *r);
    if (!r) return E_NOMEM;
    buf_init(&r->text, 64 << 20);
    cJSON_ArrayForEach(message, messages)
        buf_addz(&r->text, cJSON_GetStringValue(cJSON_GetObjectItem(message, "content")));
    return r->text.error;
}
void engine_rendering_free(struct chat_rendering *r) {
    if (r) buf_release(&r->text);
    free(r);
}
const char *engine_rendering_text(const struct chat_rendering *r, size_t *len) {
    *len = r->text.len;
    return buf_z(&r->text);
}
int engine_rendering_encode(const struct chat_rendering *r, size_t from, size_t to,
                            struct token_list *ids, struct err *err) {
    return token_list_push(ids, 1);
}
size_t engine_rendering_turn_end(const struct chat_rendering *r, size_t from) {
    return SIZE_MAX;
}
