// The page: controls on one side, the server on the other, and the state between them.

import { call, download } from "./api.js";
import { readAddress, request, state, writeAddress } from "./state.js";
import * as views from "./views.js";

const get = (id) => document.getElementById(id);
const number = views.number;
const GLYPHS = {
  circle: "●", "circle-open": "○", square: "■", "square-open": "□", diamond: "◆", "diamond-open": "◇",
  "triangle-up": "▲", "triangle-up-open": "△", "triangle-down": "▼", "triangle-down-open": "▽", "star-open": "☆", "cross-open": "✚", "x-open": "✖",
};
const dials = { left: null, right: null };
let session;

/** Return a new element with attributes and children; text never becomes markup. */
function element(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) found.setAttribute(name, value === true ? "" : value);
  }
  found.append(...children);
  return found;
}

function choices(select, options, value) {
  select.replaceChildren(...options.map(([key, text]) => element("option", { value: key, selected: String(key) === String(value) }, text)));
}

const message = (name, text) => (get(`${name}-message`).textContent = text);

// The views and their dials

function buildView(section) {
  const name = section.dataset.view;
  const side = name === "left" ? "Left" : "Right";
  section.append(
    element("div", { class: "row" },
      element("h2", { id: `${name}-title`, class: "muted" }, `${side} view`),
      element("label", {}, "Method ", element("select", { id: `${name}-method`, onchange: (event) => setMethod(name, event.target.value) })),
      element("label", {}, "x ", element("select", { id: `${name}-x`, onchange: (event) => setAxis(name, "x", event.target.value) })),
      element("label", {}, "y ", element("select", { id: `${name}-y`, onchange: (event) => setAxis(name, "y", event.target.value) })),
    ),
    element("div", { id: `${name}-plot`, class: "plot", role: "img" }),
    element("p", { id: `${name}-message`, class: "message", role: "status" }),
    element("div", { id: `${name}-dial`, class: "dial" },
      element("button", { type: "button", id: `${name}-auto`, onclick: () => setStop(name, 0) }, "Automatic"),
      element("div", { class: "track" },
        element("input", { type: "range", id: `${name}-range`, min: 1, max: 2, step: 1, disabled: true, oninput: (event) => setStop(name, Number(event.target.value)) }),
        element("div", { id: `${name}-marks` }),
        element("div", { class: "ends" }, element("span", { id: `${name}-low` }), element("span", { id: `${name}-high` })),
      ),
      element("output", { id: `${name}-value`, for: `${name}-range` }),
    ),
  );
  choices(get(`${name}-method`), Object.entries(session.methods).map(([key, { title }]) => [key, title]), state[name].method);
}

function setMethod(name, method) {
  state[name] = { method, stop: 0, x: 0, y: 1, zoom: null };
  return refreshView(name);
}

function setAxis(name, axis, value) {
  state[name] = { ...state[name], [axis]: Number(value), zoom: null };
  return refreshView(name);
}

const pending = { left: false, right: false };
const running = { left: false, right: false };

/** Move the dial. While an answer is awaited only the last position counts. */
async function setStop(name, stop) {
  state[name].stop = stop;
  showDial(name);
  pending[name] = true;
  if (running[name]) return;
  running[name] = true;
  while (pending[name]) {
    pending[name] = false;
    await drawView(name);
  }
  running[name] = false;
  writeAddress();
  if (name === "right") rested();
}

let resting;
/** Read the verdict when the dial rests: it comes from a fit at this stop. */
function rested() {
  clearTimeout(resting);
  get("verdict").setAttribute("aria-busy", "true");
  resting = setTimeout(() => { refreshVerdict(); refreshCode(); }, 250);
}

async function drawView(name) {
  try {
    let about;
    try {
      about = await views.show(name);
    } catch (error) {
      if (state[name].y === -1 && state[name].x === 0) throw error;
      state[name] = { ...state[name], x: 0, y: -1, zoom: null }; // a model with one component
      about = await views.show(name);
    }
    message(name, "");
    views.plot(name).dataset.stop = state[name].stop;
    const axes = about.names.map((text, place) => [place, `${text} (${number(about.ratios[place])})`]);
    choices(get(`${name}-x`), axes, state[name].x);
    choices(get(`${name}-y`), [...axes, [-1, "row number"]], state[name].y);
    const rows = session.datasets.map((dataset) => `${dataset.drawn.toLocaleString()} of ${dataset.name}`).join(", ");
    views.plot(name).setAttribute("aria-label", `Scores by ${about.title}: points of ${rows}. Use the fields below to select rows without a mouse.`);
    if (name === "right") showAbout(about);
  } catch (error) {
    message(name, error.message);
  }
}

