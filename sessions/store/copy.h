// Copies of what a record points to. NULL gives NULL; *failed is set when memory is out, so that one
// check follows many copies. The caller frees them. Any thread.
#pragma once
#include <stdbool.h>
#include <stddef.h>

char *record_strdup(const char *s, bool *failed);
// A NUL follows the n bytes: the copy of a text is a string.
void *record_memdup(const void *p, size_t n, bool *failed);
