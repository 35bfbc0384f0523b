// See kv_shape.h.
#include "kernels/kv_shape.h"
#include "base/err.h"
#include "kernels/kv_quant.h"

int kv_shape_check(const struct kv_store *kv, const char *device, struct err *err) {
    if (kv->dtype != DTYPE_F32 && kv->dtype != DTYPE_F16 && kv->dtype != DTYPE_BF16 &&
        !kv_is_8bit(kv->dtype))
        return err_set(err, E_UNSUPPORTED, "a cache of type %s is not supported on %s",
                       dtype_name(kv->dtype), device);
    if (kv->n_layers < 1 || kv->n_kv_heads < 1 || kv->head_dim < 1 || kv->n_blocks < 1 ||
        kv->block_tokens < 1 || (kv->block_tokens & (kv->block_tokens - 1)))
        return err_set(err, E_INVAL,
                       "a cache of %d blocks of %d tokens, %d layers, %d heads of %d is not valid",
                       kv->n_blocks, kv->block_tokens, kv->n_layers, kv->n_kv_heads, kv->head_dim);
    return 0;
}
