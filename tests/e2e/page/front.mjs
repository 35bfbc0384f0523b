// The server's page with a session of a test in place of its WebSocket, over plain HTTP: nothing is put into the page,
// whose script and tasks are its own. Playwright's own route for WebSockets runs scripts in the page's thread.
import { createServer, request } from 'node:http';
import { WebSocketServer } from 'ws';

/**
 * @param {string} url the server's
 * @param {() => FakeSession} session of each connection
 * @returns where the page is, and how to end it
 */
export async function frontOf(url, session) {
  const front = createServer((asked, answer) => {
    const there = request(new URL(asked.url, url), { headers: { ...asked.headers, host: new URL(url).host } }, (came) => {
      answer.writeHead(came.statusCode, came.headers);
      came.pipe(answer);
    });
    there.on('error', () => answer.destroy());
    there.end();
  });
  const sockets = new WebSocketServer({ server: front, path: '/ws' });
  sockets.on('connection', (socket) => {
    session().connect({ send: (text) => socket.send(text), onMessage: (take) => socket.on('message', (data) => take(String(data))) });
  });
  await new Promise((listening) => front.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${front.address().port}`,
    close() {
      for (const socket of sockets.clients) socket.terminate();
      front.closeAllConnections?.();
      front.close();
    },
  };
}
