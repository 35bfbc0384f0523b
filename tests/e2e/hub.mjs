// A hub of our own: the answers of Hugging Face's API as its documentation has them, over repositories in memory. Large
// files (at least `largeBytes`) are redirected to a second origin, as the hub does with its storage. A test changes one
// answer by a rule.
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import path from 'node:path';
import { afterwards } from './harness.mjs';

const hex = (algorithm, ...parts) => parts.reduce((hash, part) => hash.update(part), createHash(algorithm)).digest('hex');
const gitHash = (bytes) => hex('sha1', `blob ${bytes.length}\0`, bytes);
export const sha256 = (bytes) => hex('sha256', bytes);

/** The files of a folder, as Hub's `files`. */
export function filesOf(folder) {
  const files = {};
  for (const name of readdirSync(folder, { recursive: true }))
    if (statSync(path.join(folder, name)).isFile()) files[name] = readFileSync(path.join(folder, name));
  return files;
}

const listen = (handler, tls) => new Promise((resolve) => {
  const server = (tls ? https.createServer(tls, handler) : http.createServer(handler)).listen(0, '127.0.0.1', () => resolve(server));
});
const originOf = (server) => `${server instanceof https.Server ? 'https' : 'http'}://127.0.0.1:${server.address().port}`;

/** What a Range header asks for, as [from, to]: null without one. */
function rangeOf(request, size) {
  const m = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  return m ? [Number(m[1]), m[2] === '' ? size - 1 : Math.min(Number(m[2]), size - 1)] : null;
}

/** Sends bytes, or the part that is asked for. { ranges: false } ignores the question, as some hosts do. */
export function sendBytes(request, response, bytes, { ranges = true, headers = {} } = {}) {
  const range = ranges ? rangeOf(request, bytes.length) : null;
  if (range && range[0] >= bytes.length) {
    response.writeHead(416, { 'content-range': `bytes */${bytes.length}` }).end();
  } else if (range) {
    const part = bytes.subarray(range[0], range[1] + 1);
    response.writeHead(206, { ...headers, 'content-length': part.length, 'content-range': `bytes ${range[0]}-${range[1]}/${bytes.length}` });
    response.end(part);
  } else {
    response.writeHead(200, { ...headers, 'content-length': bytes.length }).end(bytes);
  }
}

export class Hub {
  requests = []; // { method, url, range, authorization, store }, in order of arrival
  rules = []; // (request, response, { store, file }) => true when it has answered

  static async start(t, repos = {}, { largeBytes = 1 << 20, tls } = {}) {
    const hub = new Hub();
    hub.largeBytes = largeBytes;
    hub.repos = new Map();
    for (const [name, repo] of Object.entries(repos)) hub.put(name, repo);
    hub.main = await listen((request, response) => hub.#answer(request, response, false), tls);
    hub.store = await listen((request, response) => hub.#answer(request, response, true), tls);
    hub.url = originOf(hub.main);
    hub.storeUrl = originOf(hub.store);
    afterwards(t, () => {
      for (const server of [hub.main, hub.store]) {
        server.close();
        server.closeAllConnections();
      }
    });
    return hub;
  }

  /** { files: { path: Buffer | text }, branches: { name: commit }, token, gated }; without a commit one is made. */
  put(name, { files, commit = randomBytes(20).toString('hex'), branch = 'main', token, gated = false }) {
    const before = this.repos.get(name) ?? { branches: {}, commits: {} };
    const entries = Object.entries(files).map(([file, content]) => {
      const bytes = Buffer.from(content);
      const large = bytes.length >= this.largeBytes;
      return [file, { path: file, bytes, large, oid: gitHash(bytes), sha256: large ? sha256(bytes) : null }];
    });
    before.branches[branch] = commit;
    before.commits[commit] = new Map(entries);
    this.repos.set(name, { ...before, token, gated });
    return commit;
  }

  /** Settings of a process that uses this hub and this cache. */
  env(home) {
    return { HF_HOME: home, HF_ENDPOINT: this.url, HF_HUB_CACHE: '', HF_TOKEN: '', HF_HUB_OFFLINE: '', no_proxy: '127.0.0.1' };
  }

  count(pattern) {
    return this.requests.filter(({ url }) => pattern.test(url)).length;
  }

  #answer(request, response, store) {
    const { method, url, headers } = request;
    this.requests.push({ method, url, range: headers.range, authorization: headers.authorization, store });
    const file = this.#fileOf(url, store);
    for (const rule of this.rules) if (rule(request, response, { store, file })) return;
    if (store) this.#send(request, response, file);
    else this.#route(request, response, file);
  }

  #fileOf(url, store) {
    const parts = decodeURIComponent(new URL(url, 'http://x').pathname).split('/').slice(1);
    const [name, rest] = [parts.slice(0, 2).join('/'), parts.slice(2)];
    const repo = this.repos.get(name);
    if (!repo || rest.shift() !== (store ? 'stored' : 'resolve')) return null;
    const revision = rest.shift();
    const files = repo.commits[repo.branches[revision] ?? revision];
    return files?.get(rest.join('/')) ?? null;
  }

