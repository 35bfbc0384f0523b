#include "kernels/weight_parts.h"
#include "kernels/fp8.h"

int weight_parts_check(const struct tensor_view *parts, int n_parts, int64_t max_rows,
                       const char *device, int64_t *rows, struct err *err) {
    if (n_parts < 1) return err_set(err, E_INVAL, "a weight needs at least one part");
    enum dtype t = parts[0].dtype;
    bool scaled = t == DTYPE_I8 || t == DTYPE_F8_E4M3;
    const bool groups = t == DTYPE_U8;
    if (t != DTYPE_F32 && t != DTYPE_F16 && t != DTYPE_BF16 && !scaled && !groups)
        return err_set(err, E_UNSUPPORTED, "weights of type %s are not supported on %s",
                       dtype_name(t), device);
    *rows = 0;
    for (int i = 0; i < n_parts; i++) {
        if (parts[i].dtype != t)
            return err_set(err, E_UNSUPPORTED, "parts of one weight have types %s and %s",
                           dtype_name(t), dtype_name(parts[i].dtype));
        if (scaled && !parts[i].scales)
            return err_set(err, E_INVAL, "part %d of a weight of 8 bits has no scales", i);
        if (parts[i].block_k != parts[0].block_k ||
            (parts[i].block_k && (t != DTYPE_F8_E4M3 || parts[i].block_k != FP8_BLOCK)))
            return err_set(err, E_UNSUPPORTED,
                           "part %d of a weight has a scale for each %d columns", i,
                           parts[i].block_k);
        if (parts[i].cols != parts[0].cols || parts[i].rows < 1 || parts[i].cols < 1)
            return err_set(
                err, E_INVAL, "part %d of a weight is %lld x %lld, the first has %lld columns", i,
                (long long)parts[i].rows, (long long)parts[i].cols, (long long)parts[0].cols);
        *rows += parts[i].rows;
    }
    if (parts[0].cols > INT32_MAX / 64 || *rows > max_rows)
        return err_set(err, E_LIMIT, "a weight of %lld x %lld is too large", (long long)*rows,
                       (long long)parts[0].cols);
    return 0;
}
