// The levels of the index of words.
#pragma once
#include "sessions/store/db.h"

// FTS5 keeps the index in segments, on levels. A merge of all segments writes a level above all others, and SQLite 3.40
// keeps the levels that the merge empties: a merge beside which words were written leaves one or two. SQLite reads no
// index of more than 2,000 levels ("database disk image is malformed"): then no session could be stored any more.
#define STORE_LEVELS_MOST 64 // newer versions of SQLite reuse the 64th level

// Removes the empty levels of an index with more than STORE_LEVELS_MOST, also where SQLite does not read it any more.
// Within a transaction; before each merge of all segments, and when a writer opens the file.
int store_levels_trim(struct store_db *db, struct err *err);
