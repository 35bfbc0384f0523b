// Recorded turns run again on the server's engine. Net thread only.
#pragma once
#include "sessions/state/service.h"

#define REPLAY_EDITED "a client wrote this answer: it was not sampled"
bool replays_has(const struct sessions *ss, uint64_t client); // one of this client's is under way
// REPLAY of a turn that was checked before. What it waits for comes by the two functions below.
int replays_start(struct session *s, const struct request *r);
void replays_read(struct sessions *ss, struct store_job *job);     // a part of the turn's path
void replays_prepared(struct sessions *ss, struct preparation *p); // its grammar
// Ends the client's replays of this session, with an answer.
void replays_cancel(struct sessions *ss, uint64_t client, int64_t key);
bool replays_engine_event(struct sessions *ss, const struct engine_event *e); // true: it was theirs
void replays_client_gone(struct sessions *ss,
                         uint64_t client);                   // ends the client's, without an answer
void replays_session_gone(struct sessions *ss, int64_t key); // ends the session's, with an error
void replays_drain(struct sessions *ss);                     // all end, with an error
void replays_free(struct sessions *ss); // when the service closes: without answers
