// Whether the text that one reads stays where it is while turns above it are completed and laid out.
import { newPage, newContext } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const ANSWERS = [
  '## Heading\n\nText with **bold** and `code`.\n\n- one\n- two\n\n```c\nint main(void) { return 0; }\n```\n',
  'Plain words of an answer. '.repeat(40),
  '| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n> quote\n\n1. one\n2. two\n   - nested\n',
  Array.from({ length: 12 }, (_, i) => `Paragraph ${i} with **bold** words.`).join('\n\n'),
];

/** A page with a conversation of 60 turns, at its end. */
export async function longConversation(t, server, script) {
  const page = await newPage(t, await newContext(t));
  if (script) await page.addInitScript(script);
  await FakeSession.route(page, Array.from({ length: 60 }, (_, i) => [`Message ${i}`, ANSWERS[i % ANSWERS.length]]));
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-turn]').length === 60);
  return page;
}

/** Scrolls up in steps; gives how many turns were completed on the way, and the steps after which a turn in sight did not
 * come to where the step leads: [turn, px beyond it]. */
export const scrollUp = (page) =>
  page.evaluate(async () => {
    const scroller = document.querySelector('.scroller');
    const complete = () => document.querySelectorAll('.turn .facts').length;
    const before = complete();
    const moved = [];
    for (let step = 0; step < 40; step++) {
      const turn = document.elementFromPoint(innerWidth / 2 + 100, 300)?.closest('.turn');
      const wanted = turn && turn.getBoundingClientRect().top + 120;
      scroller.scrollTop -= 120;
      const off = () => (turn ? Math.round(turn.getBoundingClientRect().top - wanted) : 0);
      // A turn that has just been completed is laid out in the next frame: what moves comes back with it.
      let still = 0;
      for (let frame = 0; frame < 60 && still < 4; frame++) {
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
        still = Math.abs(off()) < 2 ? still + 1 : 0;
      }
      if (still < 4) moved.push([turn.dataset.turn, off()]);
    }
    return { completed: complete() - before, moved };
  });
