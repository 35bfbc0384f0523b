// @ts-check
// The connection to the server: sends hello, matches answers to requests, detects silence, reconnects. It knows nothing
// of sessions: after a reconnect the caller attaches them again (onOpen).
import { asText } from './format.js';
import { errorText, t } from './text.js';

/**
 * @typedef {{need: number, at_least?: true, left: number, most: number}} Room
 *   In tokens, of session_full: what a request needs, what is left, what an empty session holds.
 * @typedef {{code: string, message: string, retry_after_ms?: number, key?: string, room?: Room}} Failure
 * @typedef {{message: any, key: string, fits?: (frame: any) => boolean, until?: string, again: boolean, timer: any,
 *   resolve: (frame: any) => void, reject: (failure: Failure) => void}} Request
 * @typedef {{url: string, token: () => string, onOpen: (hello: any) => void, onFrame: (frame: any) => void,
 *   onPhase: (phase: 'connecting' | 'waiting' | 'unauthorized', retryAt: number, message: string) => unknown}} Options
 */

const PING_MS = 20000; // silence before a ping
const SILENT_MS = 10000; // silence after it before reconnecting
const HELLO_MS = 10000;
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 8000;
const REQUEST_MS = 30000;

/** A failed request. */
export class RequestError extends Error {
  /** @param {Failure} failure */
  constructor(failure) {
    super(errorText(failure));
    this.code = failure.code;
    this.retryAfterMs = failure.retry_after_ms ?? 0;
    this.key = failure.key ?? ''; // the name of the wrong value
    this.room = failure.room;
    this.frame = failure;
  }
}

/** @param {any} message */
const encode = (message) => JSON.stringify(message, (_, value) => (typeof value === 'string' ? asText(value) : value));

/** The CRC-32 of zlib's. @param {Uint8Array} bytes */
function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/**
 * A balancer in front of several servers keeps a token on one of them. It cannot see ours, which is in the first message,
 * so the address has the six bits that it needs.
 * @param {string} url @param {string} token
 */
const addressOf = (url, token) => (token ? `${url}?affinity=${crc32(new TextEncoder().encode(token)) % 64}` : url);

/**
 * The server's hello, over a connection of its own: what it says may have changed since ours began.
 * @param {string} url @param {string} token @returns {Promise<any>} never settles where none comes
 */
export const askHello = (url, token) =>
  new Promise((resolve) => {
    const ws = new WebSocket(addressOf(url, token), 'parley.v1');
    ws.onopen = () => sayHello(ws, token);
    ws.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (frame.type === 'hello') resolve(frame);
      ws.close();
    };
  });

/** A socket that was closed before it opened may still tell that it has opened. @param {WebSocket} ws @param {string} token */
const sayHello = (ws, token) =>
  ws.readyState === WebSocket.OPEN && ws.send(JSON.stringify(token ? { type: 'hello', token } : { type: 'hello' }));

