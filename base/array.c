// See array.h.
#include "base/array.h"
#include "base/err.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int array_resize(void *array, size_t n, size_t each) {
    void *old, *grown;
    memcpy(&old, array, sizeof old); // a T * of the caller's
    if (n > PTRDIFF_MAX / each || !(grown = realloc(old, n ? n * each : 1))) return E_NOMEM;
    memcpy(array, &grown, sizeof grown);
    return 0;
}

int array_reserve(void *array, size_t *cap, size_t n, size_t each) {
    size_t fresh = *cap ? *cap : ARRAY_FIRST;
    if (n <= *cap) return 0;
    while (fresh < n) {
        if (fresh > SIZE_MAX / 2) return E_NOMEM;
        fresh *= 2;
    }
    int rc = array_resize(array, fresh, each);
    if (rc == 0) *cap = fresh;
    return rc;
}
