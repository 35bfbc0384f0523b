// @ts-check
// What opens beside or over the conversation, and the dashboard, with their style sheet. Loads late (late.js).
// @ts-expect-error its text, minified (build.mjs)
import style from '../style/late.css';

export { exportSession } from '../exports.js';
export { saveCode } from './code_file.js';
export { figures } from './dashboard.js';
export { openContinue } from './continue_panel.js';
export { importAll } from './import_panel.js';
export { inspect } from './inspector.js';
export { openManage } from './manage.js';
export { openMove, openRenameFolder } from './folder_panel.js';
export { quoteSelection } from './quote.js';
export { openPresets } from './presets.js';
export { openShare } from './share_panel.js';
export { openSettings } from './settings.js';
export { offer } from './slash.js';
export { showShared } from './shared.js';
export { openTree } from './tree.js';

const sheet = new CSSStyleSheet();
sheet.replaceSync(style);
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
