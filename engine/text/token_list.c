// A growable list of token ids. The capacity doubles, so that a push is amortised O(1).
#include "engine/text/token_list.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>

static int reserve(struct token_list *l, size_t more) {
    if (more > SIZE_MAX / sizeof *l->ids - l->len) return E_NOMEM;
    size_t need = l->len + more;
    if (need <= l->cap) return 0;
    size_t cap = l->cap > SIZE_MAX / sizeof *l->ids / 2 ? need : l->cap * 2;
    if (cap < need) cap = need;
    if (cap < 16) cap = 16;
    int32_t *ids = realloc(l->ids, cap * sizeof *ids);
    if (!ids) return E_NOMEM;
    l->ids = ids;
    l->cap = cap;
    return 0;
}

void token_list_init(struct token_list *l) {
    *l = (struct token_list){0};
}

void token_list_release(struct token_list *l) {
    free(l->ids);
    token_list_init(l);
}

int token_list_push(struct token_list *l, int32_t id) {
    if (l->len == l->cap) TRY(reserve(l, 1));
    l->ids[l->len++] = id;
    return 0;
}

int token_list_append(struct token_list *l, const int32_t *ids, size_t n) {
    if (n == 0) return 0; // ids may be NULL then
    TRY(reserve(l, n));
    memcpy(l->ids + l->len, ids, n * sizeof *ids);
    l->len += n;
    return 0;
}

int32_t *token_list_take(struct token_list *l, size_t *len) {
    int32_t *ids = l->ids;
    if (len) *len = l->len;
    token_list_init(l);
    return ids;
}
