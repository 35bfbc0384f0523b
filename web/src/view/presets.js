// @ts-check
// The library of presets: system prompts and sampling values under a name, kept in this browser, and as a JSON file.
import { update } from '../actions.js';
import { h, iconButton, setText } from '../dom.js';
import { download } from '../exports.js';
import { plainValue } from '../format.js';
import { presets, setPresets } from '../prefs.js';
import { currentSession, model, nextChat, setFresh, state } from '../state.js';
import { t } from '../text.js';
import { openContinue } from './continue_panel.js';
import { openDialog } from './dialog.js';
import { makeField, samplingRows } from './fields.js';
import { toast } from '../notices.js';

/** @typedef {import('../prefs.js').Preset} Preset */
const FORMAT = 'parley.presets';
const MAX_FILE = 1 << 20;
const MAX_NAME = 60;

/** The session shown, or the next one, gets the preset's values. @param {Preset} preset */
export async function usePreset({ name, system, sampling }) {
  const session = currentSession();
  if (!session) {
    setFresh({ ...state.fresh, system: system ?? state.fresh.system, sampling: sampling ?? state.fresh.sampling });
    toast(t('“{0}” is used for this chat.', name));
    return;
  }
  try {
    if (sampling) await update(session.id, { sampling: { ...session.sampling, ...sampling } });
  } catch (error) {
    toast(t("Couldn't use “{0}”: {1}", name, error instanceof Error ? error.message : error), 'error');
    return;
  }
  if (system && system !== (session.system ?? '')) openContinue({ system });
  else toast(t('“{0}” is used from the next message.', name));
}

/** A preset in a line: its values by the names of their fields, then its prompt. @param {Preset} preset */
export function described({ system, sampling }) {
  const labels = new Map(samplingRows(state.connection.sampling).map(({ key, label }) => [key, label]));
  return [...Object.entries(sampling ?? {}).map(([key, value]) => `${labels.get(key) ?? key} ${plainValue(value)}`), system].filter(Boolean).join(' · ');
}

/** What a file holds, or an error that says what is wrong. @param {string} text @returns {Preset[]} */
function parsed(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error(t('This file is not JSON.'));
  }
  if (file?.format !== FORMAT || !Array.isArray(file.presets)) throw new Error(t('This file holds no presets of Parley.'));
  return file.presets.map((/** @type {any} */ one, /** @type {number} */ i) => {
    const sampling = one?.sampling ?? undefined;
    if (typeof one?.name !== 'string' || !one.name.trim()) throw new Error(t('Preset {0} has no name.', i + 1));
    if (!['string', 'undefined'].includes(typeof one.system)) throw new Error(t('The system prompt of “{0}” is no text.', one.name));
    if (sampling !== undefined && (typeof sampling !== 'object' || Array.isArray(sampling))) throw new Error(t('The sampling values of “{0}” are no object.', one.name));
    return { name: one.name.trim().slice(0, MAX_NAME), ...(one.system ? { system: one.system } : {}), ...(sampling ? { sampling } : {}) };
  });
}

/** @param {Preset} preset in the place of the one of that name, or last */
function keep(preset, before = preset.name) {
  const list = presets().filter(({ name }) => name !== preset.name || name === before);
  const at = list.findIndex(({ name }) => name === before);
  if (at < 0) setPresets([...list, preset]);
  else setPresets(list.map((one, i) => (i === at ? preset : one)));
}

