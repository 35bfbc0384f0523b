// Token and position embeddings. The token table is a packed weight, the head's if they are tied: a row of
// it is one lane of a panel, read with a stride, which touches K / 2 cache lines for each token.
#include "kernels/cpu/cpu.h"

struct embed_job {
    float *y;
    const struct batch *b;
    const struct weight *w;
    float scale;
};

static void embed_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct embed_job *j = ctx;
    int32_t cols = j->w->cols;
    for (int32_t r = row; r < row + n_rows; r++) {
        float *y = j->y + (int64_t)r * cols;
        weight_row(j->w, j->b->ids[r], y);
        if (j->scale != 1.0f)
            for (int32_t i = 0; i < cols; i++) y[i] *= j->scale;
    }
}

int cpu_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
              float scale) {
    struct embed_job j = {y, b, w, scale};
    for (int32_t r = 0; r < b->n_rows; r++)
        if (b->ids[r] < 0 || b->ids[r] >= w->rows) return E_INVAL;
    cpu_for_rows(cpu_of(be), b->n_rows, w->cols * 16, embed_chunk, &j);
    return 0;
}

struct positions_job {
    float *y;
    const struct batch *b;
    const float *table;
    int32_t cols, offset;
};

static void positions_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct positions_job *j = ctx;
    for (int32_t r = row; r < row + n_rows; r++) {
        float *y = j->y + (int64_t)r * j->cols;
        const float *from = j->table + ((int64_t)j->b->positions[r] + j->offset) * j->cols;
        for (int32_t i = 0; i < j->cols; i++) y[i] += from[i];
    }
}

int cpu_embed_positions(struct backend *be, void *y, const struct batch *b, const float *table,
                        int32_t cols, int32_t offset) {
    struct positions_job j = {y, b, table, cols, offset};
    cpu_for_rows(cpu_of(be), b->n_rows, cols, positions_chunk, &j);
    return 0;
}