async function refreshView(name) {
  writeAddress();
  dials[name] = null;
  showDial(name);
  await drawView(name);
  if (name === "right") { refreshVerdict(); refreshCode(); }
  if (!session.methods[state[name].method].has_dial) return;
  const { method } = state[name];
  try {
    const found = await call("stops", request(name));
    if (state[name].method !== method) return;
    dials[name] = found;
    showDial(name);
  } catch (error) {
    message(name, error.message);
  }
}

function showDial(name) {
  const { method, stop } = state[name];
  const whole = get(`${name}-dial`);
  const has = session.methods[method].has_dial;
  whole.hidden = !has;
  const dial = dials[name];
  const range = get(`${name}-range`);
  get(`${name}-auto`).setAttribute("aria-pressed", String(stop === 0));
  const ends = method === "cpca" ? ["0: PCA", "background counts most"] : ["0: exact dPCA", "1: PCA of scaled features"];
  get(`${name}-low`).textContent = ends[0];
  get(`${name}-high`).textContent = ends[1];
  const parameter = method === "cpca" ? "alpha" : "shrinkage";
  range.setAttribute("aria-label", `${parameter} of the ${name} view`);
  const last = dial ? dial.values.length - 1 : 0;
  range.disabled = last < 1;
  if (!dial) {
    get(`${name}-value`).textContent = has ? "computing the dial…" : "";
    get(`${name}-marks`).replaceChildren();
    return;
  }
  range.max = Math.max(last, 1);
  const nearest = () => 1 + dial.values.slice(1).reduce((best, value, index, all) => (Math.abs(value - dial.values[0]) < Math.abs(all[best] - dial.values[0]) ? index : best), 0);
  range.value = stop || nearest();
  const value = dial.values[stop];
  get(`${name}-value`).textContent = last < 1 ? "no dial for this model" : `${parameter} ${value === null ? "" : number(value)}${stop ? "" : " (automatic)"}`;
  range.setAttribute("aria-valuetext", `${parameter} ${number(value)}`);
  get(`${name}-marks`).replaceChildren(...dial.representatives.map((at) =>
    element("span", { class: "mark", title: `representative: ${parameter} ${number(dial.values[at])}`, style: `left: calc(8px + (100% - 16px) * ${(at - 1) / Math.max(last - 1, 1)})` })));
}

function showAbout(about) {
  get("ratios-text").textContent = about.noise_edge === null
    ? "Variance of the target over that of the background, along each component. A noise edge is not defined here."
    : `Variance of the target over that of the background, along each component. Noise edge ${number(about.noise_edge)}${about.shrunk ? " (of the unshrunk ratios)" : ""}.`;
  views.drawRatios(get("ratios"), about);
  const { x, y } = state.right;
  const places = [...new Set([x, y])].filter((place) => place >= 0 && about.top_features[place]);
  get("patterns").replaceChildren(...places.map((place) => patternTable(about.names[place], about.top_features[place])));
  if (!places.length) get("patterns").textContent = "This model has no patterns: its components are not linear in the features.";
}

function patternTable(name, features) {
  const most = Math.max(...features.map((top) => Math.abs(top.weight)), 1e-300);
  return element("div", { class: "wide" }, element("table", { class: "bars" },
    element("caption", {}, name),
    element("tbody", {}, ...features.slice(0, 10).map(({ feature, weight }) => element("tr", {},
      element("th", { scope: "row" }, feature), element("td", {}, (weight > 0 ? "+" : "") + number(weight)),
      element("td", { class: "bar" }, bar([{ from: 0, to: weight / most, color: weight < 0 ? "--orange" : "--blue", height: 8 }])))))));
}

/** Return a bar on a scale from -1 to 1, as a drawing. */
function bar(parts) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "-1.02 0 2.04 14");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const rectangle = (from, to, y, height, color) => {
    const found = document.createElementNS(space, "rect");
    const [low, high] = [Math.max(-1, Math.min(from, to)), Math.min(1, Math.max(from, to))];
    Object.entries({ x: low, y, width: Math.max(high - low, 0.008), height }).forEach(([key, value]) => found.setAttribute(key, value));
    found.style.fill = `var(${color})`;
    svg.append(found);
  };
  rectangle(-0.004, 0.004, 0, 14, "--line");
  for (const { from, to, color, height, y } of parts) rectangle(from, to, y ?? (14 - height) / 2, height, color);
  return svg;
}

