// HTTP/1.1 at its edges: framing that two readers may take differently, slow clients, replies under way.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateSync, gunzipSync, gzipSync } from 'node:zlib';
import { Wire, sleep, until } from './wire.mjs';

const json = (answer) => JSON.parse(answer.text.split('\r\n\r\n')[1]);
const post = (wire, headers, body = '') => `POST /readyz HTTP/1.1\r\nHost: ${wire.host}:${wire.port}\r\n${headers}\r\n${body}`;

test('HTTP', async (t) => {
  const wire = await Wire.start(t);
  const refused = async (request, status, code) => {
    const answer = await wire.raw(request);
    assert.equal(answer.status, status, answer.text);
    assert.equal(json(answer).error.code, code);
    assert.ok(json(answer).error.message.length > 5);
    assert.ok(answer.closed, 'the connection stays open');
    assert.equal(answer.text.match(/HTTP\/1\.1/g).length, 1, 'the body was taken for a request');
  };

  await t.test('chunks where no body is taken, and chunks beside a length, are refused', async () => {
    await refused(post(wire, 'Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n'), 405, 'unsupported');
    await refused(post(wire, 'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n', '5\r\nGET /healthz HTTP/1.1\r\n\r\n'), 400, 'bad_message');
    await refused(`GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`, 413, 'too_large');
  });
  const smuggled = 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';
  for (const [headers, status] of [['Transfer-Encoding : chunked\r\n', 400], ['Content-Length : 5\r\n', 400], ['X: y\r\n Content-Length: 5\r\n', 400],
    ['Content-Length: 5\r\n\tmore\r\n', 400], ['Transfer-Encoding: gzip, chunked\r\n', 501], ['Transfer-Encoding: \x0bchunked\r\n', 400],
    ['Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n', 400], ['X\x00: y\r\nContent-Length: 0\r\n', 400], ['Content-Len:\r\n', 411]])
    await t.test(`${JSON.stringify(headers)} is refused, and the connection closed`, async () => {
      const answer = await wire.raw(post(wire, headers, smuggled));
      assert.equal(answer.status, status, answer.text);
      assert.ok(answer.closed && answer.text.match(/HTTP\/1\.1/g).length === 1, answer.text);
      assert.match(answer.text, /content-security-policy: default-src 'none'/);
    });
  for (const length of ['-1', '18446744073709551621', 'abc', '5, 6', '+5', '0x5', '5 5'])
    await t.test(`Content-Length: ${length} is refused`, () =>
      refused(post(wire, `Content-Length: ${length}\r\n`, 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'), 400, 'bad_message'));
  await t.test('two lengths are refused', () =>
    refused(post(wire, 'Content-Length: 5\r\nContent-Length: 6\r\n', 'hello!'), 400, 'bad_message'));
  await t.test('a POST without a length is refused', () => refused(post(wire, ''), 411, 'bad_message'));
  await t.test('a POST with a body is refused, and its answer arrives', () =>
    refused(post(wire, 'Content-Length: 100000\r\n', 'x'.repeat(100000)), 405, 'unsupported'));
  await t.test('a body that comes drop by drop holds nobody', async () => {
    const drops = [[0, post(wire, 'Content-Length: 1000\r\n')], ...Array(200).fill([500, 'x'])];
    const answer = await wire.raw(drops);
    assert.equal(answer.status, 405);
    assert.ok(answer.closed && answer.ms < 90000, `open for ${answer.ms} ms: as long as the drops came`);
  });
  await t.test('Expect: 100-continue is answered at once', async () => {
    const answer = await wire.raw(post(wire, 'Content-Length: 5\r\nExpect: 100-continue\r\n'));
    assert.ok(answer.status === 405 && answer.closed); // the body never comes
  });
  await t.test('a body behind GET or DELETE is not the next request', async () => {
    const smuggled = 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';
    await refused(`GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`, 413, 'too_large');
    await refused(`DELETE /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`, 405, 'unsupported');
  });
  await t.test('methods that are not served are refused in our own words', async () => {
    for (const method of ['OPTIONS', 'PUT', 'PATCH', 'DELETE']) {
      const answer = await wire.raw(`${method} / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
      assert.equal(answer.status, 405, method);
      assert.match(answer.text, /allow: GET, HEAD/);
    }
    for (const [line, status] of [['FOO / HTTP/1.1', 405], ['TRACE / HTTP/1.1', 405], ['CONNECT / HTTP/1.1', 405], ['PRI * HTTP/2.0', 505],
      ['GET http://localhost/ HTTP/1.1', 400], ['GET /% HTTP/1.1', 400], ['GET / HTTP/1.1 x', 400], ['\x16\x03\x01\x02\x00\x01\x00', 400]]) {
      const answer = await wire.raw(`${line}\r\nHost: 127.0.0.1\r\n\r\n`);
      assert.ok(answer.closed, line);
      assert.equal(answer.status, status, line);
      assert.match(answer.text, /x-content-type-options: nosniff/);
    }
  });
  await t.test('HEAD has the head of GET and no body', async () => {
    const answer = await wire.raw('HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n');
    const [head, body] = answer.text.split('\r\n\r\n');
    assert.match(head, /200 OK/);
    assert.match(head, /content-length: [1-9]/);
    assert.equal(body, '');
  });
  await t.test('a head beyond 16 KiB is refused; below it is not', async () => {
    assert.equal((await wire.get('/healthz', [`X-Long: ${'x'.repeat(12000)}`])).status, 200);
    const answer = await wire.get('/healthz', [`X-Long: ${'x'.repeat(40000)}`]);
    assert.ok(answer.closed && answer.status === 431, answer.text);
  });
  await t.test('short and empty headers of any name hold no request', async () => {
    for (const header of ['X:', 'C:', 'Content-Len:', 'Content-Lengt: 5', 'Transfer-Encodin: chunked', 'x:y']) {
      const answer = await wire.get('/healthz', [header]);
      assert.equal(answer.status, 200, header); // 408 where it is waited for more
    }
  });
  await t.test('an own header that is too long is refused', async () =>
    assert.equal((await wire.get('/healthz', [`Authorization: Bearer ${'x'.repeat(5000)}`])).status, 431));
  await t.test('silent and slow heads are closed', async () => {
    const silent = wire.raw('');
    const slow = wire.raw([[0, 'GET / HTTP/1.1\r\n'], ...Array(240).fill([1000, 'X: y\r\n'])]);
    assert.ok((await silent).closed, 'silent');
    assert.ok((await slow).closed && (await slow).status === 408, 'slow');
  });
  await t.test('a head that came while the server stood still is in time', async (u) => {
    const own = await Wire.start(u);
    for (let stood = false; !stood;) { // again where this machine was so busy that the server had answered before
      const socket = own.socket();
      let text = '';
      socket.on('data', (bytes) => { text += bytes; }).on('error', () => {}).write('GET /heal');
      const closed = new Promise((resolve) => socket.on('close', resolve));
      await until('the beginning', async () => (await own.metric('parley_connections')) >= 2);
      own.process.kill('SIGSTOP');
      socket.write('thz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
      await sleep(13000); // a head may take ten seconds
      stood = text === '';
      own.process.kill('SIGCONT');
      await closed;
      if (stood) assert.match(text, /^HTTP\/1.1 200 OK/);
    }
  });
  await t.test('dots, slashes and escapes in paths lead nowhere', async () => {
    for (const target of ['/../etc/passwd', '/%2e%2e/etc/passwd', '//etc/passwd', '/a/../../etc/passwd', '/..%2f..%2fetc/passwd', '/app.js%00.html', '/index.html/']) {
      const answer = await wire.get(target);
      assert.equal(answer.status, target.includes('%00') ? 400 : 404, `${target}: ${answer.text.slice(0, 60)}`);
    }
  });
  await t.test('a NUL in a path is refused', async () => {
    for (const target of ['/etc%00', '/%00', '/a\x00b']) assert.equal((await wire.get(target)).status, 400, target);
  });
  await t.test('Host is needed and must be ours', async () => {
    await refused('GET / HTTP/1.1\r\n\r\n', 400, 'bad_message');
    await refused('GET / HTTP/1.0\r\n\r\n', 400, 'bad_message');
    for (const host of ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', '127.0.0.1:80:80', 'localhost@evil', 'a, localhost'])
      await refused(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 403, 'forbidden');
    await refused('GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n', 400, 'bad_message');
    for (const host of ['localhost', `localhost:${wire.port}`, '127.0.0.1', '[::1]:1', '192.168.3.4:8080'])
      assert.equal((await wire.raw(`GET /healthz HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)).status, 200, host);
  });
  await t.test('HTTP/1.0 is served, and a head with a line that ends in LF alone is refused', async () => {
    assert.equal((await wire.raw('GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n')).status, 200);
    for (const head of ['\nHost: localhost\n\n', '\r\nHost: localhost\n\r\n', '\nHost: localhost\r\n\r\n', '\r\nHost: localhost\r\n\n']) {
      const bare = await wire.raw(`GET /healthz HTTP/1.1${head}`);
      assert.equal(bare.status, 400, JSON.stringify(head));
      assert.match(bare.text, /ends without CR/);
    }
  });
  await t.test('keep-alive serves one request after the other, pipelined ones too', async () => {
    const one = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const last = 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
    const calm = await wire.raw([[0, one], [200, one], [200, last]]);
    assert.equal(calm.text.match(/200 OK/g).length, 3);
    const pipelined = await wire.raw(one + one + last);
    assert.equal(pipelined.text.match(/200 OK/g).length, 3);
    assert.ok(pipelined.closed);
  });
  await t.test('unknown addresses and /ws without upgrade say so', async () => {
    assert.equal(json(await wire.get('/nothing')).error.code, 'not_found');
    const posted = await wire.raw(`POST /nothing HTTP/1.1\r\nHost: ${wire.host}:${wire.port}\r\nContent-Length: 2\r\n\r\n{}`);
    assert.deepEqual([posted.status, json(posted).error.code], [404, 'not_found']);
    assert.equal((await wire.get('/ws')).status, 426);
  });
});

test('the page', async (t) => {
  const wire = await Wire.start(t);
  const fetchRaw = async (target, headers) => {
    const answer = await wire.get(target, headers);
    const at = answer.text.indexOf('\r\n\r\n');
    return { head: answer.text.slice(0, at).toLowerCase(), body: Buffer.from(answer.text.slice(at + 4), 'latin1'), status: answer.status };
  };
  await t.test('gzip and identity are the same page under two tags', async () => {
    for (const target of ['/', '/app.js', '/favicon.svg']) {
      const packed = await fetchRaw(target, ['Accept-Encoding: br, gzip']);
      const plain = await fetchRaw(target, []);
      assert.match(packed.head, /content-encoding: gzip/);
      assert.doesNotMatch(plain.head, /content-encoding/);
      assert.deepEqual(gunzipSync(packed.body), plain.body, target);
      const [a, b] = [packed, plain].map((r) => /etag: (\S+)/.exec(r.head)[1]);
      assert.notEqual(a, b);
      for (const r of [packed, plain]) {
        assert.match(r.head, /vary: accept-encoding/);
        assert.match(r.head, /cache-control: no-cache/);
        assert.equal(Number(/content-length: (\d+)/.exec(r.head)[1]), r.body.length);
      }
    }
    assert.doesNotMatch((await fetchRaw('/', ['Accept-Encoding: gzip;q=0'])).head, /content-encoding/);
  });
  await t.test('a known tag is answered by 304 without a body', async () => {
    const first = await fetchRaw('/app.js', ['Accept-Encoding: gzip']);
    const tag = /etag: (\S+)/.exec(first.head)[1];
    for (const header of [`If-None-Match: ${tag}`, `If-None-Match: "x", W/${tag}`, 'If-None-Match: *']) {
      const again = await fetchRaw('/app.js', ['Accept-Encoding: gzip', header]);
      assert.equal(again.status, 304);
      assert.equal(again.body.length, 0);
      assert.match(again.head, new RegExp(`etag: ${tag}`));
    }
    assert.equal((await fetchRaw('/app.js', ['Accept-Encoding: gzip', 'If-None-Match: "other"'])).status, 200);
  });
  await t.test('the content policy is strict', async () => {
    const { head } = await fetchRaw('/', []);
    for (const line of [/content-security-policy: default-src 'none'; script-src 'self'/, /frame-ancestors 'none'/, /require-trusted-types-for 'script'/,
      /x-content-type-options: nosniff/, /referrer-policy: no-referrer/, /cross-origin-opener-policy: same-origin/])
      assert.match(head, line);
    assert.doesNotMatch(head, /unsafe|access-control/);
    assert.match(head, /content-type: text\/html; charset=utf-8/);
  });
});

const chat = (content) => JSON.stringify({ model: 'fake', messages: [{ role: 'user', content }] });
const chunk = (bytes) => `${bytes.length.toString(16)}\r\n${Buffer.from(bytes).toString('latin1')}\r\n`;
const request = (headers, body = '') => `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n${Buffer.from(body).toString('latin1')}`;
const content = (answer) => json(answer).choices[0].message.content;

test('bodies', async (t) => {
  const wire = await Wire.start(t, { args: ['--messages-per-second', '1000', '--max-message-bytes', '1MiB'] });
  const last = 'Connection: close\r\n';
  await t.test('by length and by chunks, in pieces of every kind', async () => {
    const body = chat('hello');
    assert.equal(content(await wire.raw(request(`${last}Content-Length: ${body.length}\r\n`, body))), 'hello');
    assert.equal(content(await wire.raw(request(`${last}Transfer-Encoding: chunked\r\n`, `${chunk(body.slice(0, 7))}${chunk(body.slice(7))}0\r\nTrailer: x\r\n\r\n`))), 'hello');
    const bytes = request(`${last}Transfer-Encoding: Chunked\r\n`, `${[...body].map(chunk).join('')}0\r\n\r\n`);
    for (const size of [1, 7, 100])
      assert.equal(content(await wire.raw(Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => [0, bytes.slice(i * size, (i + 1) * size)]))), 'hello');
  });
  await t.test('long ones are decoded elsewhere, and answered in order', async () => {
    const [a, b, c] = ['a'.repeat(300000), 'short', 'c'.repeat(300000)].map(chat);
    const answer = await wire.raw(request(`Content-Length: ${a.length}\r\n`, a) + request(`Content-Length: ${b.length}\r\n`, b) + request(`${last}Content-Length: ${c.length}\r\n`, c));
    const answers = answer.text.split('HTTP/1.1 200 OK').slice(1).map((part) => JSON.parse(part.slice(part.indexOf('\r\n\r\n'))).choices[0].message.content);
    assert.deepEqual(answers.map((text) => [text[0], text.length]), [['a', 300000], ['s', 5], ['c', 300000]]);
  });
  await t.test('Expect: 100-continue', async () => {
    const body = chat('hello');
    const head = request(`${last}Content-Length: ${body.length}\r\nExpect: 100-continue\r\n`);
    const answer = await wire.raw([[0, head], [200, body]]);
    assert.match(answer.text, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/);
    const refused = await wire.raw(request('Content-Length: 2000000\r\nExpect: 100-continue\r\n'));
    assert.ok(refused.status === 413 && refused.closed, refused.text);
    assert.equal((await wire.raw(request('Content-Length: 5\r\nExpect: 200-ok\r\n'))).status, 417);
  });
  await t.test('gzip and deflate, bounded', async () => {
    for (const [name, zip] of [['gzip', gzipSync], ['GZIP', gzipSync], ['deflate', deflateSync]]) {
      const packed = zip(chat('packed '.repeat(1000)));
      const answer = await wire.raw(request(`${last}Content-Encoding: ${name}\r\nContent-Length: ${packed.length}\r\n`, packed));
      assert.equal(content(answer).length, 7000, name);
    }
    const bomb = gzipSync(Buffer.alloc(100 << 20)); // 100 kB
    const refused = await wire.raw(request(`${last}Content-Encoding: gzip\r\nContent-Length: ${bomb.length}\r\n`, bomb));
    assert.equal(refused.status, 413, refused.text);
    const broken = await wire.raw(request(`${last}Content-Encoding: gzip\r\nContent-Length: 5\r\n`, 'hello'));
    assert.equal(broken.status, 400);
    assert.equal((await wire.raw(request(`Content-Encoding: br\r\nContent-Length: 5\r\n`, 'hello'))).status, 415);
  });
  await t.test('beyond the cap, by length and by chunks: 413 and the end', async () => {
    const declared = await wire.raw(request('Content-Length: 1048577\r\n', 'x'));
    assert.ok(declared.status === 413 && declared.closed);
    const chunks = await wire.raw(request('Transfer-Encoding: chunked\r\n', chunk('x'.repeat(600000)).repeat(2)));
    assert.ok(chunks.status === 413 && chunks.closed, chunks.text);
    assert.match(chunks.text, /"param":null,"code":"too_large"/); // in the form of its route
  });
  await t.test('malformed chunks: 400 and the end', async () => {
    for (const body of ['x\r\n', '5\nhello\r\n', '5\r\nhelloX\r\n', '-5\r\n', '5\r\rhello', '0x5\r\nhello\r\n', 'fffffffffffffffff\r\n']) {
      const answer = await wire.raw(request('Transfer-Encoding: chunked\r\n', body));
      assert.ok(answer.status === 400 && answer.closed, `${JSON.stringify(body)}: ${answer.text}`);
    }
  });
  await t.test('one that trickles is cut, one that stops too', async () => {
    const begun = [request('Content-Length: 100000\r\n'), request('Transfer-Encoding: chunked\r\n', '1\r\n')];
    const cut = await Promise.all([wire.raw([[0, begun[0]], ...Array(480).fill([500, 'x'])]), wire.raw(begun[1])]);
    for (const answer of cut) assert.ok(answer.closed && answer.status === 408, `${answer.ms} ms: ${answer.text}`);
  });
  await t.test('a body that is not read is not the next request', async () => {
    const inner = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const answer = await wire.raw(`POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`);
    assert.ok(answer.closed && answer.text.match(/HTTP\/1\.1/g).length === 1, answer.text);
  });
});

test('requests have a rate', async (t) => {
  const wire = await Wire.start(t, { args: ['--messages-per-second', '1', '--message-burst', '2'] }); // 10 and 20 GETs, 1 and 2 POSTs
  const flood = await wire.raw('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(60));
  const served = flood.text.match(/200 OK/g).length;
  assert.ok(served >= 20 && served < 60 && flood.closed, `${served} of 60 served`);
  assert.match(flood.text, /429 Too Many Requests[^]*retry-after: \d+\r\n/);
  assert.equal((await wire.get('/healthz')).status, 200);
});

test('a reply under way: the end of the client, or a byte too many, does not make the loop spin', async (t) => {
  const wire = await Wire.start(t);
  for (const mischief of ['fin', 'byte']) {
    const socket = wire.socket();
    socket.on('error', () => {});
    socket.pause();
    socket.write('GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\nGET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await sleep(300);
    if (mischief === 'fin') socket.end();
    else socket.write('x');
    await wire.rests(1500, 0.15, mischief);
    socket.destroy();
  }
});
