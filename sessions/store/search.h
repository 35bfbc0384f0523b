// A search, in slices.
#pragma once
#include "sessions/store/db.h"

// The next slice of list->search, all of it unless list->sliced. 1: there is more. The
// sessions that have all words (or any, without a search), and the end.
struct store_search;
int store_search_step(struct store_db *db, struct store_list *list, struct err *err);
// *row: of the index, the turn where the words were found; 0: in the title alone, or nothing was searched.
bool store_search_has(const struct store_search *s, int64_t key, int64_t *row);
// The words in that row, if it is still there. *out is zeroed before.
int store_search_place(struct store_db *db, const char *query, const char *owner, int64_t row,
                       struct stored_place *out, struct err *err);
void store_search_free(struct store_search *s);
