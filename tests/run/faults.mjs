// Faults for tests/plant: [name, file, text that occurs once in it, what stands there instead, tests that find it].
// Each is one that a person might write: a bound off by one, a condition turned, a line forgotten.
export const faults = [
  // --- sampler
  ['penalty-sign', 'engine/run/sampler.c', 'l < 0 ? l * p->repetition_penalty : l / p->repetition_penalty', 'l / p->repetition_penalty', 'unit/sampler unit/sampler_edges'],
  ['frequency-once', 'engine/run/sampler.c', 'p->frequency_penalty * (float)count', 'p->frequency_penalty', 'unit/sampler unit/sampler_edges'],
  ['bias-replaces', 'engine/run/sampler.c', '-INFINITY : x[b->id] + b->bias;', '-INFINITY : b->bias;', 'unit/sampler unit/sampler_edges'],
  ['min-tokens-late', 'engine/run/sampler.c', 's->n_generated < s->params->min_tokens &&', 's->n_generated <= s->params->min_tokens &&', 'unit/sampler unit/sampler_edges'],
  ['bad-word-whole', 'engine/run/sampler.c', 'return log_ends_with(s, ids, n - 1) ? ids[n - 1] : -1;', 'return log_ends_with(s, ids, n) ? ids[n - 1] : -1;', 'unit/sampler unit/sampler_edges'],
  ['top-k-one-less', 'engine/run/nucleus.c', 'for (; p.count < k; p.count++)', 'for (; p.count < k - 1; p.count++)', 'unit/sampler unit/sampler_edges'],
  ['top-p-all', 'engine/run/nucleus.c', '(double)p * nu->kept.mass, false)', 'nu->kept.mass, false)', 'unit/sampler unit/sampler_edges'],
  ['decayed-top-p', 'engine/run/sampler.c', 'if (id == p->top_p_reset_ids)', 'if (id != p->top_p_reset_ids)', 'unit/sampler unit/sampler_edges'],
  // --- stop strings
  ['stop-shortest', 'engine/text/stop_matcher.c', 'm->lens[best] >= len', 'm->lens[best] <= len', 'unit/stop_matcher'],
  ['stop-held-short', 'engine/text/stop_matcher.c', 'while (n > best && !window_equals', 'while (n > best + 1 && !window_equals', 'unit/stop_matcher'],
  ['stop-given-whole', 'engine/text/stop_matcher.c', 'window_give(&w, end - m->lens[i], out)', 'window_give(&w, end, out)', 'unit/stop_matcher'],
  ['stop-flush-twice', 'engine/text/stop_matcher.c', '    m->n_held = 0;\n    return rc;', '    return rc;', 'unit/stop_matcher'],
  // --- the tree of turns
  ['tree-unlink-count', 'sessions/state/tree.c', '    c->n--;\n', '', 'unit/sessions_tree unit/sessions_tree_faults unit/sessions_memory golden/sessions_tree'],
  ['tree-path-stays', 'sessions/state/tree.c', '    mark(s, to, shared, true);\n    s->n_log = n;', '    s->n_log = n;', 'unit/sessions_tree golden/sessions_tree'],
  ['tree-newest-any', 'sessions/state/tree.c', 'if (!under || turn_was_erased', 'if (turn_was_erased', 'unit/sessions_tree golden/sessions_tree'],
  // --- save
  ['save-tokens-all-new', 'sessions/saving/save.c', 't->n_saved = (size_t)save->turns[i].tokens.first + save->turns[i].tokens.n;', 't->n_saved = save->turns[i].tokens.n;', 'unit/sessions_faults golden/sessions_resume'],
  ['save-answers-early', 'sessions/saving/save.c', 'if (p->seq > s->saved_seq) continue;', '', 'unit/sessions_poll'],
  ['save-no-retry', 'sessions/saving/save.c', 'save_wanted(s) ? service_now(s->service) + backoff(s->n_failures) : 0', '0', 'unit/sessions_faults unit/sessions'],
  ['save-undo-forgotten', 'sessions/saving/save.c', '        DL_DELETE(s->pending, p);\n        undo(s, p);\n', '        DL_DELETE(s->pending, p);\n', 'unit/sessions_faults unit/sessions_tree_faults'],
  // --- the rule of the window, the ring, the pool
  ['window-one-short', 'kvcache/ring.c', 'oldest = t - r->reach[g].run + 1;', 'oldest = t - r->reach[g].run + 2;', 'unit/ring unit/positions golden/invariants'],
  ['ring-slot-less', 'kvcache/ring.c', '(run + s->block_tokens - 2) / s->block_tokens + 1,', '(run + s->block_tokens - 2) / s->block_tokens,', 'unit/ring'],
  ['ring-name-kept', 'kvcache/ring.c', 'if (r->blocks[slot] >= 0) kv_names_drop(&r->pool->names, r->blocks[slot]);', '', 'unit/ring unit/share golden/sharing'],
  ['ring-truncate-keeps', 'kvcache/ring.c', 'for (int64_t l = ceil_div(n, block); l <= (r->n_tokens - 1) / block; l++)', 'for (int64_t l = ceil_div(n, block) + 1; l <= (r->n_tokens - 1) / block; l++)', 'unit/ring'],
  ['pool-extra', 'kvcache/pool.c', '        p->n_extra--;\n', '', 'unit/pool unit/ring unit/share'],
  // --- scheduler
  ['sched-places', 'engine/run/scheduler.c', 's->n_places + places_of(t) > s->max_running ||', 's->n_places + places_of(t) > s->max_running + 1 ||', 'unit/scheduler'],
  ['sched-reserve-kept', 'engine/run/scheduler.c', '    s->n_reserved -= t->reserve;\n', '', 'unit/scheduler'],
  ['fair-order', 'engine/run/fair.c', 'return a->n_held < b->n_held;', 'return a->n_held > b->n_held;', 'unit/fair unit/scheduler'],
  // --- protocol and events
  ['event-seq', 'sessions/state/event_log.c', 'return last->seq + last->n - 1;', 'return last->seq;', 'unit/sessions unit/sessions_turns unit/replay'],
  ['protocol-two-inputs', 'ws/parley/protocol.c', '!!content + !!raw + !!ids + go_on != 1', '!!content + !!raw + !!ids + go_on < 1', 'unit/protocol'],
  ['protocol-get-both', 'ws/parley/protocol.c', 'if (d->r->before >= 0 && d->r->attach)', 'if (d->r->before > 0 && d->r->attach)', 'unit/protocol'],
  ['utf8-surrogate', 'base/utf8.c', 'if (lead == 0xed) high = 0x9f;', '', 'unit/utf8'],
  ['rate-burst', 'base/rate.c', 'if (r->tokens > l->burst) r->tokens = l->burst;', '', 'unit/rate'],
  // --- files of models
  ['iq-sign-parity', 'engine/gguf/block_iq.c', 'return seven | (uint32_t)__builtin_parity(seven) << 7;', 'return seven | (uint32_t)!__builtin_parity(seven) << 7;', 'unit/block_iq'],
  ['gguf-arrays-kept', 'engine/gguf/gguf.c', 'const bool kept = h->long_arrays && h->kept;', 'const bool kept = h->long_arrays;', 'unit/gguf'],
  ['auto-round-zeros', 'engine/model/packed_format.c', '{"auto_round", PACKED_GPTQ_V2}', '{"auto_round", PACKED_GPTQ}', 'unit/packed_tensors'],
  // --- folders, and a START that opens or forks
  ['folder-first-stays', 'sessions/saving/save.c', 'if (p->folder_changed) {', 'if (p->folder_changed && p->folder) {', 'unit/folders'],
  ['folder-fork-keeps', 'sessions/requests/fork.c', '    free(rec->folder);\n    rec->folder = NULL;\n', '', 'unit/folders'],
  ['start-fork-closed', 'sessions/requests/requests.c', '(session_is_busy(s) || s->rec.closed_ms || session_is_closing(s))', 'session_is_busy(s)', 'unit/sessions_for_turn'],
  ['start-new-stays', 'sessions/requests/requests.c', '    open.for_turn = true;\n', '', 'unit/sessions_for_turn'],
  // --- gRPC's tunnel
  ['goaway-last-call', 'ws/net/goaway.c', 'g->drops = g->state == GOAWAY_SENT && stream > g->last;', 'g->drops = g->state == GOAWAY_SENT && stream >= g->last;', 'unit/goaway'],
  ['goaway-in-headers', 'ws/net/goaway.c', 'g->in_headers = headers && !(f->head[4] & END_HEADERS);', 'g->in_headers = false;', 'unit/goaway'],
  ['goaway-no-window', 'ws/net/goaway.c', 'if (g->drops && h[3] == TYPE_DATA) g->dropped += g->in.body_left;', '', 'unit/goaway'],
  ['tunnel-late-goaway', 'ws/net/goaway.c', "if (g->state == GOAWAY_WANTED && g->in.n_head == 0) {", "if (g->state == GOAWAY_WANTED) {", 'unit/goaway e2e/grpc_closing'],
  // --- the page
  ['page-folder-pins', 'web/src/state.js', 'one?.pinned ? 0 : one?.folder ? 1 : 2', 'one?.pinned || one?.folder ? 0 : 2', 'page/folders'],
  ['page-folder-reopens', 'web/src/prefs.js', "write('closed-folders', closed ? [", "write('closed-folders', !closed ? [", 'page/folders'],
  ['page-old-folders', 'web/src/actions.js', 'for (const which of [{ pinned: true }, { in_folder: true }])', 'for (const which of [{ pinned: true }])', 'page/folders'],
];
