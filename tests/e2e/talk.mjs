// The turns that tests compare between a quiet server and one whose processes are killed.
import { transcript } from './follower.mjs';

const texts = ['My name is Zora.', 'What is my name?', 'What is 17 plus 25?'];
/** Turn i of a conversation. more: other sampling parameters. */
export const say = (session, i, more = {}) =>
  session.say(texts[i % texts.length], { sampling: { temperature: 0.8, seed: '99', max_tokens: 24, ...more } });
/** What a kill must not change. */
export const plain = (turn) => [transcript(turn).text, transcript(turn).ids, turn.done.finish_reason];
