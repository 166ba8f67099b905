// The two plots: scores of the drawn rows, coloured by a column, with rings around selected rows.

import { call, points } from "./api.js";
import { request, state, writeAddress } from "./state.js";

/* global Plotly */
const MOST_TWEENED = 6000; // points that a plot can move smoothly
const TWEEN = 220; // milliseconds
const config = {
  displaylogo: false, responsive: true, scrollZoom: true,
  modeBarButtonsToRemove: ["toImage", "autoScale2d", "hoverClosestCartesian", "hoverCompareCartesian", "toggleSpikelines"],
};
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
export const dark = window.matchMedia("(prefers-color-scheme: dark)");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Plotly interprets some HTML tags, LaTeX between dollar signs and variables after a percent sign: escape them all.
const literals = { "&": "&amp;", "<": "&lt;", ">": "&gt;", $: "&#36;", "%": "&#37;" };
export const literal = (text) => String(text).replace(/[&<>$%]/g, (char) => literals[char]);
export const number = (value) => (value === null ? "–" : value === "inf" ? "∞" : Number(value).toPrecision(3).replace(/\.?0+(e|$)/, "$1"));

let session; // what does not change
let ids; // names of the drawn rows of each dataset
let sets = []; // the traces, without coordinates: dataset, rows, style
const shown = { left: null, right: null }; // what each plot shows now
const chosen = { a: [], b: [] }; // drawn target rows of the selections

export const plot = (name) => document.getElementById(`${name}-plot`);

export async function start(found, onSelect) {
  session = found;
  ids = await call("ids");
  for (const name of ["left", "right"]) {
    shown[name] = { data: null, about: null };
    await Plotly.newPlot(plot(name), [], layout(name), config);
    plot(name).on("plotly_selected", (event) => {
      const corners = event?.lassoPoints ?? event?.range;
      if (!corners) return;
      Plotly.relayout(plot(name), { selections: [] }); // rings show the rows, also after the dial has moved
      onSelect(name, polygon(corners));
    });
    plot(name).on("plotly_relayout", (changes) => {
      if (!Object.keys(changes).some((key) => key.includes("axis"))) return;
      const { xaxis, yaxis } = plot(name).layout;
      state[name].zoom = xaxis.autorange && yaxis.autorange ? null : [...xaxis.range, ...yaxis.range].map(rounded);
      writeAddress();
    });
    link(name);
  }
}

const rounded = (value) => Number(value.toPrecision(6));

/** Return the corners of a lasso or a box, at most 200 of them. */
function polygon({ x, y }) {
  const box = x.length === 2;
  const corners = box ? [[x[0], y[0]], [x[1], y[0]], [x[1], y[1]], [x[0], y[1]]] : x.map((value, index) => [value, y[index]]);
  const step = Math.ceil(corners.length / 200);
  return corners.filter((_, index) => index % step === 0).map((pair) => pair.map(rounded));
}

/** Divide the drawn rows into traces by dataset and class. */
export function setColours(colour) {
  sets = [];
  const lighter = { "#000000": "#ffffff", "#5f6368": "#dadce0" };
  const [palette, greys] = [session.colors, session.greys].map((colors) => colors.map((color) => (dark.matches && lighter[color]) || color));
  session.datasets.forEach((dataset, index) => {
    const symbol = session.symbols[index % session.symbols.length] + (index ? "-open" : "");
    const values = colour?.sets[index];
    const rows = Array.from({ length: dataset.drawn }, (_, row) => row);
    const plain = index ? greys[(index - 1) % greys.length] : palette[0];
    const label = index ? dataset.name : "target";
    if (values?.numbers) {
      sets.push({ dataset: index, rows, symbol, numbers: values.numbers, name: label });
    } else if (values?.codes) {
      const names = [...colour.classes, ...(colour.others ? [`${colour.others} other classes`] : [])];
      names.forEach((name, code) => {
        const own = rows.filter((row) => values.codes[row] === code);
        const color = code < colour.classes.length ? palette[code % palette.length] : session.missing;
        if (own.length) sets.push({ dataset: index, rows: own, symbol, color, name: index ? `${label}: ${name}` : name });
      });
      const missing = rows.filter((row) => values.codes[row] < 0);
      if (missing.length) sets.push({ dataset: index, rows: missing, symbol, color: session.missing, name: `${label}: missing` });
    } else {
      sets.push({ dataset: index, rows, symbol, color: plain, name: label });
    }
  });
  sets.sort((one, two) => (two.dataset ? 1 : 0) - (one.dataset ? 1 : 0)); // the target is drawn last, on top
  return sets;
}

