// Contexts of the browser that the tests of a process use one after the other, each test in tabs of its own. A new context with
// the page costs 1.4 s of processor time: its renderer process starts, compiles the page's script and reads fonts. A tab in
// a context that has a renderer process costs 0.7 s. What a test does to its tab (routes, scripts, size, a stopped clock)
// ends with the tab. What a test leaves in the context (storage, cookies, permissions) is removed behind the test;
// storage.test.mjs checks that. A test of opening itself asks for `fresh`, a context that has loaded nothing.

const VIEW = { width: 1280, height: 800 };
const MEDIA = ['colorScheme', 'reducedMotion', 'forcedColors'];
/** Options that a tab or a test takes for itself: with any other option a test gets a context of its own. */
const OF_TABS = new Set(['viewport', 'permissions', 'acceptDownloads', ...MEDIA]);
/** What a test does to a whole context and cannot be undone: the context ends with that test. */
const FOR_GOOD = ['addInitScript', 'exposeBinding', 'exposeFunction', 'route', 'routeFromHAR', 'routeWebSocket', 'setExtraHTTPHeaders', 'setGeolocation', 'setOffline'];

/** The contexts of one browser. */
export class Contexts {
  constructor(browser) {
    this.browser = browser;
    this.kept = []; // { context, anchor, devtools, origins, taken, spoiled }
  }

  /** @returns {Promise<{ context, done }>} done() ends the test's use of it */
  async take({ fresh, ...options }) {
    if (fresh || Object.keys(options).some((name) => !OF_TABS.has(name))) {
      const context = await this.browser.newContext({ viewport: VIEW, ...options });
      return { context, done: () => context.close() };
    }
    const { viewport = VIEW, permissions = [] } = options;
    let one = this.kept.find(({ taken }) => !taken);
    if (!one) this.kept.push((one = await this.#open()));
    one.taken = true;
    const { context } = one;
    context.dress = async (page) => {
      if (viewport.width !== VIEW.width || viewport.height !== VIEW.height) await page.setViewportSize(viewport);
      if (MEDIA.some((name) => name in options)) await page.emulateMedia(Object.fromEntries(MEDIA.map((name) => [name, options[name]])));
    };
    if (permissions.length) await context.grantPermissions(permissions);
    return { context, done: () => this.#clear(one) };
  }

  async #open() {
    const context = await this.browser.newContext({ viewport: VIEW });
    const one = { context, origins: new Set() };
    const seen = (page) => page.on('framenavigated', (frame) => /^http/.test(frame.url()) && one.origins.add(new URL(frame.url()).origin));
    context.on('page', seen);
    for (const name of FOR_GOOD) {
      const plain = context[name].bind(context);
      context[name] = (...args) => {
        one.spoiled = true;
        return plain(...args);
      };
    }
    return one;
  }

  /** Removes what a test left. The anchor, a tab without a script, keeps the renderer process between two tests,
   * also behind the end of the server that it was loaded from. Where it does not load, since the test's server has ended, the
   * context ends too. */
  async #clear(one) {
    const { context } = one;
    try {
      const tabs = context.pages().filter((page) => page !== one.anchor), last = [...one.origins].at(-1);
      if (one.spoiled || !(last || one.anchor)) throw new Error('not to be used again');
      if (!one.anchor) {
        one.anchor = await context.newPage();
        await one.anchor.goto(`${last}/healthz`, { timeout: 10000 });
        one.devtools = await context.newCDPSession(one.anchor);
      }
      await Promise.all(tabs.map((page) => page.close()));
      for (const origin of one.origins) await one.devtools.send('Storage.clearDataForOrigin', { origin, storageTypes: 'all' });
      one.origins.clear(); // each file has another server
      await context.clearCookies();
      await context.clearPermissions();
      one.taken = false;
    } catch {
      this.kept.splice(this.kept.indexOf(one), 1);
      await context.close();
    }
  }
}
