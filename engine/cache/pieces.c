// The blocks of a snapshot on their way between a file and host memory, a piece at a time.
//
// Each of several ranks has its part of a block in its own host memory, and only the engine's thread
// talks to ranks. So the folder's thread and the engine take turns with the job: to write, the engine
// fetches the parts of the next piece and the thread writes them; to read, the thread reads a piece and
// the engine sends its parts to the ranks, which can load them. A block in the file has the
// parts of all ranks, so a snapshot is one file with one rank or many, and a job's memory is one piece.
//
// One rank's blocks are written from where they are parked and read there, all in one piece.
#include "engine/cache/movers.h"

#include "engine/dist/lead.h"
#include <stdlib.h>

static int32_t n_all(const struct snapshot_job *j) {
    return j->task == SNAPSHOT_WRITE ? j->head.n_blocks : j->n_wanted;
}

static int32_t most_in_piece(const struct caches *c) {
    size_t n = c->piece_bytes / tiers_whole_bytes(&c->tiers);
    return n > 0 ? (int32_t)n : 1;
}

static void piece_set(struct caches *c, struct snapshot_job *j) {
    const int32_t left = n_all(j) - j->at, most = most_in_piece(c), n = left < most ? left : most;
    for (int32_t i = 0; i < n; i++)
        j->memory[j->at + i] = j->piece + (size_t)i * tiers_whole_bytes(&c->tiers);
    j->until = j->at + n;
}

int cache_pieces_begin(struct caches *c, struct snapshot_job *j) {
    j->until = n_all(j);
    if (lead_is_alone(c->opt.lead)) return 0;
    const int32_t most = most_in_piece(c), n = j->until < most ? j->until : most;
    j->piece = malloc((size_t)n * tiers_whole_bytes(&c->tiers));
    if (!j->piece) return E_NOMEM;
    if (j->task == SNAPSHOT_READ)
        piece_set(c, j);
    else
        j->until = 0; // parts are fetched once the file is open
    return 0;
}

// 1: another piece is under way; 0: that was the last one.
static int next(struct caches *c, struct snapshot_job *j) {
    const int64_t began = clock_mono_us(&clock_system);
    if (atomic_load(&j->stop)) return E_CANCELLED;
    if (j->task == SNAPSHOT_READ) {
        const int32_t done = atomic_load(&j->n_done);
        TRY(tiers_unpack(&c->tiers, j->host + done, j->at - done,
                         (const void *const *)(j->memory + done)));
        atomic_store(&j->n_done, j->at);
    }
    const bool more = j->at < n_all(j);
    if (more) piece_set(c, j);
    if (more && j->task == SNAPSHOT_WRITE)
        TRY(tiers_pack(&c->tiers, j->host + j->at, j->until - j->at, j->memory + j->at));
    j->took_us += clock_mono_us(&clock_system) - began;
    if (!more) return 0;
    TRY(snapshots_again(&c->snapshots, j));
    return 1;
}

bool cache_pieces_next(struct caches *c, struct snapshot_job *j) {
    if (!j->piece || j->rc < 0) return false;
    int rc = next(c, j);
    if (rc == E_DEVICE) c->device_lost = true;
    if (rc < 0) snapshot_job_fail(j, rc, "its next part was not moved");
    return rc == 1;
}
