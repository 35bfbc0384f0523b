// @ts-check
// Copying. The clipboard API exists on secure origins only; plain http to another machine needs execCommand.

/** @param {string} text @param {string} [html] for what takes formatted text @returns {Promise<boolean>} whether it worked */
export async function copyText(text, html) {
  try {
    const as = (/** @type {string} */ type, /** @type {string} */ content) => ({ [type]: new Blob([content], { type }) });
    if (html && 'ClipboardItem' in window) await navigator.clipboard.write([new ClipboardItem({ ...as('text/plain', text), ...as('text/html', html) })]);
    else await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    const focused = document.activeElement;
    area.value = text;
    area.className = 'visually-hidden';
    area.setAttribute('aria-hidden', 'true');
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}
