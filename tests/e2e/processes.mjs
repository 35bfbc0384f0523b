// What the kernel and the log say of a server's processes. A server is whatever has a `process` and a `log`.
import { existsSync, readFileSync } from 'node:fs';

/** Resident memory, in bytes. */
export const residentBytes = (server) => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.process.pid}/status`, 'utf8'))?.[1]);
export const residentMib = (server) => residentBytes(server) / 1048576;
/** Whether the process runs: a zombie does not. */
export const isAlive = (pid) => existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
const started = (server, pattern) => [...server.log.matchAll(pattern)].map((match) => Number(match[1]));
/** The engine processes that the server has started, in order. */
export const engineProcesses = (server) => started(server, /engine\.process instance=\S* pid=(\d+)/g);
/** The ranks that the server has started, in order; its own rank is among them. */
export const ranksOf = (server) => started(server, /engine\.rank rank=\d+ pid=(\d+)/g);
