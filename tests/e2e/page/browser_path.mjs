// The browser for the page's tests: $CHROMIUM, the system's, or, if the distribution has Chromium only as a snap
// (Ubuntu), npm's (chromium/, installed by tests/run.sh).
import { existsSync } from 'node:fs';
import path from 'node:path';

const SYSTEM = ['chromium', 'google-chrome', 'google-chrome-stable'];
const folders = (process.env.PATH ?? '').split(path.delimiter);

/** @returns {Promise<string>} */
export async function browserPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const system = SYSTEM.flatMap((name) => folders.map((folder) => path.join(folder, name))).find(existsSync);
  if (system) return system;
  const carried = new URL('chromium/node_modules/@sparticuz/chromium/build/index.js', import.meta.url);
  if (!existsSync(carried)) throw new Error('no Chromium found: install one, or name it in $CHROMIUM');
  const { default: chromium } = await import(carried.href);
  return (chromium.default ?? chromium).executablePath();
}
