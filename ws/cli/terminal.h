// Writes text of a model or of other users to a terminal. Such text may contain escape sequences
// that set titles, overwrite the screen or type input in the user's name.
#pragma once
#include <stddef.h>
#include <stdio.h>

// Writes every control character except newline and tab as its picture (ESC as U+241B), and U+FFFD
// for C1 controls (which some terminals obey), direction marks and invalid UTF-8.
void terminal_write(FILE *f, const char *text, size_t len);
void terminal_line(FILE *f, const char *text, size_t len); // and a newline
// Unchanged if f is a pipe or a file; like terminal_write if it is a terminal.
void terminal_or_pipe(FILE *f, const char *text, size_t len);
