// The state of KServe v2 between requests, and its models, for HTTP and gRPC. The models are those of
// FasterTransformer's Triton backend, whose clients work unchanged (README.md). Net thread only, except
// kserve_find_model.
#pragma once
#include "ws/kserve/infer_request.h"
#include "ws/kserve/sequences.h"

struct service;

struct kserve_stats { // of a model, since the start; times are sums over the n_done
    int64_t n_done, n_failed, done_us, queue_us, infer_us;
    int64_t last_ms; // wall clock: when the last one ended
};

struct kserve {
    struct sequences sequences;
    int n_infers; // running inferences that were accepted before the drain
    struct kserve_stats stats[INFER_MODELS]; // by enum infer_model
};

int kserve_open(struct kserve **out); // E_NOMEM
void kserve_close(struct kserve *k);  // after its exchanges have ended; NULL is fine

// Counts an inference that has ended; it arrived at begun_us and computed from started_us on.
void kserve_count(struct kserve *k, enum infer_model model, bool failed, int64_t begun_us,
                  int64_t started_us);

extern const char *const kserve_extensions[]; // of server metadata; ends with NULL

// Triton's extensions that Parley lacks. Clients get the same code as from a Triton without them.
enum kserve_lacking { LACKS_LOADING, LACKS_TRACING, LACKS_LOGGING, LACKS_REGIONS, KSERVE_LACKING };
struct kserve_absence {
    enum kserve_code code;
    const char *message;
};
extern const struct kserve_absence kserve_absences[KSERVE_LACKING];

// The model that a client calls `name`; version NULL or "": the newest. false: there is none. Any
// thread.
bool kserve_find_model(const struct service *s, const char *name, const char *version,
                       enum infer_model *out);
// The i-th model's name, for lists; NULL after the last one. Net thread.
const char *kserve_model_name(const struct service *s, size_t i);
// How long an inference's request may be (max_infer_bytes).
size_t kserve_infer_bytes(const struct service *s);
// The name for service_hold_model: NULL, the default model, for FasterTransformer's names.
const char *kserve_served_name(const char *name);
