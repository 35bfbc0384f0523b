// @ts-check
// The token is kept for a tab alone. A tab that is opened beside it asks the others, and a sign-out reaches all of them.
import { token } from './prefs.js';

const WAIT_MS = 300;

const channel = new BroadcastChannel(`parley.token ${location.pathname}`);
/** @type {(token: string) => void} */
let answered = () => {};
let signedOut = () => {};

channel.addEventListener('message', ({ data }) => {
  if (data === 'ask' && token()) channel.postMessage({ token: token() });
  else if (data === 'out') signedOut();
  else if (typeof data?.token === 'string') answered(data.token);
});

/** The token of another tab of this page; '' where none has one. @returns {Promise<string>} */
export const tokenOfOthers = () =>
  new Promise((resolve) => {
    answered = resolve;
    setTimeout(resolve, WAIT_MS, '');
    channel.postMessage('ask');
  });

export const signOutOthers = () => channel.postMessage('out');
/** @param {() => void} job when another tab signs out */
export const onSignedOut = (job) => (signedOut = job);
