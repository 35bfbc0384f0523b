// The browser for the page's tests: $CHROMIUM, the system's, or, if the distribution has Chromium only as a snap
// (Ubuntu), npm's (chromium/, installed by tests/run.sh). The headless shell is Chromium without a browser's windows, as
// npm's is: a new context with a page costs it 0.4 s of processor time instead of 1.0.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

const SYSTEM = ['chromium-headless-shell', 'chromium', 'google-chrome', 'google-chrome-stable'];
const folders = (process.env.PATH ?? '').split(path.delimiter);
const installed = (names) => names.flatMap((name) => folders.map((folder) => path.join(folder, name))).filter(existsSync);

/** Firefox: $FIREFOX or the system's. A snap cannot read a profile in /tmp. @returns {string | undefined} */
export const firefoxPath = () =>
  process.env.FIREFOX || installed(['firefox-esr', 'firefox']).find((file) => !readFileSync(file, 'latin1').includes('/snap/bin'));

/** @returns {Promise<string>} */
export async function browserPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const system = installed(SYSTEM)[0];
  if (system) return system;
  const carried = new URL('chromium/node_modules/@sparticuz/chromium/build/index.js', import.meta.url);
  if (!existsSync(carried)) throw new Error('no Chromium found: install one, or name it in $CHROMIUM');
  const { default: chromium } = await import(carried.href);
  return (chromium.default ?? chromium).executablePath();
}
