// @ts-check
// What opens beside or over the conversation, and the dashboard. Loads late (late.js).
export { figures } from './dashboard.js';
export { inspect } from './inspector.js';
export { openSettings } from './settings.js';
export { openTree } from './tree.js';
