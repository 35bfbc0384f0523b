// Answers that go out in pieces: lists, exports, recorded turns and replays. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Takes an answer in pieces, or a job that gives them. Returns as a handler: 0, or E_NOMEM.
int streams_begin(struct sessions *ss, const struct request *r, struct stream *st);
int streams_begin_job(struct sessions *ss, const struct request *r, struct store_job *job);
// Sends the next piece of `a`, which has all of it. True: there is more.
bool streams_answer(struct sessions *ss, uint64_t client, struct session_answer *a);
void streams_answered(struct sessions *ss, uint64_t client, bool more); // a piece was sent
// A piece of a job was sent. True: the job is kept for the next piece; else the caller frees it.
bool streams_keep(struct sessions *ss, struct store_job *job);
void streams_continue(struct sessions *ss,
                      uint64_t client); // the client has room for the next piece
void streams_client_gone(struct sessions *ss, uint64_t client);
