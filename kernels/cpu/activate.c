// The feed-forward's activation, gated (y = act(gate) * up, Shazeer 2020) or plain. Bound by the
// exponentials: about 20 operations a value, vectorised.
#include "kernels/cpu/cpu.h"

struct activate_job {
    struct cpu_backend *cpu;
    enum activation act;
    bool gated;
    float *y;
    const float *x;
    int32_t width;
};

static void activate_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct activate_job *j = ctx;
    int64_t ldx = j->gated ? 2 * (int64_t)j->width : j->width;
    for (int32_t r = row; r < row + n_rows; r++) {
        const float *x = j->x + r * ldx;
        j->cpu->kernels->activate_row(j->act, j->y + (int64_t)r * j->width, x,
                                      j->gated ? x + j->width : NULL, j->width);
    }
}

int cpu_activate(struct backend *be, enum activation act, bool gated, void *y, const void *x,
                 int32_t n, int32_t width) {
    struct activate_job j = {cpu_of(be), act, gated, y, x, width};
    cpu_for_rows(j.cpu, n, (int64_t)width * 4, activate_chunk, &j);
    return 0;
}
