// The backend's work buffers: one for each worker and one shared. They grow when a weight or a cache
// is made, never in a step.
#include "kernels/cpu/cpu.h"

static int grow(struct cpu_buffer *b, size_t bytes, struct err *err) {
    if (bytes <= b->bytes) return 0;
    void *p = cpu_pages_alloc(bytes);
    if (!p) return err_set(err, E_NOMEM, "out of memory for a work buffer of %zu bytes", bytes);
    cpu_pages_free(b->data, b->bytes);
    *b = (struct cpu_buffer){p, bytes};
    return 0;
}

int cpu_reserve(struct cpu_backend *cpu, size_t scratch_bytes, size_t shared_bytes,
                struct err *err) {
    for (int i = 0; i < threads_count(cpu->threads); i++)
        TRY(grow(&cpu->scratch[i], scratch_bytes, err));
    return grow(&cpu->shared, shared_bytes, err);
}