// The verdict and the test

let asked = 0;
async function refreshVerdict() {
  const card = get("verdict");
  const mine = ++asked;
  card.setAttribute("aria-busy", "true");
  try {
    const found = await call("verdict", request("right"));
    if (mine !== asked) return;
    card.dataset.kind = found.kind;
    get("verdict-headline").textContent = found.headline;
    get("verdict-reasons").replaceChildren(...found.reasons.map((reason, index) => element("li", { class: index < found.n_doubts ? "doubt" : "" }, reason)));
    get("verdict-next").textContent = found.next_step ?? "";
    get("test-details").hidden = !found.summary;
    get("test-summary").textContent = (found.summary ?? []).join("\n");
  } catch (error) {
    if (mine !== asked) return;
    delete card.dataset.kind; // without an answer there is no verdict
    ["headline", "reasons", "next"].forEach((part) => get(`verdict-${part}`).replaceChildren());
    message("right", error.message);
  }
  if (mine === asked) card.setAttribute("aria-busy", "false");
  watchTest();
}

let watched;
async function watchTest(found) {
  clearTimeout(watched);
  const tested = ["dpca", "signal"].includes(state.right.method);
  get("test-row").hidden = !tested;
  if (!tested) return;
  const before = get("test-row").dataset.state;
  const { state: now, what, share, error } = found ?? (await call("test", request("right")).catch((failed) => ({ state: "failed", error: failed.message })));
  get("test-row").dataset.state = now;
  const runs = now === "running";
  get("test-start").disabled = runs;
  get("test-cancel").hidden = !runs;
  get("test-progress").hidden = !runs;
  get("test-progress").value = share ?? 0;
  get("test-state").textContent = { running: `${what}: ${Math.round(100 * (share ?? 0))} %`, done: "The test is done.", cancelled: "The test was cancelled.", failed: error }[now] ?? "";
  if (runs) watched = setTimeout(watchTest, 400);
  else if (before === "running" && now === "done") refreshVerdict();
}

async function startTest() {
  try {
    await watchTest(await call("start-test", { ...request("right"), permutations: Number(get("permutations").value) }));
  } catch (error) {
    get("test-state").textContent = error.message;
  }
}

// Datasets and colours

function buildDatasets() {
  get("datasets").append(...session.datasets.map((dataset, index) => {
    const drawn = dataset.drawn < dataset.rows ? `, ${dataset.drawn.toLocaleString()} drawn` : "";
    const parts = [
      element("span", { class: "name" }, dataset.name),
      element("span", { class: "muted" }, `${dataset.rows.toLocaleString()} rows${drawn}`),
      element("label", {}, element("input", { type: "checkbox", checked: !state.hidden.includes(index), "aria-label": `show ${dataset.name}`, onchange: (event) => setShown(index, event.target.checked) }), "show"),
    ];
    if (index && session.datasets.length > 2) {
      parts.push(element("label", {}, element("input", { type: "checkbox", checked: state.on.includes(index - 1), "data-on": index - 1, "aria-label": `use ${dataset.name} as background`, onchange: (event) => setOn(index - 1, event.target.checked) }), "use as background"));
    }
    return element("span", { class: "dataset" }, ...parts);
  }));
  lockLast();
}

/** The last background in use cannot be switched off. */
function lockLast() {
  document.querySelectorAll("[data-on]").forEach((box) => (box.disabled = state.on.length === 1 && box.checked));
}

function setShown(index, visible) {
  state.hidden = state.hidden.filter((other) => other !== index).concat(visible ? [] : [index]);
  writeAddress();
  views.redraw();
}

async function setOn(index, used) {
  state.on = state.on.filter((other) => other !== index).concat(used ? [index] : []).sort((one, two) => one - two);
  lockLast();
  for (const name of ["left", "right"]) if (state[name].method !== "pca") state[name].stop = 0;
  await Promise.all(["left", "right"].filter((name) => state[name].method !== "pca").map(refreshView));
}

