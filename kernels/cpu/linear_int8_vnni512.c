// linear for weights of 8 and of few bits with AVX512-VNNI (Cascade Lake, Zen 4 and on).
// See linear_int8.inc and linear_groups.inc.
#if defined(__x86_64__)
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/linear_finish.inc"
#define INT8_VNNI 1
#include "kernels/cpu/linear_groups.inc"
#include "kernels/cpu/linear_int8.inc"

void int8_vnni512_item(const struct linear_args *a, const struct linear_item *item, void *scratch) {
    int8_item(a, item, scratch);
}
void int8_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    int8_split(a, row, n_rows);
}
void groups_vnni512_item(const struct linear_args *a, const struct linear_item *item,
                         void *scratch) {
    groups_item(a, item, scratch);
}
void groups_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    groups_split(a, row, n_rows);
}
#endif
