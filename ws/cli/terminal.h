// Text of a model or of a stranger on a terminal. It may hold escape sequences, which can do more
// than colour: set titles, move what has been read, answer in the user's name.
#pragma once
#include <stddef.h>
#include <stdio.h>

// Writes text with every control character but newline and tab as its picture (ESC as U+241B), with
// U+FFFD for C1 controls (some terminals obey those too), for marks that turn the direction of
// writing, and for what is not UTF-8.
void terminal_write(FILE *f, const char *text, size_t len);
void terminal_line(FILE *f, const char *text, size_t len); // and a newline
// As it is when f is a pipe or a file, for programs; as terminal_write when it is a terminal.
void terminal_or_pipe(FILE *f, const char *text, size_t len);
