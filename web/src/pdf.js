// @ts-check
// The text of PDF files, by pdf.js: a part of its own, loaded with the first such file. It works on this thread, page by
// page: a worker would need a script address that the content policy does not allow.
import { getDocument } from 'pdfjs-dist/legacy/build/pdf.mjs';
// @ts-expect-error it has no types
import * as worker from 'pdfjs-dist/legacy/build/pdf.worker.mjs';

/** @type {any} */ (globalThis).pdfjsWorker = worker; // pdf.js takes it in place of a worker

const PAGES = 2000;

/** @param {any[]} items of a page, in their order */
function joinItems(items) {
  let text = '';
  for (const { str, hasEOL } of items) text += (str ?? '') + (hasEOL ? '\n' : '');
  return text.trim();
}

/**
 * @param {Uint8Array} bytes
 * @param {typeof import('./text.js').t} t not imported: text.js would be a chunk of its own, of half a kB
 * @returns {Promise<string>} rejects with a sentence for the user
 */
export async function textOfPdf(bytes, t) {
  const task = getDocument({ data: bytes, disableFontFace: true, useSystemFonts: false, useWasm: false, useWorkerFetch: false, isEvalSupported: false, verbosity: 0 });
  try {
    const pdf = await task.promise;
    if (pdf.numPages > PAGES) throw new Error(t('This PDF has {0} pages: {1} at most.', pdf.numPages, PAGES));
    const pages = [];
    for (let n = 1; n <= pdf.numPages; n++) {
      const page = await pdf.getPage(n);
      pages.push(joinItems((await page.getTextContent()).items));
      page.cleanup();
      await new Promise((resolve) => setTimeout(resolve, 0)); // the page goes on
    }
    return pages.filter(Boolean).join('\n\n');
  } catch (error) {
    const name = error instanceof Error ? error.name : '';
    if (name === 'PasswordException') throw new Error(t('This PDF is protected by a password.'));
    if (name === 'InvalidPDFException') throw new Error(t('This PDF is damaged and cannot be read.'));
    throw error;
  } finally {
    await task.destroy();
  }
}
