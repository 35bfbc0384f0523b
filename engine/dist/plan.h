// The messages of the leader to the other ranks. Each has a head of a fixed size, which also carries a
// small payload; a larger payload is a second message. All ranks have the same build, so structs are sent
// as they are in memory.
//
// A plan names everything that a rank's device must do, in order. So ranks read no clock, decide nothing
// and keep no list of sequences.
#pragma once
#include "base/build_id.h"
#include "base/err.h"
#include "engine/model/weight_format.h"
#include "kernels/backend.h"
#include <limits.h>
#include <stdbool.h>

enum plan_kind {
    PLAN_END,  // the process ends; all other bytes are 0
    PLAN_OPEN, // payload: struct plan_open; each rank answers with two structs rank_report: its
               // build and machine, then what it has loaded
    PLAN_SIZE, // payload: struct plan_size; answered with a struct rank_report
    PLAN_STEP, // payload: the batch; flag: enum plan_step; n: the number of its parts; first: its slot
    PLAN_PREFIX, // payload: the batch
    PLAN_LOGITS, // of the last step's wanted rows [first, first + n)
    PLAN_COPY,   // block `first` becomes a copy of block n
    PLAN_SAVE,   // payload: n block numbers, then n host block numbers
    PLAN_LOAD,   // the same; the host's blocks are copied to the device's
    PLAN_FETCH,  // payload: n host block numbers; each rank in turn sends the leader its parts
    PLAN_PUT,    // the same; the leader sends each rank its parts
    PLAN_PING,   // each rank in turn sends the leader one byte
    PLAN_CLOSE,  // the engine closes; the rank waits for the next PLAN_OPEN
};

enum plan_step { // bits
    PLAN_ONE_LAYER = 1,
    PLAN_FOLLOWED = 2, // struct batch's is_followed
};

enum { PLAN_INLINE_BYTES = 4000, PLAN_DEVICE_BYTES = 512, PLAN_SLOTS = 8 };

struct plan {
    int32_t kind; // enum plan_kind
    int32_t first, n, flag;
    // Of a batch.
    int32_t n_rows, n_seqs, n_logits, n_groups, n_map, n_virtual,
        virtual_width; // n_map: of all maps
    // n_payload: bytes of the payload. A payload that fits stands in `payload`. A larger one comes in a second message,
    // or, if it differs from the slot's last large payload in a few words only, as n_changed structs plan_change in
    // `payload`. n_changed -1: the payload is not sent as changes.
    int64_t n_payload, n_changed;
    _Alignas(8) char payload[PLAN_INLINE_BYTES];
};

// Ranks keep the last payload of each slot that came in a second message. Only steps have another slot than 0.
static inline int32_t plan_slot(const struct plan *p) {
    return p->kind == PLAN_STEP ? p->first : 0;
}

// A step in which many sessions decode differs from the step before in ids and positions alone. One message that fits
// struct plan reaches the ranks several times as soon as two messages.
struct plan_change {
    uint32_t at; // the word: its offset in the payload, divided by 4
    uint32_t value;
};

struct plan_open { // the engine_options that ranks need
    char build[BUILD_ID_DIGITS + 1];
    int32_t tp_size, pp_size, n_threads;
    int64_t timeout_us;
    enum weight_format weights;
    bool has_compute, deterministic, fp8_activations;
    char device[PLAN_DEVICE_BYTES], isa[32], compute_dtype[16], model_dir[PATH_MAX];
};

struct plan_size {
    enum dtype dtype; // of the cache
    int32_t block_tokens, n_blocks, n_groups;
    int32_t max_rows, max_logits; // as for forward_init
    int32_t n_host_blocks;        // parked blocks
};

struct rank_report {
    struct err err; // code 0: all is well
    char build[BUILD_ID_DIGITS + 1], host[64], fingerprint[40], backend[128];
    int64_t weight_bytes, weight_bytes_read;
    uint64_t block_bytes; // of a cache block; answer to PLAN_SIZE
};