function buildColours() {
  const columns = session.columns.map(({ key, name }) => [key, name]);
  const isFeature = state.colour.startsWith("feature:");
  choices(get("colour"), [["", "dataset"], ...columns, ["feature:", "a feature…"]], isFeature ? "feature:" : state.colour);
  get("feature-list").replaceChildren(...session.feature_names.map((name) => element("option", { value: name })));
  get("feature").value = isFeature ? state.colour.slice(8) : "";
  get("feature-label").hidden = !isFeature;
}

async function setColour(colour) {
  get("feature-label").hidden = !colour.startsWith("feature:");
  if (colour === "feature:") return get("feature").focus();
  state.colour = colour;
  writeAddress();
  await refreshColour();
  await views.redraw();
}

async function refreshColour() {
  let found = null;
  try {
    if (state.colour) found = await call("colour", { column: state.colour });
  } catch (error) {
    message("right", error.message);
  }
  const sets = views.setColours(found);
  get("legend").replaceChildren(...[...sets].sort((one, two) => one.dataset - two.dataset).slice(0, 60).map((set) =>
    element("span", { class: "key" }, element("span", { "aria-hidden": "true", style: set.numbers ? "" : `color: ${set.color}` }, GLYPHS[set.symbol] ?? "●"), set.name)));
  const range = views.colourRange();
  if (range) get("legend").append(element("span", { class: "key" }, number(range[0]), element("span", { class: "scale", "aria-hidden": "true" }), number(range[1])));
  const labels = (found?.values ?? []).map((value, index) => [value, `${found.classes[index]} (${found.counts[index].toLocaleString()} rows)`]);
  choices(get("label-value"), labels.filter(([value]) => value !== null), "");
  get("label-form").querySelector("button").disabled = !get("label-value").options.length;
}

// Selections

const which = () => document.querySelector("input[name=which]:checked").value;

async function select(name, points) {
  await setSelection(which(), { kind: "region", ...request(name), points });
}

async function setSelection(key, selection) {
  state[key] = selection;
  writeAddress();
  await refreshSelection(key);
  await refreshWhy();
}

async function refreshSelection(key) {
  const text = get(`count-${key}`);
  if (!state[key]) {
    text.textContent = "no rows";
    return views.ring(key, []);
  }
  try {
    const found = await call("select", { selection: state[key] });
    const subjects = found.units === undefined ? "" : ` of ${found.units.toLocaleString()} subjects`;
    text.textContent = `${found.count.toLocaleString()} of ${found.total.toLocaleString()} rows${subjects}`;
    await views.ring(key, found.drawn);
  } catch (error) {
    state[key] = null;
    text.textContent = error.message;
    await views.ring(key, []);
  }
}

let why = 0;
async function refreshWhy() {
  const mine = ++why;
  const say = (text) => { if (mine === why) get("conclusion").textContent = text; };
  get("effects").replaceChildren();
  say("");
  if (!state.a) return state.b && say("Selection B is compared with selection A. Select rows for A.");
  try {
    const found = await call("compare", { first: state.a, second: state.b });
    if (mine !== why) return;
    showEffects(found, null);
    say("Checking the selection on rows that did not choose the axis…");
    const checks = await Promise.all([state.a, state.b].filter(Boolean).map((selection) => call("check", { selection })));
    if (mine !== why) return;
    const names = state.b ? ["Selection A: ", "Selection B: "] : [""];
    say(checks.map((check, index) => names[index] + check.sentence).join(" "));
    if (!state.b) showEffects(found, checks[0]);
  } catch (error) {
    say(error.message);
  }
}

