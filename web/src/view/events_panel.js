// @ts-check
// The recorded events of a session, except tokens.
import { fetchCopies, fetchEvents } from '../debug.js';
import { h } from '../dom.js';
import { clock, count, day, duration } from '../format.js';
import { t } from '../text.js';
import { serverWord } from './server_words.js';

const NAMES = /** @type {Record<string, string>} */ ({
  opened: t('Chat opened'),
  updated: t('Settings changed'),
  rewound: t('Moved to a turn'),
  queued: t('Turn queued'),
  started: t('Turn started'),
  done: t('Turn finished'),
  evicted: t('Cache released'),
  parked: t('Cache parked'),
  closed: t('Chat closed'),
  lost: t('Tokens lost'),
});
const SOURCES = /** @type {Record<string, string>} */ ({
  host: t('cache restored from host memory'),
  snapshot: t('cache restored from a snapshot'),
  recomputed: t('cache recomputed'),
});

/** @param {import('../debug.js').SessionEvent} event */
function why({ reason, cache, forked_from: from }) {
  if (from) return t('copied from {0}{1}', from.session, from.turn === null ? '' : t(' up to turn {0}', from.turn));
  if (!cache) return reason ? serverWord(reason) : '';
  const source = t('{0} in {1}', SOURCES[cache.source] ?? cache.source, duration(cache.resume_ms));
  return cache.refused ? t('{0}; the snapshot was not used: {1}', source, cache.refused) : source;
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
  const note = h('p', { class: 'panel-text', role: 'status' }, t('Loading…'));
  const more = h(
    'button',
    { type: 'button', class: 'button small', hidden: true, onclick: () => load() },
    t('Earlier events'),
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
      h('th', { scope: 'row' }, t('Chat copied')),
      h('td', { class: 'number' }, String(copy.forked_from?.turn ?? '')),
      h('td', null, t('into '), h('a', { href: `#s=${encodeURIComponent(copy.id)}` }, copy.title || t('another chat'))),
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
      note.textContent = rows.childElementCount ? '' : t('No events recorded.');
      note.hidden = !note.textContent;
    } catch (error) {
      note.hidden = false;
      note.textContent = t("Couldn't load the events: {0}", error instanceof Error ? error.message : error);
    }
    more.disabled = false;
  }
  load();
  return [
    h('p', { class: 'panel-text' }, t('Events of this chat, newest last. Those of this turn are marked.')),
    more,
    h(
      'table',
      { class: 'events' },
      h(
        'thead',
        null,
        h('tr', null, ...[t('No.'), t('When'), t('What'), t('Turn'), t('Why')].map((name) => h('th', { scope: 'col' }, name))),
      ),
      rows,
    ),
    note,
  ];
}
