// Recorded turns run again on the server's engine. Net thread only.
#pragma once
#include "sessions/service.h"

#define REPLAY_EDITED "a client wrote this answer: it was not sampled"
bool replays_has(const struct sessions *ss, uint64_t client);
int replays_start(struct session *s, const struct request *r);     // the turn was checked before
void replays_read(struct sessions *ss, struct store_job *job);     // a part of its path
void replays_prepared(struct sessions *ss, struct preparation *p); // its grammar
void replays_cancel(struct sessions *ss, uint64_t client, int64_t key);       // of this session
bool replays_engine_event(struct sessions *ss, const struct engine_event *e); // true: it was theirs
void replays_client_gone(struct sessions *ss, uint64_t client);
void replays_session_gone(struct sessions *ss, int64_t key);
void replays_drain(struct sessions *ss); // all end, with an error
void replays_free(struct sessions *ss);
