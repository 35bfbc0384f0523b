// Every metric that configs/alerts.yml and configs/grafana.json name is one that a serving Parley has, and is used as
// its kind allows; the dashboard has the shape that Grafana reads.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { root, Server } from './harness.mjs';

const alerts = () => [...readFileSync(path.join(root, 'configs/alerts.yml'), 'utf8').matchAll(/^ +expr: (.*)$/gm)].map(([, x]) => x);
const dashboard = () => JSON.parse(readFileSync(path.join(root, 'configs/grafana.json'), 'utf8'));
const targets = () => dashboard().panels.flatMap((panel) => panel.targets ?? []);

// The metrics of a server: name -> {type, labels}. A histogram's le comes with its buckets.
async function metricsOf(server) {
  const text = await (await fetch(`http://127.0.0.1:${server.port}/metrics`)).text();
  const metrics = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, { type, labels: new Set() }]));
  for (const [, name, labels] of text.matchAll(/^(\w+)\{(.*)\} /gm)) {
    const { metric } = find(metrics, name);
    for (const [, label] of labels.matchAll(/(\w+)="/g)) metric.labels.add(label);
  }
  return { text, metrics };
}

function find(metrics, name) {
  const bare = name.replace(/_(bucket|sum|count)$/, '');
  return { metric: metrics.get(name) ?? metrics.get(bare), bare };
}

function checkExpression(metrics, expression) {
  const names = new Set(expression.match(/\b(parley|process)_\w+/g) ?? []);
  for (const name of names) {
    const { metric, bare } = find(metrics, name);
    assert.ok(metric, `${name} is no metric`);
    if (metric.type === 'histogram') assert.notEqual(name, bare, `${name} is a histogram: use its buckets`);
    if (metric.type === 'gauge') continue;
    assert.match(expression, new RegExp(`(rate|increase)\\(${name}\\b[^)]*\\[`), `${name} only ever grows: use its rate`);
  }
  return names;
}

test('the alerts name metrics that exist, histograms by their buckets', async (t) => {
  const { metrics } = await metricsOf(await Server.start(t));
  const expressions = alerts();
  const names = new Set(expressions.flatMap((x) => [...checkExpression(metrics, x)]));
  assert.ok(expressions.length >= 5 && names.size >= 5);
});

test('the dashboard names metrics and labels that exist', async (t) => {
  const { metrics } = await metricsOf(await Server.start(t, { args: ['--instances', '2'] }));
  assert.ok(targets().length >= 30);
  for (const { expr, legendFormat } of targets()) {
    const names = checkExpression(metrics, expr);
    assert.ok(names.size > 0, expr);
    const labels = new Set(['instance', ...[...names].flatMap((name) => [...find(metrics, name).metric.labels])]);
    const by = [...expr.matchAll(/\bby \((.*?)\)/g)].flatMap(([, list]) => list.split(', '));
    const inLegend = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label);
    for (const label of [...by, ...inLegend]) assert.ok(labels.has(label), `${label}: ${expr}`);
    if (by.length) for (const label of inLegend) assert.ok(by.includes(label), `${label} is summed away: ${expr}`);
    assert.equal(expr.match(/\{instance=~"\$instance"\}/g)?.length, expr.match(/\b(parley|process)_\w+/g).length, expr);
  }
  for (const { query } of dashboard().templating.list.filter(({ type }) => type === 'query'))
    assert.ok(metrics.has(query.match(/^label_values\((\w+), instance\)$/)[1]));
});

test('the dashboard has the shape that Grafana reads: panels with places of their own, targets with a source', () => {
  const { uid, title, schemaVersion, panels, templating } = dashboard();
  assert.ok(uid && title && schemaVersion >= 36);
  assert.deepEqual(templating.list.map(({ name }) => name), ['datasource', 'instance']);
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  const taken = new Set();
  for (const { type, title: name, gridPos: { x, y, w, h }, datasource, targets: list } of panels) {
    assert.ok(name && x + w <= 24, name);
    for (let column = x; column < x + w; column++)
      for (let line = y; line < y + h; line++) {
        assert.ok(!taken.has(`${column} ${line}`), `${name} lies over another panel`);
        taken.add(`${column} ${line}`);
      }
    if (type === 'row') continue;
    assert.equal(type, 'timeseries');
    assert.deepEqual(datasource, { type: 'prometheus', uid: '${datasource}' });
    assert.ok(list.length > 0, name);
    assert.equal(new Set(list.map(({ refId }) => refId)).size, list.length, name);
  }
});

test('no label has a name that Prometheus gives its targets', async (t) => {
  const { metrics } = await metricsOf(await Server.start(t, { args: ['--instances', '2'] }));
  for (const [name, { labels }] of metrics)
    for (const label of ['instance', 'job']) assert.ok(!labels.has(label), `${name}: Prometheus would rename it to exported_${label}`);
  assert.deepEqual([...metrics.get('parley_engine_steps_total').labels], ['engine']);
});

test('memory and processor time of the process are its own', async (t) => {
  const server = await Server.start(t);
  const value = (text, name) => Number(text.match(new RegExp(`^${name} (\\S+)$`, 'm'))[1]);
  const { text } = await metricsOf(server);
  const kib = Number(readFileSync(`/proc/${server.process.pid}/status`, 'utf8').match(/^VmRSS:\s+(\d+) kB$/m)[1]);
  const bytes = value(text, 'process_resident_memory_bytes');
  assert.ok(bytes > kib * 512 && bytes < kib * 2048, `${bytes} bytes, ${kib} KiB`);
  assert.ok(value(text, 'process_cpu_seconds_total') > 0);
  const later = await metricsOf(server);
  assert.ok(value(later.text, 'process_cpu_seconds_total') >= value(text, 'process_cpu_seconds_total'));
});

const promtool = spawnSync('promtool', ['--version']).status === 0;
test('the alerts fire when they should, says promtool', { skip: promtool ? false : 'no promtool here' }, () => {
  const out = execFileSync('promtool', ['test', 'rules', path.join(root, 'configs/alerts_test.yml')], { encoding: 'utf8' });
  assert.match(out, /SUCCESS/);
});