const opacity = (set) => (set.dataset ? 0.45 : 0.8);

function layout(name) {
  const about = shown[name]?.about;
  const title = (place) => (place < 0 ? "row number" : about ? literal(`${about.names[place]} · ratio ${number(about.ratios[place])}`) : "");
  const { zoom } = state[name];
  const axis = (place, range) => ({
    autorange: !range, ...(range && { range }),
    title: { text: title(place), standoff: 8 }, zeroline: true, zerolinecolor: css("--line"), gridcolor: css("--grid"), automargin: true,
  });
  return {
    paper_bgcolor: css("--card"), plot_bgcolor: css("--card"), font: { color: css("--ink"), size: 12 },
    margin: { l: 52, r: 8, t: 8, b: 44 }, showlegend: false, dragmode: "lasso", hovermode: "closest", selections: [],
    newselection: { line: { color: css("--ring"), width: 1, dash: "dot" } },
    xaxis: axis(state[name].x, zoom?.slice(0, 2)), yaxis: axis(state[name].y, zoom?.slice(2)),
  };
}

/** Return the smallest and the largest of the numbers that colour the rows, if there are numbers. */
export function colourRange() {
  const numbers = sets.flatMap((set) => set.numbers ?? []).filter((value) => value !== null);
  return numbers.length ? numbers.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]) : null;
}

/** Return the traces of a plot: the points, rings around the selections, and a ring at the pointer. */
function traces(name, coordinates) {
  const places = offsets();
  const [low, high] = colourRange() ?? [];
  const many = session.datasets.reduce((sum, dataset) => sum + dataset.drawn, 0) > 4000;
  const points = sets.map((set) => {
    const { x, y } = places[set.dataset];
    return {
      type: "scattergl", mode: "markers", name: literal(set.name), visible: !state.hidden.includes(set.dataset),
      x: set.rows.map((row) => coordinates[x + row]), y: set.rows.map((row) => coordinates[y + row]),
      customdata: set.rows, meta: set.dataset, text: set.rows.map((row) => literal(ids[set.dataset][row])),
      hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
      selected: { marker: { opacity: opacity(set) } }, unselected: { marker: { opacity: opacity(set) } },
      marker: {
        symbol: set.symbol, size: many ? 4 : 7, opacity: opacity(set),
        ...(set.numbers
          ? { color: set.rows.map((row) => set.numbers[row]), colorscale: "Viridis", cmin: low, cmax: high, showscale: false }
          : { color: set.color }),
      },
    };
  });
  const rings = ["a", "b"].map((which) => ({
    type: "scattergl", mode: "markers", hoverinfo: "skip", name: `selection ${which}`, meta: -1,
    x: chosen[which].map((row) => coordinates[places[0].x + row]), y: chosen[which].map((row) => coordinates[places[0].y + row]),
    marker: { symbol: which === "a" ? "circle-open" : "square-open", size: many ? 7 : 11, color: css("--ring"), line: { width: 1.5 } },
    selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 1 } },
  }));
  const pointer = {
    type: "scattergl", mode: "markers", hoverinfo: "skip", name: "pointer", meta: -2, x: [], y: [],
    marker: { symbol: "circle-open", size: 18, color: css("--orange"), line: { width: 3 } },
  };
  return [...points, ...rings, pointer];
}

/** Return where the coordinates of each dataset begin. */
function offsets() {
  let position = 0;
  return session.datasets.map(({ drawn }) => {
    const place = { x: position, y: position + drawn };
    position += 2 * drawn;
    return place;
  });
}

async function draw(name, coordinates = shown[name].data) {
  if (coordinates) await Plotly.react(plot(name), traces(name, coordinates), layout(name), config);
}

