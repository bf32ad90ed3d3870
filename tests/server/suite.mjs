// SPDX-License-Identifier: Apache-2.0
// What the scripts of this folder share: counted checks against two servers, whose addresses are the
// script's arguments: URL without a key, KEYED-URL with the key "k1".
export const [url, keyed] = process.argv.slice(2);
const counts = { passed: 0, failed: 0 };

export function check(name, ok, why = "") {
  counts[ok ? "passed" : "failed"]++;
  console.log(`${ok ? "ok      " : "FAILED  "} ${name}${ok ? "" : ": " + JSON.stringify(why)}`);
}

export function equal(name, seen, wanted) {
  const [a, b] = [JSON.stringify(seen), JSON.stringify(wanted)];
  check(name, a === b, `${a}, not ${b}`);
}

// How many slots of the server without a key work.
async function busy() {
  const slots = await (await fetch(`${url}/slots`)).json();
  return slots.filter((slot) => slot.is_processing).length;
}

// Whether none does any more, within five seconds.
export async function calm() {
  for (let i = 0; i < 100; i++) {
    if ((await busy()) === 0) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}

// Runs the parts in order, tells the counts and ends the script; what a part throws is a failure.
export async function run(...parts) {
  for (const part of parts) {
    try {
      await part();
    } catch (error) {
      check(part.name, false, String(error.stack));
    }
  }
  console.log(`${counts.passed} passed, ${counts.failed} failed`);
  process.exit(counts.failed ? 1 : 0);
}
