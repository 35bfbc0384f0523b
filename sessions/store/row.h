// Records into statements and out of rows, by their columns.
#pragma once
#include "sessions/store/columns.h"
#include <sqlite3.h>

// Binds each parameter that bears a column's name. The record outlives the statement's run.
void row_bind(sqlite3_stmt *s, const struct record_table *t, const void *record);
// The columns of {TABLE:reads}. E_NOMEM; E_CORRUPT for what no record can hold, which `salvage`
// leaves out. What was read is the record's in any case.
int row_read(sqlite3_stmt *s, const struct record_table *t, void *record, bool salvage);
// Of them the whole numbers (int64_t) alone.
void row_read_numbers(sqlite3_stmt *s, const struct record_table *t, void *record);

// A parameter by its name; none of that name is no error.
void row_bind_int(sqlite3_stmt *s, const char *param, int64_t value);
void row_bind_bytes(sqlite3_stmt *s, const char *param, const void *p, size_t len); // never null