export function openPresets() {
  const body = h('div', { class: 'panel presets' });
  const dialog = openDialog({ title: t('Presets'), name: 'presets-dialog', body: [body] });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  const fail = (/** @type {unknown} */ error) => {
    problem.hidden = !error;
    setText(problem, error instanceof Error ? error.message : '');
  };

  function drawList() {
    fail(null);
    const rows = presets().map((preset) =>
      h(
        'li',
        { class: 'preset' },
        h(
          'button',
          {
            type: 'button',
            class: 'preset-use',
            onclick() {
              dialog.close();
              usePreset(preset);
            },
          },
          h('span', { class: 'preset-name', dir: 'auto' }, preset.name),
          h('span', { class: 'preset-text', dir: 'auto' }, described(preset)),
        ),
        iconButton('pencil', t('Edit {0}', preset.name), { onclick: () => drawForm(preset) }),
        iconButton('trash', t('Delete {0}', preset.name), {
          onclick() {
            setPresets(presets().filter(({ name }) => name !== preset.name));
            drawList();
            add.focus();
          },
        }),
      ),
    );
    const add = h('button', { type: 'button', class: 'button primary', onclick: () => drawForm(null) }, t('New preset'));
    body.replaceChildren(
      h('p', { class: 'panel-text' }, t('System prompts and sampling values under a name, kept in this browser. Type / in the message field to use one.')),
      rows.length ? h('ul', { class: 'preset-list' }, ...rows) : h('p', { class: 'panel-text' }, t('There are none yet.')),
      problem,
      h(
        'div',
        { class: 'dialog-actions' },
        h('button', { type: 'button', class: 'button quiet', onclick: importFile }, t('Import…')),
        rows.length > 0 && h('button', { type: 'button', class: 'button quiet', onclick: () => download('presets.json', 'application/json', `${JSON.stringify({ format: FORMAT, version: 1, presets: presets() }, null, 2)}\n`) }, t('Export')),
        h('span', { class: 'spacer' }),
        add,
      ),
    );
  }

  function importFile() {
    const input = h('input', {
      type: 'file',
      accept: '.json,application/json',
      async onchange() {
        const file = input.files?.[0];
        try {
          if (!file) return;
          if (file.size > MAX_FILE) throw new Error(t('This file is too large: 1 MiB at most.'));
          const list = parsed(await file.text());
          for (const preset of list) keep(preset);
          drawList();
        } catch (error) {
          fail(error);
        }
      },
    });
    input.click();
  }

  /** @param {Preset | null} preset null: a new one, with the values in use */
  function drawForm(preset) {
    const session = currentSession();
    const inUse = session
      ? { system: session.system ?? '', sampling: session.sampling }
      : nextChat();
    const values = preset ?? inUse;
    const name = h('input', { id: 'preset-name', type: 'text', value: preset?.name ?? '', maxLength: MAX_NAME, autocomplete: 'off', required: true });
    const system = h('textarea', { id: 'preset-system', rows: 5, dir: 'auto', placeholder: t('None'), value: values.system ?? '' });
    const fields = samplingRows(state.connection.sampling).map((row) => {
      const field = makeField(row, { fallback: /** @type {any} */ (model(session?.model)?.sampling)?.[row.key] });
      field.set(/** @type {any} */ (values.sampling)?.[row.key]);
      return field;
    });
    function save() {
      const called = name.value.trim();
      if (!called) throw new Error(t('Give the preset a name.'));
      if (called !== preset?.name && presets().some((one) => one.name === called)) throw new Error(t('There is a preset “{0}” already.', called));
      const set = Object.fromEntries(fields.map((field) => [field.row.key, field.get()]).filter(([, value]) => value !== undefined));
      const text = system.value.trim();
      if (!text && !Object.keys(set).length) throw new Error(t('A preset needs a system prompt or a sampling value.'));
      keep({ name: called, ...(text ? { system: text } : {}), ...(Object.keys(set).length ? { sampling: set } : {}) }, preset?.name);
    }
    fail(null);
    body.replaceChildren(
      h(
        'form',
        {
          noValidate: true,
          onsubmit(/** @type {Event} */ event) {
            event.preventDefault();
            try {
              save();
              drawList();
            } catch (error) {
              fail(error);
            }
          },
        },
        h('label', { for: 'preset-name', class: 'field-label block' }, t('Name')),
        name,
        h('label', { for: 'preset-system', class: 'field-label block' }, t('System prompt')),
        system,
        h('details', { open: !!preset?.sampling }, h('summary', null, t('Sampling')), h('div', { class: 'fields' }, ...fields.map(({ element }) => element))),
        problem,
        h(
          'div',
          { class: 'dialog-actions' },
          h('span', { class: 'spacer' }),
          h('button', { type: 'button', class: 'button', onclick: drawList }, t('Cancel')),
          h('button', { type: 'submit', class: 'button primary' }, t('Save')),
        ),
      ),
    );
    name.focus();
  }
  drawList();
}
