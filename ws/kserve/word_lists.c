// Reading lists of words. See word_lists.h.
#include "ws/kserve/word_lists.h"

#define WORD_MAX_BYTES 65536

static int refuse_value(const struct word_reading *g, const char *what, struct err *err) {
    return err_set(err, E_INVAL, "input '%s' %s", g->tensor->name, what);
}

// [rows, 2, n] or [2, n]: ids one after another, and below them the end of each item, padded with -1.
struct word_list {
    const struct tensor *t;
    size_t first, width, item, from;
};

static int word_list_open(struct word_list *w, const struct word_reading *g, struct err *err) {
    const struct tensor *t = g->tensor;
    w->t = t;
    w->width = t->n_dims ? (size_t)t->shape[t->n_dims - 1] : 0;
    w->item = w->from = 0;
    if (t->n_dims < 2 || t->shape[t->n_dims - 2] != 2 ||
        (t->n != 2 * w->width && t->n != 2 * w->width * g->n_rows))
        return refuse_value(g, "must have the shape [2, n] for each row", err);
    w->first = t->n == 2 * w->width ? 0 : g->row * 2 * w->width;
    return 0;
}

// 1: the next item's ids are those from *from up to *end; 0: there is none.
static int word_list_next(struct word_list *w, const struct word_reading *g, size_t *from,
                          size_t *end, struct err *err) {
    if (w->item == w->width) return 0;
    double offset = tensor_number(w->t, w->first + w->width + w->item);
    if (offset < 0) return 0;
    *from = w->from;
    if (offset < (double)w->from || offset > (double)w->width)
        return refuse_value(g, "has an offset that runs backwards or beyond its ids", err);
    *end = w->from = (size_t)offset;
    w->item++;
    return 1;
}

static int item_ids(const struct word_list *w, const struct word_reading *g, size_t from,
                    size_t end, int32_t *ids, struct err *err) {
    for (size_t i = from; i < end; i++) {
        double id = tensor_number(w->t, w->first + i);
        if (id < 0 || id >= engine_info(g->engine)->n_vocab)
            return refuse_value(g, "has an id outside the vocabulary", err);
        ids[i - from] = (int32_t)id;
    }
    return 0;
}

int word_lists_ids(const struct word_reading *g, struct err *err) {
    struct word_list w = {0};
    int32_t ids[SAMPLING_WORD_TOKENS];
    size_t from = 0, end = 0;
    int rc;
    TRY(word_list_open(&w, g, err));
    while ((rc = word_list_next(&w, g, &from, &end, err)) == 1) {
        if (end == from) continue;
        if (end - from > SAMPLING_WORD_TOKENS)
            return refuse_value(g, "has an item of more than 32 ids", err);
        TRY(item_ids(&w, g, from, end, ids, err));
        TRY(sampling_words_add_ids(g->words, g->tensor->name, ids, end - from, err));
    }
    return rc;
}

int word_lists_split(const char *text, size_t len,
                     int (*add)(void *ctx, const char *word, size_t len, struct err *err),
                     void *ctx, struct err *err) {
    struct buf word;
    int rc = 0;
    buf_init(&word, WORD_MAX_BYTES);
    for (size_t i = 0; rc == 0 && i <= len; i++) {
        if (i == len || text[i] == ',') {
            if (word.len) rc = add(ctx, buf_z(&word), word.len, err);
            buf_reset(&word);
        } else {
            if (text[i] == '\\' && i + 1 < len) i++;
            buf_addc(&word, text[i]);
        }
    }
    if (word.error) rc = err_set(err, word.error, "a word in a list is too long");
    buf_release(&word);
    return rc;
}

static int add_word(void *ctx, const char *word, size_t len, struct err *err) {
    const struct word_reading *g = ctx;
    return sampling_words_add_text(g->words, g->tensor->name, word, len, err);
}

int word_lists_text(const struct word_reading *g, struct err *err) {
    const struct tensor_text *text = &g->tensor->texts[g->tensor->n == 1 ? 0 : g->row];
    return word_lists_split(text->bytes, text->len, add_word, (void *)(size_t)g, err);
}
