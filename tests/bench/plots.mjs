// Draws results/*.json as SVG beside them, for light and dark pages (prefers-color-scheme). A plot whose JSON is not
// there is left out. usage: node plots.mjs
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { read } from './results.mjs';

const folder = path.join(path.dirname(fileURLToPath(import.meta.url)), 'results');
const STYLE = `
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 15px } .sub, .tick { fill: #59636e } .tick, .sub { font-size: 12px }
  .bold { font-weight: 600 } .grid { stroke: #d1d9e0; stroke-width: 1 } .axis { stroke: #818b98; stroke-width: 1 }
  .a { fill: #0b6e66 } .b { fill: #9a5b13 } .c { fill: #8793a0 } .d { fill: #b9c1ca }
  .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
  .line.a { stroke: #0b6e66; fill: none } .line.b { stroke: #9a5b13; fill: none } .line.c { stroke: #8793a0; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .sub, .tick { fill: #9198a1 } .grid { stroke: #30363d } .axis { stroke: #6e7681 }
    .a { fill: #3fc1b0 } .b { fill: #e3a857 } .c { fill: #8b949e } .d { fill: #545d68 }
    .line.a { stroke: #3fc1b0 } .line.b { stroke: #e3a857 } .line.c { stroke: #8b949e }
  }`;

const escape = (s) => String(s).replace(/&/g, '&amp;').replace(/</g, '&lt;');
const text = (x, y, words, { anchor = 'start', cls = '' } = {}) =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}"${cls && ` class="${cls}"`}>${escape(words)}</text>`;
const line = (x1, y1, x2, y2, cls) => `<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" class="${cls}"/>`;
const number = (x) => (x < 100 ? String(x) : Math.round(x).toLocaleString('en'));

