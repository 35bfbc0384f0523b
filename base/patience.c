// See patience.h.
#include "base/patience.h"

#include <stdlib.h>

int64_t patience_us(int64_t usual_us) {
    const char *ms = getenv("PARLEY_PATIENCE_MS");
    char *end;
    if (!ms || !*ms) return usual_us;
    long long n = strtoll(ms, &end, 10);
    return *end || n < 0 || n > 86400000 ? usual_us : n * 1000;
}
