// Calls to the server. A lost connection is shown, and ends by itself when the server answers again.

const banner = document.getElementById("lost");
let lost = false;
const waiting = [];

async function reconnect() {
  if (lost) return;
  lost = true;
  banner.hidden = false;
  while (lost) {
    await new Promise((done) => setTimeout(done, 1000));
    try {
      const answer = await fetch("api/alive", { method: "POST", body: "{}" });
      lost = !answer.ok;
    } catch {
      // Still lost.
    }
  }
  banner.hidden = true;
  waiting.splice(0).forEach((again) => again());
}

async function post(address, given) {
  for (;;) {
    try {
      return await fetch(address, { method: "POST", body: JSON.stringify(given) });
    } catch {
      const answered = new Promise((again) => waiting.push(again));
      reconnect();
      await answered;
    }
  }
}

/** Return the answer, or raise an error with the message of the server. */
async function checked(answer) {
  if (!answer.ok) throw new Error(await answer.text());
  if (!answer.headers.get("content-type").startsWith("application/json")) return answer;
  const found = await answer.json();
  if (found.refused) throw new Error(found.refused);
  return found;
}

/** Return the answer of the server to a call, or raise an error with its message. */
export async function call(name, given = {}) {
  return checked(await post(`api/${name}`, given));
}

/** Return the coordinates of the drawn rows of a view, as float32. */
export async function points(given) {
  return new Float32Array(await (await call("points", given)).arrayBuffer());
}

/** Download a file that the server makes. */
export async function download(name, given) {
  const content = await (await checked(await post(`export/${name}`, given))).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
