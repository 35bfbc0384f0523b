// The rules that columns have by themselves. How columns fit each other is check.h's.
#pragma once
#include "sessions/store/columns.h"

struct err;

// E_CORRUPT; *err names the column behind `where`, as in "turns[3].log_first". Counts that follow
// from other parts (COLUMN_UNSENT) are not looked at.
int rules_check(const char *where, const struct record_table *t, const void *record,
                struct err *err);
// A field that breaks its column's rule gets the column's fallback, except COLUMN_IDENTITY.
void rules_repair(const struct record_table *t, void *record, bool *failed);
