// What the kernel and the log say of a server's processes. A server is whatever has a `process` and a `log`.
import { readdirSync, readFileSync } from 'node:fs';

/** Resident memory, in bytes. */
export const residentBytes = (server) => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.process.pid}/status`, 'utf8'))?.[1]);
export const residentMib = (server) => residentBytes(server) / 1048576;
const textOf = (file) => { try { return readFileSync(`/proc/${file}`, 'latin1'); } catch { return ''; } };
/** Whether the process runs: a zombie does not. It may end between any two looks at it. */
export const isAlive = (pid) => /\) [^Z] /.test(textOf(`${pid}/stat`));
const started = (server, pattern) => [...server.log.matchAll(pattern)].map((match) => Number(match[1]));
/** The engine processes that the server has started, in order. */
export const engineProcesses = (server) => started(server, /engine\.process instance=\S* pid=(\d+)/g);
/** The ranks that the server has started, in order; its own rank is among them. */
export const ranksOf = (server) => started(server, /engine\.rank rank=\d+ pid=(\d+)/g);

const threadsOf = (pid) => { try { return readdirSync(`/proc/${pid}/task`); } catch { return []; } };
/** The engine processes that live, also those that the log does not have yet. One that is stopped before its exec would stop the
 * thread that starts it (vfork). */
export const livingEngines = (server) => threadsOf(server.process.pid)
  .flatMap((thread) => textOf(`${server.process.pid}/task/${thread}/children`).split(' ').filter(Boolean).map(Number))
  .filter((pid) => textOf(`${pid}/cmdline`) === 'parley\0engine\0');
