// A growable list of token ids. E_NOMEM is the only failure.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct token_list {
    int32_t *ids;
    size_t len, cap;
};

// An empty list holds no memory; a zeroed one is empty. ids of token_list_append may be NULL if n is 0.
void token_list_init(struct token_list *l);
void token_list_release(struct token_list *l);
int token_list_push(struct token_list *l, int32_t id);
int token_list_append(struct token_list *l, const int32_t *ids, size_t n);
// The caller must free() the array
int32_t *token_list_take(struct token_list *l, size_t *len);
