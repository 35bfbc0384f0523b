// The store's and the workers' answers to requests that wait for them. Net thread only.
#pragma once
#include "sessions/state/service.h"

// The store's answers. Each runs the requests that waited for it; the caller frees the job.
void requests_saved(struct sessions *ss, struct store_job *job);
void requests_deleted(struct sessions *ss, struct store_job *job);
void requests_loaded(struct sessions *ss, struct store_job *job); // a session that was only on disk
void requests_paged(struct sessions *ss,
                    struct store_job *job);  // older turns of a session (history.h)
void requests_prepared(struct sessions *ss); // all results of workers that have come
