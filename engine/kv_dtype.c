// Number formats of the cache, by the names that users give them. See engine.h.
#include "engine/engine.h"

void engine_options_kv_dtype(struct engine_options *o, int choice) {
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F32,     DTYPE_F16,
                                       DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8}; // ENGINE_KV_DTYPES
    o->kv_dtype_auto = choice == 0;
    o->kv_dtype = types[choice];
}

const char *engine_kv_dtype_name(enum dtype t) {
    return t == DTYPE_I8 ? "int8" : t == DTYPE_F8_E4M3 ? "fp8" : dtype_name(t);
}
