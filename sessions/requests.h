// The store's and the workers' answers to requests that wait for them. Net thread only.
#pragma once
#include "sessions/service.h"

void requests_saved(struct sessions *ss, struct store_job *job);
void requests_deleted(struct sessions *ss, struct store_job *job);
void requests_loaded(struct sessions *ss, struct store_job *job);
void requests_paged(struct sessions *ss, struct store_job *job);
void requests_prepared(struct sessions *ss); // the workers' results
