// linear for weights of few bits with x in 8 bits, with AVX512-VNNI. See linear_groups8.inc.
#if defined(__x86_64__)
#include "kernels/cpu/int8_rows.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/linear_finish.inc"
#define INT8_VNNI 1
#define GROUPS_X8 1
#include "kernels/cpu/linear_groups.inc"

void groups8_vnni512_item(const struct linear_args *a, const struct linear_item *item,
                          void *scratch) {
    groups_item(a, item, scratch);
}
void groups8_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    groups_split(a, row, n_rows);
}
#endif