function write(name, width, height, description, parts) {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escape(description)}</title><style>${STYLE}</style>
${parts.join('\n')}
</svg>
`;
  writeFileSync(path.join(folder, `${name}.svg`), svg);
  console.error(`drawn: results/${name}.svg`);
}

// --- speed: bars in multiples of llama.cpp -------------------------------------------------------------------------

/** rows: [{ name, engines: [[name, tokens per second], ...] }], llama.cpp among them. */
function bars(name, title, sub, rows) {
  const colour = { Parley: 'a', 'gpt-fast': 'c', 'llama.cpp': 'd' };
  const left = 262, right = 150, width = 780, bar = 15, gap = 13, top = 62;
  const ratio = (row, v) => v / row.engines.find(([engine]) => engine === 'llama.cpp')[1];
  const most = Math.max(...rows.flatMap((row) => row.engines.map(([, v]) => ratio(row, v))));
  const x = (r) => left + (width - left - right) * r / most;
  const parts = [text(12, 24, title, { cls: 'title' }), text(12, 43, sub, { cls: 'sub' })];
  let y = top;
  const body = [];
  for (const row of rows) {
    const height = row.engines.length * bar;
    body.push(text(left - 12, y + height / 2 + 4.5, row.name, { anchor: 'end' }));
    for (const [engine, v] of row.engines) {
      const end = x(ratio(row, v)), ours = engine === 'Parley';
      body.push(`<rect x="${left}" y="${y}" width="${(end - left).toFixed(1)}" height="${bar - 2}" rx="1.5" class="${colour[engine]}"/>`);
      const words = ours ? `Parley ${number(v)} · ${ratio(row, v).toFixed(1)}×` : `${engine} ${number(v)}`;
      body.push(text(end + 6, y + bar - 4.5, words, { cls: ours ? 'bold' : 'sub' }));
      y += bar;
    }
    y += gap;
  }
  parts.push(line(left, top - 4, left, y - gap + 2, 'axis'), ...body);
  write(name, width, y, title, parts);
}

function speed() {
  const gpu = read('gpu'), cpu = read('cpu');
  bars('speed-gpu', 'Tokens per second on one H200', `Bars in multiples of llama.cpp. ${gpu.date}`,
    gpu.workloads.map((row) => ({ name: row.name, engines: ['Parley', 'gpt-fast', 'llama.cpp'].filter((e) => row[e]).map((e) => [e, row[e]]) })));
  bars('speed-cpu', 'Tokens per second on two cores', `${cpu.machine.replace(/, 2 cores/, '')}, activations in bf16. Bars in multiples of llama.cpp. ${cpu.date}`,
    cpu.models.flatMap(({ model, figures }) => figures.map((f) => ({
      name: `${model.split(',')[0].replace(' model', '').replace('random Llama', '1.2 B')}: ${f.name}`,
      engines: [['Parley', (f.bf16 ?? f.f32).median], ['llama.cpp', f['llama.cpp'].median]],
    }))));
}

// --- lines ---------------------------------------------------------------------------------------------------------

/** From 0 to at most `most`, in seven steps or fewer of 1, 2 or 5 times a power of ten. */
function ticks(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => most / s <= 7);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => Number((i * step).toPrecision(9)));
}

/** series: [{ name, cls, points: [[x, y], ...], dy }]; the name stands at the line's end. */
function lines(name, { title, sub, xName, yName, series }) {
  const width = 780, height = 360, left = 58, right = 190, top = 76, bottom = 48;
  const all = series.flatMap(({ points }) => points);
  const xMost = Math.max(...all.map(([x]) => x)), yMost = Math.max(...all.map(([, y]) => y)) * 1.04;
  const x = (v) => left + (width - left - right) * v / xMost, y = (v) => height - bottom - (height - top - bottom) * v / yMost;
  const parts = [text(12, 24, title, { cls: 'title' }), text(12, 43, sub, { cls: 'sub' })];
  for (const v of ticks(yMost))
    parts.push(line(left, y(v), width - right, y(v), v ? 'grid' : 'axis'), text(left - 8, y(v) + 4, number(v), { anchor: 'end', cls: 'tick' }));
  for (const v of ticks(xMost)) parts.push(text(x(v), height - bottom + 18, number(v), { anchor: 'middle', cls: 'tick' }));
  parts.push(text(width - right, height - 10, xName, { anchor: 'end', cls: 'tick' }), text(left + 6, top - 6, yName, { cls: 'tick' }));
  for (const { points, cls } of series)
    parts.push(`<path class="line ${cls}" d="${points.map(([px, py], i) => `${i ? 'L' : 'M'}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join('')}"/>`);
  for (const { name: words, points, cls, dy = 0 } of series) {
    const [px, py] = points.at(-1);
    words.split('\n').forEach((row, i) => parts.push(`<text x="${(x(px) + 8).toFixed(1)}" y="${(y(py) + 4 + dy + 16 * i).toFixed(1)}" class="${i ? 'sub' : `${cls} bold`}">${escape(row)}</text>`));
  }
  write(name, width, height, title, parts);
}

function sessions() {
  const { turns, machine, date, window, new_tokens, model } = read('turns');
  const where = `${model} on ${machine}. ${date}`;
  const at = (way, key, scale = 1) => turns.map((t) => [key === 'first_token_ms' ? t.turn : t.log_tokens, t[way][key] * scale]);
  lines('first-token', {
    title: 'Time to the first token over 150 turns', sub: `${new_tokens} new tokens each turn; ${where}`, xName: 'turn', yName: 'ms',
    series: [
      { name: 'transcript sent again\nas a stateless API needs', cls: 'c', points: at('resent', 'first_token_ms') },
      { name: 'session', cls: 'a', points: at('session', 'first_token_ms'), dy: -3 },
    ],
  });
  lines('context', {
    title: 'Time per token as the conversation grows', sub: where, xName: 'tokens in the conversation', yName: 'ms per token',
    series: [
      { name: 'memory of everything', cls: 'c', points: at('session', 'token_us', 0.001) },
      { name: `memory_len = ${number(window)}`, cls: 'a', points: at('window', 'token_us', 0.001) },
    ],
  });
}

speed();
if (existsSync(path.join(folder, 'turns.json'))) sessions();