export class Socket {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    /** @type {WebSocket | null} */
    this.ws = null;
    this.ready = false;
    this.attempt = 0;
    this.counter = 0;
    // The server starts one turn for a request_id, on any connection. So ids must differ between pages.
    this.prefix = [...crypto.getRandomValues(new Uint8Array(6))]
      .map((b) => b.toString(16).padStart(2, '0'))
      .join('');
    /** @type {Map<string, Request>} */
    this.requests = new Map();
    /** @type {string[]} */
    this.outbox = []; // messages that wait for the server's rate limit
    this.allowance = 0;
    this.allowedAt = 0;
    this.rate = Infinity; // messages per second
    this.rateBytes = Infinity; // a message counts once more for each of them
    this.lastHeard = 0;
    this.stopped = false;
    /** @type {any} */
    this.timer = null;
    /** @type {any} */
    this.watch = null;
    /** @type {any} */
    this.pumping = null;
    addEventListener('online', () => this.retryNow());
    document.addEventListener('visibilitychange', () => {
      // A phone that slept does not notice that its connection is lost.
      if (document.hidden) return;
      if (this.ready) this.#ask();
      else this.retryNow();
    });
  }

  connect() {
    clearTimeout(this.timer);
    this.stopped = false;
    this.options.onPhase('connecting', 0, '');
    const ws = new WebSocket(addressOf(this.options.url, this.options.token()), 'parley.v1');
    this.ws = ws;
    this.lastHeard = performance.now();
    ws.onopen = () => this.ws === ws && sayHello(ws, this.options.token());
    ws.onmessage = (event) => this.ws === ws && this.#receive(event.data);
    ws.onclose = (event) => this.ws === ws && this.#closed(event.code, event.reason);
    clearInterval(this.watch);
    this.watch = setInterval(() => this.#checkSilence(), 1000);
  }

  /** Reconnects now instead of waiting. */
  retryNow() {
    if (this.stopped || this.ready || (this.ws && this.ws.readyState <= WebSocket.OPEN)) return;
    this.attempt = 0;
    this.connect();
  }

  /** Reconnects with another token. */
  restart() {
    this.#drop();
    this.attempt = 0;
    this.connect();
  }

  /**
   * Sends a message and waits for its answer.
   * @param {any} message
   * @param {{fits?: (frame: any) => boolean, until?: string, again?: boolean, signal?: AbortSignal}} [how] fits: an event
   *   that answers too; until: the type that answers in the end, however late, once another has said that it will; again:
   *   safe to send once more, so it outlives a lost connection; signal: takes it back, if it still waits for a connection
   * @returns {Promise<any>} rejects with RequestError
   */
  request(message, how = {}) {
    const key = message.request_id ?? `${this.prefix}-${++this.counter}`;
    return new Promise((resolve, reject) => {
      /** @type {Request} */
      const request = {
        key,
        message: { ...message, request_id: key },
        fits: how.fits,
        until: how.until,
        again: how.again ?? false,
        timer: null,
        resolve,
        reject: (failure) => reject(new RequestError(failure)),
      };
      if (!this.ready && !request.again)
        return request.reject({ code: 'disconnected', message: t('Not connected to the server.') });
      this.requests.set(key, request);
      how.signal?.addEventListener('abort', () => this.#fail(request, { code: 'cancelled', message: '' }));
      if (this.ready) this.#sendRequest(request);
    });
  }

  /** Sends a message that has no answer; drops it without a connection. @param {any} message */
  tell(message) {
    if (!this.ready) return;
    this.outbox.push(encode(message));
    this.#pump();
  }

  /** A request_id for the caller to choose. */
  newKey() {
    return `${this.prefix}-${++this.counter}`;
  }

  /** @param {Request} request */
  #sendRequest(request) {
    clearTimeout(request.timer);
    request.timer = setTimeout(
      () => this.#fail(request, { code: 'timeout', message: t('The server did not answer in time.') }),
      REQUEST_MS,
    );
    this.outbox.push(encode(request.message));
    this.#pump();
  }

  // The server names its rate limit and drops messages above it. The page stays below: at most one second's worth at
  // once.
  #pump() {
    clearTimeout(this.pumping);
    const now = performance.now();
    this.allowance =
      this.rate === Infinity
        ? Infinity
        : Math.min(this.rate, this.allowance + ((now - this.allowedAt) / 1000) * this.rate);
    this.allowedAt = now;
    // A connection that is closing would lose a message. Requests are sent again on the next one.
    while (this.ready && this.ws?.readyState === WebSocket.OPEN && this.outbox.length) {
      // A long message counts more than once. A UTF-16 unit is at most three bytes.
      const cost = Math.min(this.rate, 1 + Math.floor((this.outbox[0].length * 3) / this.rateBytes));
      if (this.allowance < cost) break;
      this.allowance -= cost;
      this.ws.send(/** @type {string} */ (this.outbox.shift()));
    }
    if (this.outbox.length) this.pumping = setTimeout(() => this.#pump(), 1000 / this.rate);
  }

  /** @param {Request} request @param {Failure} failure */
  #fail(request, failure) {
    clearTimeout(request.timer);
    this.requests.delete(request.key);
    request.reject(failure);
  }

  /** @param {string} data */
  #receive(data) {
    this.lastHeard = performance.now();
    const frame = JSON.parse(data);
    if (frame.type === 'hello') return this.#hello(frame);
    if (frame.type === 'pong') return undefined;
    if (frame.type === 'error' && frame.code === 'unauthorized') return this.#unauthorized(errorText(frame));
    if (frame.type === 'error' && frame.code === 'rate_limited')
      return this.#sendAgain(frame.request_id, frame.retry_after_ms ?? 1000);
    const request = this.#requestOf(frame);
    if (request) return this.#answer(request, frame);
    return this.options.onFrame(frame);
  }

  /** @param {any} frame */
  #requestOf(frame) {
    if (frame.request_id) return this.requests.get(frame.request_id);
    // The server read no request_id in what it could not parse.
    if (frame.type === 'error' && frame.code === 'bad_json' && this.requests.size === 1) return [...this.requests.values()][0];
    for (const request of this.requests.values()) if (request.fits?.(frame)) return request;
    return undefined;
  }

  /** @param {Request} request @param {any} frame */
  #answer(request, frame) {
    clearTimeout(request.timer);
    if (request.until && ![request.until, 'error'].includes(frame.type)) return;
    this.requests.delete(request.key);
    if (frame.type === 'error') {
      request.reject(frame);
    } else {
      // Updates the state before the awaiting code runs, because the next frame may depend on it.
      this.options.onFrame(frame);
      request.resolve(frame);
    }
  }

  // The server drops messages above its rate. For a long message it does not name the request: then every unanswered
  // request is sent again. Each of them is safe to send twice.
  /** @param {string | undefined} key @param {number} waitMs */
  #sendAgain(key, waitMs) {
    const { ws } = this;
    setTimeout(() => {
      if (this.ws !== ws) return;
      if (!key) this.outbox = [];
      for (const request of this.requests.values()) if (!key || request.key === key) this.#sendRequest(request);
    }, waitMs);
  }

  /** @param {any} frame */
  #hello(frame) {
    if (this.ready) return;
    this.ready = true;
    this.attempt = 0;
    this.rate = frame.limits?.messages_per_second ?? Infinity;
    this.rateBytes = frame.limits?.rate_bytes ?? Infinity;
    this.allowance = this.rate;
    this.allowedAt = performance.now();
    const waiting = [...this.requests.values()];
    this.options.onOpen(frame);
    for (const request of waiting) this.#sendRequest(request);
  }

  /** @param {string} message */
  #unauthorized(message) {
    this.#drop();
    this.stopped = true;
    this.options.onPhase('unauthorized', 0, message);
  }

  #ask() {
    if (this.ws?.readyState === WebSocket.OPEN) this.ws.send('{"type":"ping"}');
    this.pinged = performance.now();
  }

  #checkSilence() {
    const silent = performance.now() - this.lastHeard;
    if (!this.ready) {
      if (this.ws && silent > HELLO_MS) this.#closed(0, '');
    } else if (this.pinged && this.lastHeard < this.pinged) {
      if (performance.now() - this.pinged > SILENT_MS) this.#closed(0, '');
    } else if (silent > PING_MS) {
      this.#ask();
    }
  }

  #drop() {
    clearInterval(this.watch);
    clearTimeout(this.timer);
    const ws = this.ws;
    this.ws = null;
    this.ready = false;
    this.pinged = 0;
    this.outbox = [];
    ws?.close();
    for (const request of this.requests.values()) {
      clearTimeout(request.timer);
      if (!request.again)
        this.#fail(request, {
          code: 'disconnected',
          message: t('Connection lost before the server answered.'),
        });
    }
  }

  /** @param {number} code @param {string} reason */
  #closed(code, reason) {
    const wasReady = this.ready;
    this.#drop();
    const later = reason === 'limit_reached' || reason === 'rate_limited'; // the token may be right
    if (code === 4003 || (code === 1008 && !wasReady && !later)) return this.#unauthorized(reason);
    // Half of the wait is random, so that many pages do not reconnect at the same moment.
    const wait = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempt++) * (0.5 + Math.random() / 2);
    this.options.onPhase('waiting', Date.now() + wait, reason);
    this.timer = setTimeout(() => this.connect(), wait);
    return undefined;
  }
}
