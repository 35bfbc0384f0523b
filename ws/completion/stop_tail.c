// See stop_tail.h.
#include "ws/completion/stop_tail.h"
#include <string.h>

#define TAIL_BYTES 4096

void stop_tail_init(struct stop_tail *t, const struct sampling_words *stop) {
    *t = (struct stop_tail){.stop = stop && stop->n_texts > 0 ? stop : NULL};
    buf_init(&t->bytes, 4 * TAIL_BYTES);
}

void stop_tail_release(struct stop_tail *t) {
    buf_release(&t->bytes);
}

void stop_tail_add(struct stop_tail *t, const struct engine *e, const int32_t *ids, size_t n) {
    for (size_t i = 0; t->stop && i < n; i++) {
        size_t len = 0;
        const char *bytes = engine_token_bytes(e, ids[i], &len);
        if (bytes) buf_add(&t->bytes, bytes, len);
        if (t->bytes.len > 2 * TAIL_BYTES) buf_remove_front(&t->bytes, t->bytes.len - TAIL_BYTES);
    }
}

const char *stop_tail_find(const struct stop_tail *t, size_t *behind) {
    const char *found = NULL, *first = NULL;
    for (int32_t i = 0; t->stop && t->bytes.len > 0 && i < t->stop->n_texts; i++) {
        const char *text = sampling_word_text(t->stop, i);
        const char *at = memmem(t->bytes.data, t->bytes.len, text, strlen(text));
        if (at && (!first || at < first)) first = at, found = text;
    }
    *behind = first ? t->bytes.len - (size_t)(first - (const char *)t->bytes.data) : 0;
    return found;
}
