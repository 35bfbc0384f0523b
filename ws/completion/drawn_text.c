// See drawn_text.h.
#include "ws/completion/drawn_text.h"
#include <string.h>

#define TAIL_BYTES 4096        // kept before the end of the delivered text
#define DRAWN_BYTES (64 << 20) // that may wait for their text

void drawn_text_init(struct drawn_text *d, const struct sampling_words *stop) {
    *d = (struct drawn_text){.stop = stop && stop->n_texts > 0 ? stop : NULL};
    buf_init(&d->bytes, DRAWN_BYTES);
}

void drawn_text_release(struct drawn_text *d) {
    buf_release(&d->bytes);
}

// Special tokens have bytes and no text.
uint64_t drawn_text_add(struct drawn_text *d, const struct engine *e, int32_t id) {
    uint64_t at = d->drawn;
    size_t len = 0;
    const char *bytes = engine_token_is_text(e, id) ? engine_token_bytes(e, id, &len) : NULL;
    if (!bytes) return at;
    d->drawn += len;
    if (d->stop || at == 0) buf_add(&d->bytes, bytes, len);
    return at;
}

void drawn_text_give(struct drawn_text *d, const char *text, size_t len) {
    // Some decoders drop the space before the first word.
    bool spaced = d->given == 0 && len > 0 && d->bytes.len > 0 && d->bytes.data[0] == ' ';
    if (spaced && text[0] != ' ') d->given++;
    d->given += len;
    uint64_t keep = d->given > TAIL_BYTES ? d->given - TAIL_BYTES : 0;
    if (keep < d->base + TAIL_BYTES || keep - d->base > d->bytes.len) return;
    buf_remove_front(&d->bytes, (size_t)(keep - d->base));
    d->base = keep;
}

uint64_t drawn_text_end(const struct drawn_text *d) {
    return d->given < d->drawn ? d->given : UINT64_MAX;
}

// The shortest one of those that begin at p: the answer ended where the first was complete.
static const char *first_at(const struct drawn_text *d, const char *p, size_t len) {
    const char *found = NULL;
    for (int32_t i = 0; i < d->stop->n_texts; i++) {
        const char *text = sampling_word_text(d->stop, i);
        size_t n = strlen(text);
        if (n <= len && memcmp(p, text, n) == 0 && (!found || n < strlen(found))) found = text;
    }
    return found;
}

// It begins where the delivered text ends. Where the tokens' bytes are not the text's (bytes that are no
// character), it is looked for near that place.
const char *drawn_text_stop(const struct drawn_text *d) {
    if (!d->stop || d->bytes.len == 0 || d->given < d->base) return NULL;
    const char *all = buf_z(&d->bytes), *found = NULL;
    size_t at = (size_t)(d->given - d->base);
    if (at < d->bytes.len) found = first_at(d, all + at, d->bytes.len - at);
    for (size_t i = at > SAMPLING_WORD_BYTES ? at - SAMPLING_WORD_BYTES : 0;
         !found && i < d->bytes.len; i++)
        found = first_at(d, all + i, d->bytes.len - i);
    return found;
}
