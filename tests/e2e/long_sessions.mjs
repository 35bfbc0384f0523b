// Sessions with long system prompts, for tests of what each of them costs.

export const system = 'You are a helpful assistant. '.repeat(1100); // 32 KB

/** Opens n sessions, a few at a time, each followed by its opener. */
export async function openMany(client, n, prefix) {
  for (let i = 0; i < n; i += 50)
    await Promise.all(Array.from({ length: Math.min(50, n - i) }, (_, k) =>
      client.ask({ type: 'session.open', session: `${prefix}${i + k}`, system })));
}