function showEffects({ counts, units, features }, check) {
  const most = Math.max(...features.flatMap(({ size, low, high }) => [size, low, high].map(Math.abs)), 1e-9);
  const against = state.b ? "selection B" : "the other target rows";
  const one = features[0]?.low === null ? " One side is a single subject, so there are no intervals." : "";
  const subjects = one || (units ? ` Intervals count ${units.toLocaleString()} subjects.` : "");
  // The other half selects by score too, so its differences mean nothing where the axis is not found again.
  const held = check?.size && check.kind !== "fails" ? check : null;
  const interval = (low, high) => (low === null ? "–" : `${number(low)} to ${number(high)}`);
  get("effects").replaceChildren(
    element("p", { class: "muted" }, `Selection A (${counts[0].toLocaleString()} rows) against ${against} (${counts[1].toLocaleString()} rows): differences of the means in sd within the two sets, with 95 % intervals.${subjects}`),
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ...["feature", "difference", "effect size", "95 % interval", "", ...(held ? ["as selected by the other half"] : [])].map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...features.map((row, index) => element("tr", {},
        element("th", { scope: "row" }, row.feature), element("td", {}, number(row.difference)), element("td", {}, number(row.size)),
        element("td", {}, interval(row.low, row.high)),
        element("td", { class: "bar" }, bar([{ from: 0, to: row.size / most, color: row.size < 0 ? "--orange" : "--blue", height: 8 }, ...(row.low === null ? [] : [{ from: row.low / most, to: row.high / most, color: "--ink", height: 2 }])])),
        ...(held ? [element("td", {}, held.size[index] === null ? "–" : `${number(held.size[index])} (${interval(held.low[index], held.high[index])})`)] : []))))),
    ));
}

function clearSelections() {
  state.a = state.b = null;
  writeAddress();
  document.querySelector("input[name=which][value=a]").checked = true;
  return Promise.all([refreshSelection("a"), refreshSelection("b"), refreshWhy()]);
}

function selectRange(event) {
  event.preventDefault();
  const value = (id, otherwise) => (get(id).value === "" ? otherwise : Number(get(id).value));
  const far = 1e30;
  const [x0, x1, y0, y1] = [value("x-low", -far), value("x-high", far), value("y-low", -far), value("y-high", far)];
  select(get("range-view").value, [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]);
}

// Take away

async function refreshCode() {
  try {
    const { python, command } = await call("code", request("right"));
    get("python").textContent = python;
    get("command").textContent = command ?? "";
    get("command-part").hidden = !command;
  } catch (error) {
    get("python").textContent = error.message;
  }
}

async function copy(id) {
  getSelection().selectAllChildren(get(id)); // so that it can be copied where a page may not
  const copied = await navigator.clipboard?.writeText(get(id).textContent).then(() => true, () => false);
  get("export-state").textContent = copied ? "The code is copied." : "The code is selected. Copy it with Ctrl-C.";
}

async function exportFile(name) {
  const status = get("export-state");
  if (["selection.csv", "effects.csv"].includes(name) && !state.a) {
    status.textContent = "Select rows first.";
    return;
  }
  status.textContent = `Making ${name}…`;
  try {
    await download(name, { ...request("right"), first: state.a, second: state.b });
    status.textContent = `${name} is downloaded.`;
  } catch (error) {
    status.textContent = error.message;
  }
}

function listen() {
  get("test-start").addEventListener("click", startTest);
  get("test-cancel").addEventListener("click", async () => watchTest(await call("cancel-test", request("right"))));
  get("colour").addEventListener("change", (event) => setColour(event.target.value));
  get("feature").addEventListener("change", (event) => setColour(`feature:${event.target.value}`));
  get("clear").addEventListener("click", clearSelections);
  get("range-form").addEventListener("submit", selectRange);
  get("label-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setSelection(which(), { kind: "label", column: state.colour, value: Number(get("label-value").value) });
  });
  document.querySelectorAll("[data-export]").forEach((button) => button.addEventListener("click", () => exportFile(button.dataset.export)));
  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button.dataset.copy)));
  views.dark.addEventListener("change", async () => { await refreshColour(); await Promise.all([views.redraw(), drawView("right")]); });
  document.querySelectorAll("[data-picture]").forEach((button) => button.addEventListener("click", () => views.picture("right", button.dataset.picture)));
}

async function main() {
  session = await call("session");
  document.title = `${session.title} – standout`;
  get("title").textContent = session.title;
  get("version").textContent = session.version;
  get("subtitle").textContent = `${session.datasets.map((dataset) => `${dataset.name}: ${dataset.rows.toLocaleString()} rows`).join("; ")}; ${session.features.toLocaleString()} features.`;
  readAddress(session);
  document.querySelectorAll(".view").forEach(buildView);
  buildDatasets();
  buildColours();
  listen();
  await views.start(session, select);
  await refreshColour();
  await Promise.all(["left", "right"].map(refreshView));
  await Promise.all(["a", "b"].map(refreshSelection));
  await refreshWhy();
  document.documentElement.dataset.ready = "true";
}

main().catch((error) => {
  get("title").textContent = `The explorer could not start: ${error.message}`;
  document.documentElement.dataset.ready = "failed";
});