/** Show a view: fetch its coordinates and ratios, and move the points there. */
export async function show(name) {
  const given = request(name);
  const [data, about] = await Promise.all([points(given), call("describe", given)]);
  const before = shown[name].data;
  const same = before && before.length === data.length && shown[name].key === `${given.method} ${given.x} ${given.y}`;
  shown[name] = { data, about, key: `${given.method} ${given.x} ${given.y}` };
  const few = session.datasets.reduce((sum, dataset) => sum + dataset.drawn, 0) <= MOST_TWEENED;
  if (same && few && !calm.matches) await tween(name, before, data);
  await draw(name);
  return about;
}

async function tween(name, before, after) {
  const began = performance.now();
  const between = new Float32Array(after.length);
  for (let share = 0; share < 1; ) {
    await new Promise(requestAnimationFrame);
    if (shown[name].data !== after) return; // the dial has moved on
    share = Math.min(1, (performance.now() - began) / TWEEN);
    if (share < 1) {
      const eased = share * (2 - share);
      for (let i = 0; i < after.length; i++) between[i] = before[i] + eased * (after[i] - before[i]);
      await draw(name, between);
    }
  }
}

export const redraw = () => Promise.all(["left", "right"].map((name) => draw(name)));

/** Draw rings around the drawn rows of the selections. */
export function ring(which, rows) {
  chosen[which] = rows;
  return redraw();
}

// Hovering a row in one plot rings it in the other.
function link(name) {
  const other = name === "left" ? "right" : "left";
  plot(name).on("plotly_hover", ({ points: [point] }) => {
    const dataset = point.data.meta;
    if (dataset < 0 || !shown[other].data) return;
    const { x, y } = offsets()[dataset];
    const row = point.customdata;
    const last = plot(other).data.length - 1;
    Plotly.restyle(plot(other), { x: [[shown[other].data[x + row]]], y: [[shown[other].data[y + row]]] }, [last]);
  });
  plot(name).on("plotly_unhover", () => {
    const last = plot(other).data.length - 1;
    if (last >= 0) Plotly.restyle(plot(other), { x: [[]], y: [[]] }, [last]);
  });
}

/** Draw bars of the ratios, with the noise edge. */
export function drawRatios(element, about) {
  const finite = about.ratios.map((ratio) => (ratio === "inf" ? null : ratio));
  const edge = typeof about.noise_edge === "number" ? about.noise_edge : null;
  const line = edge === null ? [] : [{ layer: "below", type: "line", x0: edge, x1: edge, y0: 0, y1: 1, yref: "paper", line: { color: css("--orange"), dash: "dash", width: 2 } }];
  const note = edge === null ? [] : [{ x: edge, y: 1, yref: "paper", yanchor: "bottom", text: `noise edge ${number(edge)}${about.shrunk ? " (unshrunk)" : ""}`, showarrow: false, font: { color: css("--orange") } }];
  element.setAttribute("aria-label", `Ratios: ${about.names.map((name, k) => `${name} ${number(about.ratios[k])}`).join(", ")}${edge === null ? "" : `; noise edge ${number(edge)}`}.`);
  return Plotly.react(element, [{
    type: "bar", orientation: "h", y: about.names.map((name, k) => `${name}  <b>${number(about.ratios[k])}</b>`), x: finite, hoverinfo: "skip",
    marker: { color: finite.map((ratio) => (edge !== null && ratio > edge ? css("--blue") : session.greys[0])) },
  }], {
    paper_bgcolor: css("--card"), plot_bgcolor: css("--card"), font: { color: css("--ink"), size: 12 },
    margin: { l: 60, r: 20, t: 22, b: 40 }, xaxis: { title: { text: "target variance / background variance" }, rangemode: "tozero", gridcolor: css("--grid") },
    yaxis: { autorange: "reversed", automargin: true, type: "category", ticks: "outside", ticklen: 6, tickcolor: css("--card") }, shapes: line, annotations: note,
  }, { ...config, displayModeBar: false, staticPlot: true });
}

/** Save the picture of a plot. */
export const picture = (name, format) =>
  Plotly.downloadImage(plot(name), { format, width: 1000, height: 800, scale: format === "png" ? 2 : 1, filename: `standout-${state[name].method}` });
