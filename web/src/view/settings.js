// @ts-check
// Settings of the current session, of new sessions, and of the page.
import { signOut, update } from '../actions.js';
import { h, setText } from '../dom.js';
import { count } from '../format.js';
import { enterSends, isWide, language, newSession, notifies, setEnterSends, setLanguage, setNewSession, setNotifies, setShortcutsOn, setTextSize, setTheme, setWide, shortcutsOn, textSize, theme } from '../prefs.js';
import { RequestError } from '../socket.js';
import { currentSession, model, nextModel, state, touch } from '../state.js';
import { LANGUAGES, t } from '../text.js';
import { openContinue } from './continue_panel.js';
import { openDialog } from './dialog.js';
import { FieldError, grid, makeField, MEMORY, samplingGrid, samplingRows } from './fields.js';
import { openManage } from './manage.js';
import { openPresets } from './presets.js';
import { serverWord } from './server_words.js';
import { openShortcuts } from './shortcuts.js';
import { tabbed } from './tabs.js';
import { toast } from '../notices.js';

/** @typedef {'session' | 'new' | 'page'} Tab */
const NAMES = /** @type {Record<Tab, string>} */ ({
  session: t('This chat'),
  new: t('New chats'),
  page: t('This page'),
});

/** @type {HTMLDialogElement | null} */
let open = null;

/** @param {Tab} [first] */
export function openSettings(first = 'session') {
  open?.close();
  const session = currentSession();
  /** @type {Tab[]} */
  const tabs = session ? ['session', 'new', 'page'] : ['new', 'page'];
  const { strip, panel, choose } = tabbed({
    name: t('Settings'),
    id: 'settings-panel',
    tabs: tabs.map((tab) => [tab, NAMES[tab]]),
    draw: (tab) =>
      tab === 'session' && session ? sessionPanel(session) : tab === 'new' ? newPanel() : pagePanel(),
  });
  const dialog = openDialog({
    title: t('Settings'),
    name: 'settings',
    body: [strip, panel],
    onClose: () => (open = null),
  });
  open = dialog;
  choose(tabs.includes(first) ? first : tabs[0], true);
}

/**
 * A form that is saved as a whole or not at all. An error is shown at its field.
 * @param {Node[]} content
 * @param {{fields: import('./fields.js').Field[], save: () => Promise<void> | void, clear: () => void}} how
 */
function form(content, { fields, save, clear }) {
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  /** @param {string} message */
  const fail = (message) => {
    problem.hidden = !message;
    setText(problem, message);
  };
  const saveButton = h('button', { type: 'submit', class: 'button primary' }, t('Save'));
  const element = h(
    'form',
    {
      noValidate: true,
      async onsubmit(/** @type {Event} */ event) {
        event.preventDefault();
        fail('');
        saveButton.disabled = true;
        try {
          await save();
          open?.close();
          toast(t('Settings saved.'));
        } catch (error) {
          const message = error instanceof Error ? error.message : String(error);
          const key = error instanceof RequestError || error instanceof FieldError ? error.key : '';
          const wrong = fields.find(({ row }) => row.key === key);
          if (error instanceof RequestError) wrong?.fail(message);
          const folded = wrong?.element.closest('details');
          if (folded) folded.open = true;
          fail(message);
        }
        saveButton.disabled = false;
      },
    },
    ...content,
    problem,
    h(
      'div',
      { class: 'dialog-actions' },
      h('button', { type: 'button', class: 'button quiet', onclick: clear }, t('Reset all')),
      h('span', { class: 'spacer' }),
      h('button', { type: 'button', class: 'button', onclick: () => open?.close() }, t('Cancel')),
      saveButton,
    ),
  );
  return [element];
}

/** The values set in fields, without those left to the server. @param {import('./fields.js').Field[]} fields */
function valuesOf(fields) {
  return Object.fromEntries(
    fields.map((field) => [field.row.key, field.get()]).filter(([, value]) => value !== undefined),
  );
}

/** @param {Record<string, any>} values @param {Record<string, any>} defaults */
function samplingFields(values, defaults) {
  return samplingRows(state.connection.sampling).map((row) => {
    const field = makeField(row, { fallback: defaults[row.key] });
    field.set(values[row.key]);
    return field;
  });
}

