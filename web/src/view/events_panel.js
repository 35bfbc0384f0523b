// @ts-check
// The recorded events of a session, except tokens.
import { fetchCopies, fetchEvents } from '../debug.js';
import { h } from '../dom.js';
import { clock, count, day, duration } from '../format.js';

const NAMES = /** @type {Record<string, string>} */ ({
  opened: 'Session opened',
  updated: 'Settings changed',
  rewound: 'Moved to a turn',
  queued: 'Turn queued',
  started: 'Turn started',
  done: 'Turn finished',
  evicted: 'Cache released',
  parked: 'Cache parked',
  closed: 'Session closed',
  lost: 'Tokens lost',
});
const SOURCES = /** @type {Record<string, string>} */ ({
  host: 'cache restored from host memory',
  snapshot: 'cache restored from a snapshot',
  recomputed: 'cache recomputed',
});

/** @param {import('../debug.js').SessionEvent} event */
function why({ reason, cache, forked_from: from }) {
  if (from) return `copied from ${from.session}${from.turn === null ? '' : ` up to turn ${from.turn}`}`;
  if (!cache) return reason ?? '';
  const source = `${SOURCES[cache.source] ?? cache.source} in ${duration(cache.resume_ms)}`;
  return cache.refused ? `${source}; the snapshot was not used: ${cache.refused}` : source;
}

/** @param {number} ms */
const when = (ms) => h('td', null, h('span', { class: 'date' }, `${day(ms)}, `), clock(ms));

/** @param {string} session @param {number} turn the one looked at: its events are marked @returns {Node[]} */
export function eventsPanel(session, turn) {
  /** @type {number | undefined} */
  let first;
  /** @type {Array<{at: number, row: Element}>} oldest first */
  let shown = [];
  /** @type {import('../state.js').Session[] | undefined} of this session, and not among the rows yet */
  let copies;
  const rows = h('tbody', null);
  const note = h('p', { class: 'panel-text', role: 'status' }, 'Loading…');
  const more = h(
    'button',
    { type: 'button', class: 'button small', hidden: true, onclick: () => load() },
    'Earlier events',
  );

  /** @param {import('../debug.js').SessionEvent} event */
  const row = (event) =>
    h(
      'tr',
      { class: event.turn === turn ? 'of-turn' : undefined },
      h('td', { class: 'number' }, count(event.seq)),
      when(event.at_ms),
      h('th', { scope: 'row' }, NAMES[event.kind] ?? event.kind),
      h('td', { class: 'number' }, event.turn === undefined ? '' : String(event.turn)),
      h('td', null, why(event)),
    );

  /** @param {import('../state.js').Session} copy */
  const copyRow = (copy) =>
    h(
      'tr',
      null,
      h('td', null),
      when(copy.created_ms),
      h('th', { scope: 'row' }, 'Session copied'),
      h('td', { class: 'number' }, String(copy.forked_from?.turn ?? '')),
      h('td', null, 'into ', h('a', { href: `#s=${encodeURIComponent(copy.id)}` }, copy.title || 'another chat')),
    );

  // Forking is an event of the new session. It is shown here among the loaded events, by time.
  /** @param {number} from */
  function placeCopies(from) {
    for (const copy of copies ?? []) {
      if (copy.created_ms < from) continue;
      const at = shown.findIndex((other) => other.at > copy.created_ms);
      shown.splice(at < 0 ? shown.length : at, 0, { at: copy.created_ms, row: copyRow(copy) });
    }
    copies = copies?.filter((copy) => copy.created_ms < from);
  }

  async function load() {
    more.disabled = true;
    try {
      const page = await fetchEvents(session, first);
      copies ??= await fetchCopies(session);
      first = page.events[0]?.seq ?? first;
      shown = [...page.events.map((event) => ({ at: event.at_ms, row: row(event) })), ...shown];
      placeCopies(page.more ? (page.events[0]?.at_ms ?? -Infinity) : -Infinity);
      rows.replaceChildren(...shown.map((one) => one.row));
      more.hidden = !page.more || !page.events.length;
      note.textContent = rows.childElementCount ? '' : 'No events recorded.';
      note.hidden = !note.textContent;
    } catch (error) {
      note.hidden = false;
      note.textContent = `Couldn't load the events: ${error instanceof Error ? error.message : error}`;
    }
    more.disabled = false;
  }
  load();
  return [
    h('p', { class: 'panel-text' }, 'Events of this chat, newest last. Those of this turn are marked.'),
    more,
    h(
      'table',
      { class: 'events' },
      h(
        'thead',
        null,
        h('tr', null, ...['No.', 'When', 'What', 'Turn', 'Why'].map((name) => h('th', { scope: 'col' }, name))),
      ),
      rows,
    ),
    note,
  ];
}
