// A small disk that a test fills.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import { afterwards, temporaryFolder } from './harness.mjs';

/** A file system of a few megabytes, or a reason why there is none. */
export function smallDisk(t, size = '2m') {
  const folder = temporaryFolder(t);
  afterwards(t, () => spawnSync('umount', ['-l', folder])); // the last cleanup runs first: before the folder is removed
  return spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', folder]).status === 0 ? folder : null;
}

/** Writes until nothing more fits; the file that does it. */
export function fillDisk(disk) {
  const ballast = path.join(disk, 'ballast');
  const fill = openSync(ballast, 'w');
  try { for (;;) writeSync(fill, Buffer.alloc(4096)); } catch (error) { assert.equal(error.code, 'ENOSPC'); }
  closeSync(fill);
  return ballast;
}