/** @param {import('../state.js').Session['prompt']} prompt */
function promptFacts(prompt) {
  if (!prompt) return [];
  return [[t('Prompt task'), t('{0}, {1} virtual tokens', prompt.task ?? t('a table of its own'), count(prompt.n_virtual))]];
}

/** @param {import('../state.js').Session} session */
function sessionPanel(session) {
  const fields = samplingFields(session.sampling, model(session.model)?.sampling ?? {});
  const facts = [
    [t('Model'), session.model],
    [t('Memory'), t('{0} tokens, {1} of them from the start', count(session.memory_len), session.sink_len)],
    [t('Chat length'), t('{0} tokens', count(session.session_len))],
    ...promptFacts(session.prompt),
    [t('State'), serverWord(session.state)],
    [t('Id'), session.id],
  ];
  return form(
    [
      h('h3', null, t('Sampling')),
      h(
        'p',
        { class: 'panel-text' },
        t("Empty fields use the server's values. Changes apply from the next message."),
      ),
      samplingGrid(fields),
      h('h3', null, t('Set when the chat was created')),
      h(
        'dl',
        { class: 'facts-list' },
        ...facts.flatMap(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
      ),
      h('h4', null, t('System prompt')),
      session.system
        ? h(
            'div',
            { class: 'system-shown', dir: 'auto', tabIndex: 0, role: 'group', 'aria-label': t('System prompt') },
            session.system,
          )
        : h('p', { class: 'panel-text' }, t('None.')),
      h('p', null, linkButton(t('Change the model or the system prompt'), () => openContinue())),
    ],
    {
      fields,
      async save() {
        // Values without a field, set by other clients, stay unchanged.
        const others = Object.entries(session.sampling).filter(
          ([key]) => !fields.some((field) => field.row.key === key),
        );
        await update(session.id, { sampling: { ...Object.fromEntries(others), ...valuesOf(fields) } });
      },
      clear: () => fields.forEach((field) => field.set(undefined)),
    },
  );
}

function newPanel() {
  const known = nextModel();
  const preset = newSession();
  const sampling = samplingFields(preset.sampling ?? {}, known?.sampling ?? {});
  const most = /** @type {Record<string, number | undefined>} */ ({
    memory_len: known?.max_memory_len,
    session_len: known?.max_session_len,
  });
  const memory = MEMORY.map((row) => {
    const field = makeField(row, { fallback: /** @type {any} */ (known)?.[row.key], max: most[row.key] });
    field.set(/** @type {any} */ (preset)[row.key]);
    return field;
  });
  const system = h('textarea', {
    id: 'field-system',
    rows: 4,
    placeholder: t('None'),
    value: preset.system ?? '',
    dir: 'auto',
  });
  return form(
    [
      h('h3', null, t('System prompt')),
      h(
        'label',
        { for: 'field-system', class: 'field-hint block' },
        t('Sent to the model before your first message.'),
      ),
      system,
      h('p', null, linkButton(t('Presets…'), openPresets)),
      h('h3', null, t('Memory')),
      grid(memory),
      h('h3', null, t('Sampling')),
      h('p', { class: 'panel-text' }, t("Empty fields use the server's values.")),
      samplingGrid(sampling),
    ],
    {
      fields: [...sampling, ...memory],
      save() {
        const lengths = /** @type {Record<string, number>} */ (valuesOf(memory));
        const window = lengths.memory_len ?? known?.memory_len ?? Infinity;
        if ((lengths.sink_len ?? known?.sink_len ?? 0) >= window)
          throw new Error(t('Tokens kept from the start must be smaller than Memory.'));
        const bytes = new TextEncoder().encode(system.value).length;
        const limit = state.connection.limits.system_bytes ?? Infinity;
        if (bytes > limit)
          throw new Error(t('System prompt too long: {0} bytes, at most {1}.', count(bytes), count(limit)));
        const set = valuesOf(sampling);
        setNewSession({
          ...lengths,
          ...(system.value.trim() ? { system: system.value } : {}),
          ...(Object.keys(set).length ? { sampling: set } : {}),
        });
        touch('prefs');
      },
      clear() {
        for (const field of [...sampling, ...memory]) field.set(undefined);
        system.value = '';
      },
    },
  );
}

/** Closes the settings for another dialog. @param {string} label @param {() => void} run */
const linkButton = (label, run) =>
  h(
    'button',
    {
      type: 'button',
      class: 'link-button',
      onclick() {
        open?.close();
        run();
      },
    },
    label,
  );

/**
 * A row of values of which one is chosen.
 * @param {string} legend @param {string} name @param {Array<[string, string]>} values each with its name @param {string} chosen @param {(value: string) => void} choose
 */
const choices = (legend, name, values, chosen, choose) =>
  h(
    'fieldset',
    { class: 'choices' },
    h('legend', null, legend),
    ...values.map(([value, word]) =>
      h(
        'label',
        { class: 'choice' },
        h('input', { type: 'radio', name, value, checked: chosen === value, onchange: () => choose(value) }),
        h('span', null, word),
      ),
    ),
  );

function pagePanel() {
  const enter = h('input', { type: 'checkbox', id: 'enter-sends', checked: enterSends(), onchange: () => setEnterSends(enter.checked) });
  const shortcuts = h('input', {
    type: 'checkbox',
    id: 'shortcuts-on',
    checked: shortcutsOn(),
    onchange: () => setShortcutsOn(shortcuts.checked),
  });
  const blocked = h('p', { class: 'panel-text', role: 'status', hidden: true }, t('The browser blocks notifications of this page.'));
  const notify = h('input', {
    type: 'checkbox',
    id: 'notifies',
    checked: notifies() && 'Notification' in window && Notification.permission === 'granted',
    async onchange() {
      // The browser asks the user, and only upon this click.
      const granted = !notify.checked || (await Notification.requestPermission()) === 'granted';
      blocked.hidden = granted;
      notify.checked &&= granted;
      setNotifies(notify.checked);
    },
  });
  const languages = h(
    'select',
    {
      id: 'language',
      onchange() {
        setLanguage(languages.value);
        location.reload(); // every view has its words from the start
      },
    },
    ...[['auto', t('As in the browser')], ...Object.entries(LANGUAGES)].map(([value, word]) => h('option', { value, selected: value === language() }, word)),
  );
  const { server, user } = state.connection;
  return [
    choices(t('Theme'), 'theme', [['auto', t('Auto')], ['light', t('Light')], ['dark', t('Dark')]], theme(), setTheme),
    choices(t('Text size'), 'text-size', [['small', t('Small')], ['normal', t('Normal')], ['large', t('Large')]], textSize(), setTextSize),
    choices(t('Chat width'), 'width', [['normal', t('Normal')], ['wide', t('Wide')]], isWide() ? 'wide' : 'normal', (value) => setWide(value === 'wide')),
    h('p', { class: 'language' }, h('label', { for: 'language' }, t('Language')), languages),
    h('h3', null, t('Keyboard')),
    h('label', { class: 'check' }, enter, h('span', null, t('Enter sends the message; otherwise Ctrl+Enter does'))),
    h(
      'label',
      { class: 'check' },
      shortcuts,
      h('span', null, t('Keyboard shortcuts (Esc always works)')),
    ),
    h(
      'p',
      null,
      linkButton(t('Show all shortcuts'), openShortcuts),
    ),
    ...('Notification' in window && isSecureContext
      ? [h('h3', null, t('Notifications')), h('label', { class: 'check' }, notify, h('span', null, t('When a long answer is done in the background'))), blocked]
      : []),
    ...(user.name ? [h('h3', null, t('Account')), h('p', null, t('Signed in as {0}{1}. ', user.name, user.admin ? t(', an administrator') : ''), linkButton(t('Sign out'), signOut))] : []),
    h('h3', null, t('Chats')),
    h('p', null, linkButton(t('Export or delete several'), openManage)),
    h('h3', null, t('About')),
    h(
      'p',
      { class: 'panel-text' },
      server ? `${server.name} ${server.version}. ` : '',
      h('a', { href: 'licenses.txt', target: '_blank', rel: 'noopener' }, t('Open-source licences')),
    ),
  ];
}