  #send(request, response, file) {
    if (file) sendBytes(request, response, file.bytes, { headers: { etag: `"${file.sha256 ?? file.oid}"` } });
    else this.refuse(response, 404, 'EntryNotFound', 'Entry not found');
  }

  refuse(response, status, code, message, headers = {}) {
    response.writeHead(status, { ...(code && { 'x-error-code': code }), ...(message && { 'x-error-message': message }), ...headers });
    response.end(JSON.stringify({ error: message }));
  }

  #route(request, response, file) {
    const { pathname } = new URL(request.url, this.url);
    const api = /^\/api\/models\/([^/]+\/[^/]+)\/(revision|tree|paths-info)\/([^/]+)$/.exec(pathname);
    const page = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\//.exec(pathname);
    const name = (api ?? page)?.[1], repo = this.repos.get(name);
    const authorized = !repo?.token || request.headers.authorization === `Bearer ${repo.token}`;
    if (!repo || (!authorized && !repo.gated)) {
      this.refuse(response, 401, 'RepoNotFound', 'Repository not found');
    } else if (api) {
      this.#api(request, response, repo, name, api[2], decodeURIComponent(api[3]));
    } else if (!authorized) {
      const message = `Access to model ${name} is restricted. You must have access to it and be authenticated to access it. Please log in.`;
      this.refuse(response, request.headers.authorization ? 403 : 401, 'GatedRepo', message);
    } else if (!file?.large) {
      if (file) sendBytes(request, response, file.bytes, { headers: { etag: `"${file.oid}"` } });
      else this.#send(request, response, null);
    } else {
      response.writeHead(302, { location: `${this.storeUrl}${pathname.replace('/resolve/', '/stored/')}?signature=1`,
        'x-linked-etag': `"${file.sha256}"`, 'x-linked-size': file.bytes.length });
      response.end();
    }
  }

  #api(request, response, repo, name, what, revision) {
    const commit = repo.branches[revision] ?? revision, files = repo.commits[commit];
    if (!files) return this.refuse(response, 404, 'RevisionNotFound', `Invalid rev id: ${revision}`);
    const entry = ({ path: file, bytes, large, oid, sha256: hash }) => ({ type: 'file', path: file, oid, size: bytes.length,
      ...(large && { lfs: { oid: hash, size: bytes.length, pointerSize: 130 } }), lastCommit: { id: commit, title: '', date: new Date(0) } });
    const sibling = ({ path: file, bytes, large, oid, sha256: hash }) => ({ rfilename: file, size: bytes.length, blobId: oid,
      ...(large && { lfs: { sha256: hash, size: bytes.length, pointerSize: 130 } }) });
    const json = (value) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    if (what === 'revision')
      return json({ _id: '1', id: name, modelId: name, private: false, gated: repo.gated ? 'auto' : false, tags: ['gguf'], downloads: 1, likes: 0,
        lastModified: new Date(0), sha: commit, siblings: [...files.values()].map(sibling) });
    if (what === 'tree') return json([...files.values()].map(entry));
    let body = '';
    request.on('data', (piece) => { body += piece; });
    return request.on('end', () => json(JSON.parse(body).paths.filter((file) => files.has(file)).map((file) => entry(files.get(file)))));
  }
}
