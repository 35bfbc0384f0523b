// The rules that columns have by themselves. How columns fit each other is check.h's.
#pragma once
#include "sessions/store/columns.h"

struct err;

// E_CORRUPT; *err names the column behind `where`, as in "turns[3].log_first". Counts that follow
// from other parts (COLUMN_UNSENT) are not looked at.
int rules_check(const char *where, const struct record_table *t, const void *record,
                struct err *err);
// Gives what breaks its rule the value that its column falls back to, but for COLUMN_IDENTITY.
void rules_repair(const struct record_table *t, void *record, bool *failed);
