// Finds turns by what stateless clients know of them (told.h). Net thread only.
#pragma once
#include "sessions/state/service.h"

int match_start(struct sessions *ss, const struct request *r); // asks the store
void match_done(struct sessions *ss, struct store_job *job);   // what it found: answers the request
