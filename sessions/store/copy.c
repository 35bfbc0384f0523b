// See copy.h.
#include "sessions/store/copy.h"
#include <stdlib.h>
#include <string.h>

char *record_strdup(const char *s, bool *failed) {
    if (!s) return NULL;
    char *copy = strdup(s);
    if (!copy) *failed = true;
    return copy;
}

void *record_memdup(const void *p, size_t n, bool *failed) {
    if (!p) return NULL;
    char *copy = malloc(n + 1);
    if (!copy) {
        *failed = true;
        return NULL;
    }
    memcpy(copy, p, n);
    copy[n] = '\0';
    return copy;
}
