// @ts-check
// Short messages that the code says and view/toasts.js shows: what says one does not import a view.

/** @typedef {{label: string, run: () => void, ms: number}} Offer offered for so long */
/** @typedef {(message: string, kind?: 'info' | 'error' | 'here', offer?: Offer) => void} Show here: of the chat that is shown */

/** @type {Show} */
let show = () => {};
/** @param {Show} view */
export const onToast = (view) => (show = view);
/** @type {Show} */
export const toast = (message, kind, offer) => show(message, kind, offer);
