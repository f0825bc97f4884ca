"use strict";
// Sentences go to /v1/explore, which answers with inner products of every layer of every use of
// the word. All that depends on the mix (table, map) is made of those here, so that the sliders
// need no service.

const EXAMPLES = {
  play: [
    "The children play in the garden .",
    "They play football after school .",
    "He will play the second match .",
    "The play was first performed in London .",
    "She wrote a play about the war .",
    "The play opened on Broadway in 1912 .",
  ],
  bank: [
    "She sat on the bank of the river .",
    "The bank of the lake was covered in grass .",
    "They walked along the bank of the canal .",
    "The bank raised its interest rates .",
    "He took the money to the bank .",
    "The bank was sold to a foreign company .",
  ],
  spring: [
    "The flowers open in the spring .",
    "They returned in the spring of 1863 .",
    "The water of the spring is cold .",
    "A hot spring flows into the river .",
    "In spring the team won every game .",
  ],
};
const MOST_LIKELY = 8;
const WAIT = 150; // milliseconds after the last key

const $ = (id) => document.getElementById(id);
const state = {
  word: null, // null: the service chooses
  answer: null,
  weights: [],
  pair: null,
  token: "",
  request: null,
};

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function drawn(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// ------------------------------------------------------------------ talking to the service

class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function ask(address, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  let response;
  try {
    response = await fetch(address, { method: "POST", headers, body: JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service does not answer. Is it still running?", 0);
  }
  let answer = null;
  try {
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!response.ok || answer === null) {
    const message = answer && answer.error ? answer.error.message : `the service answered ${response.status}`;
    throw new Problem(kindly(message, response), response.status);
  }
  return answer;
}

function kindly(message, response) {
  if (response.status === 401) return "Please enter the access token of this service.";
  if (response.status === 429 || response.status === 503) {
    const seconds = response.headers.get("Retry-After") || "a few";
    return `The service is busy. Please try again in ${seconds} s.`;
  }
  const text = message.replace(/; see \/openapi\.json$/, "");
  return `That did not work: ${text}.`;
}

function lines() {
  return $("text").value.split("\n").map((line) => line.trim()).filter((line) => line);
}

async function update() {
  if (state.request) state.request.abort();
  const request = new AbortController();
  state.request = request;
  const start = performance.now();
  try {
    const sentences = lines();
    if (!sentences.length) {
      clear("Write a sentence or two, or take an example.");
      return;
    }
    let answer = await ask("v1/explore", { sentences, word: state.word }, request.signal);
    if (state.word && !answer.uses.length) {
      state.word = null; // it is no longer there
      answer = await ask("v1/explore", { sentences, word: null }, request.signal);
    }
    show(answer);
    problem(null);
    await likely(answer, request.signal);
    const spent = performance.now() - start;
    $("time").textContent = `Last change: ${Math.round(spent)} ms.`;
    document.body.dataset.ms = spent.toFixed(1);
    document.body.dataset.changes = String(Number(document.body.dataset.changes || 0) + 1);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    problem(error.message);
    $("access").hidden = error.status !== 401;
    if (error.status === 401) $("token").focus();
  } finally {
    if (state.request === request) state.request = null;
  }
}

function problem(message) {
  $("problem").hidden = message === null;
  $("problem").textContent = message || "";
  if (message === null) $("access").hidden = true;
}

function clear(note) {
  state.answer = null;
  problem(null);
  $("note").textContent = note;
  $("word").textContent = "…";
  for (const id of ["sentences", "heat", "map", "small", "likely"]) $(id).replaceChildren();
}

// ------------------------------------------------------------------ showing

function show(answer) {
  state.answer = answer;
  state.pair = null;
  $("model").textContent = `Model: ${answer.model}.`;
  $("word").textContent = answer.word || "…";
  if (state.weights.length !== answer.n_layers) {
    state.weights = Array(answer.n_layers).fill(1 / answer.n_layers);
    makeSliders(answer.n_layers);
  }
  showSentences(answer);
  $("note").textContent = remark(answer);
  redraw();
}

function remark(answer) {
  if (!answer.word) return "No word is used twice yet. Pick any word, or write more.";
  if (answer.uses.length === 1) return `“${answer.word}” is used once; use it again to compare.`;
  if (answer.left_out) return `${answer.left_out} more uses are left out.`;
  return `${answer.uses.length} uses of “${answer.word}”.`;
}

function showSentences(answer) {
  const focused = document.activeElement && document.activeElement.dataset.place;
  const word = (answer.word || "").toLowerCase();
  const items = answer.sentences.map((sentence, number) => {
    const tokens = sentence.tokens.map((token, position) => {
      const chosen = token.toLowerCase() === word;
      return make("button", {
        type: "button", "aria-pressed": String(chosen), "data-place": `${number}.${position}`,
        onclick: () => pick(token),
      }, token);
    });
    return make("li", {}, ...tokens);
  });
  $("sentences").replaceChildren(...items);
  if (focused) {
    const again = document.querySelector(`[data-place="${focused}"]`);
    if (again) again.focus();
  }
}

function pick(token) {
  state.word = token;
  update();
}

function context(use, around = 5) {
  const tokens = state.answer.sentences[use.sentence].tokens;
  const before = tokens.slice(Math.max(0, use.position - around), use.position).join(" ");
  const after = tokens.slice(use.position + 1, use.position + 1 + around).join(" ");
  return [
    (use.position > around ? "… " : "") + (before ? `${before} ` : ""),
    make("mark", {}, tokens[use.position]),
    (after ? ` ${after}` : "") + (use.position + 1 + around < tokens.length ? " …" : ""),
  ];
}

function makeSliders(count) {
  const rows = [];
  for (let k = 0; k < count; k += 1) {
    const id = `layer-${k}`;
    rows.push(
      make("label", { for: id }, k ? `layer ${k}` : "layer 0 (word)"),
      make("input", {
        id, type: "range", min: "0", max: "1", step: "0.05", value: String(state.weights[k]),
        oninput: (event) => { state.weights[k] = Number(event.target.value); redraw(); },
      }),
      make("output", { for: id, id: `${id}-value` }),
    );
  }
  $("sliders").replaceChildren(...rows);
  const presets = [["all alike", null]];
  for (let k = 0; k < count; k += 1) presets.push([k ? `layer ${k} alone` : "word alone", k]);
  $("presets").replaceChildren(...presets.map(([name, layer]) => make("button", {
    type: "button", "data-preset": String(layer),
    onclick: () => {
      state.weights = state.weights.map((_, k) => (layer === null ? 1 / count : Number(k === layer)));
      redraw();
    },
  }, name)));
}

function redraw() {
  const answer = state.answer;
  state.weights.forEach((weight, k) => {
    $(`layer-${k}`).value = String(weight);
    $(`layer-${k}-value`).textContent = weight.toFixed(2);
  });
  const single = state.weights.filter((weight) => weight > 0).length === 1;
  const even = state.weights.every((weight) => Math.abs(weight - state.weights[0]) < 1e-9);
  for (const button of $("presets").children) {
    const layer = button.dataset.preset;
    const on = layer === "null" ? even && state.weights[0] > 0 : single && state.weights[Number(layer)] > 0;
    button.setAttribute("aria-pressed", String(on));
  }
  if (!answer || !answer.uses.length) {
    for (const id of ["heat", "map", "small"]) $(id).replaceChildren();
    return;
  }
  const table = cosines(answer.products, state.weights);
  showHeat(table);
  showMap(table);
  showSmall(answer);
}

// From unlike (paper) to alike (green); what differs in this table is what counts.
function shading(table) {
  let low = 0.8;
  table.forEach((row, i) => row.forEach((value, j) => { if (i !== j) low = Math.min(low, value); }));
  return (cell, value) => {
    const share = Math.min(1, Math.max(0, (value - low) / (1 - low)));
    const mix = (from, to) => Math.round(from + (to - from) * share);
    cell.style.backgroundColor = `rgb(${mix(250, 11)} ${mix(232, 110)} ${mix(200, 79)})`;
    cell.style.color = share > 0.55 ? "#ffffff" : "#1d2321";
  };
}

function showHeat(table) {
  const uses = state.answer.uses;
  const shade = shading(table);
  const head = make("tr", {}, make("td", { "aria-hidden": "true" }), ...uses.map((_, k) => make("th", { scope: "col" }, String(k + 1))));
  const rows = table.map((row, i) => {
    const cells = row.map((value, j) => {
      const first = state.pair ? state.pair[0] === i && state.pair[1] === j : i === 0 && j === 0;
      const cell = make("td", {
        tabindex: first ? "0" : "-1", "data-cell": `${i}.${j}`,
        onclick: () => choose(i, j), onfocus: () => choose(i, j),
        onkeydown: (event) => walk(event, i, j, uses.length),
      }, value.toFixed(2));
      shade(cell, value);
      return cell;
    });
    const sentence = make("td", { class: "context" }, ...context(uses[i], 2));
    return make("tr", {}, make("th", { scope: "row" }, String(i + 1)), ...cells, sentence);
  });
  const active = document.activeElement && document.activeElement.dataset.cell;
  $("heat").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  if (active) {
    const cell = document.querySelector(`[data-cell="${active}"]`);
    if (cell) cell.focus();
  }
  tell(table);
}

function walk(event, i, j, count) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  const row = Math.min(count - 1, Math.max(0, i + step[0]));
  const column = Math.min(count - 1, Math.max(0, j + step[1]));
  const next = document.querySelector(`[data-cell="${row}.${column}"]`);
  if (next) next.focus();
}

function choose(i, j) {
  state.pair = [i, j];
  for (const cell of document.querySelectorAll("[data-cell]")) {
    cell.tabIndex = cell.dataset.cell === `${i}.${j}` ? 0 : -1;
  }
  for (const point of $("map").querySelectorAll("g")) {
    point.classList.toggle("on", Number(point.dataset.use) === i || Number(point.dataset.use) === j);
  }
  tell(cosines(state.answer.products, state.weights));
}

function tell(table) {
  if (!state.pair || state.pair[0] >= table.length || state.pair[1] >= table.length) {
    $("pair").textContent = "Pick a cell to see its two sentences.";
    return;
  }
  const [i, j] = state.pair;
  const uses = state.answer.uses;
  $("pair").replaceChildren(`${table[i][j].toFixed(2)}: `, ...context(uses[i], 8), make("br"), "with ", ...context(uses[j], 8));
}

function showSmall(answer) {
  const figures = state.weights.map((_, layer) => {
    const alone = state.weights.map((_, k) => Number(k === layer));
    const table = cosines(answer.products, alone);
    const shade = shading(table);
    const cells = table.flatMap((row, i) => row.map((value, j) => {
      const cell = make("div", { title: `${i + 1} and ${j + 1}: ${value.toFixed(2)}` });
      shade(cell, value);
      return cell;
    }));
    let sum = 0;
    table.forEach((row, i) => row.forEach((value, j) => { if (i !== j) sum += value; }));
    const pairs = table.length * (table.length - 1);
    const mean = pairs ? `, mean ${(sum / pairs).toFixed(2)}` : "";
    const grid = make("div", { class: "grid", role: "img", "aria-label": `Cosines in layer ${layer}${mean}` }, ...cells);
    grid.style.gridTemplateColumns = `repeat(${table.length}, 1fr)`;
    return make("figure", {}, grid,
      make("figcaption", {}, `layer ${layer}${mean}`));
  });
  $("small").replaceChildren(...figures);
}

function showMap(table) {
  const points = spread(table);
  const width = 400, height = 220, edge = 20;
  const reach = Math.max(1e-9, ...points.flat().map(Math.abs));
  const svg = $("map");
  const old = new Map([...svg.querySelectorAll("g")].map((node) => [Number(node.dataset.use), node]));
  points.forEach(([x, y], k) => {
    let node = old.get(k);
    if (!node) {
      node = drawn("g", { "data-use": k, tabindex: "0", role: "img" },
        drawn("title", {}), drawn("circle", { r: 11 }), drawn("text", {}, String(k + 1)));
      node.addEventListener("click", () => choose(k, k));
      node.addEventListener("focus", () => choose(k, k));
      svg.append(node);
    }
    old.delete(k);
    const use = state.answer.uses[k];
    node.querySelector("title").textContent = `${k + 1}: ${state.answer.sentences[use.sentence].tokens.join(" ")}`;
    const left = width / 2 + (x / reach) * (width / 2 - edge);
    const top = height / 2 - (y / reach) * (height / 2 - edge);
    node.setAttribute("transform", `translate(${left.toFixed(1)} ${top.toFixed(1)})`);
  });
  for (const node of old.values()) node.remove();
}

async function likely(answer, signal) {
  const uses = answer.uses.slice(0, MOST_LIKELY);
  if (!answer.language_model) {
    $("likely").replaceChildren(make("p", { class: "quiet" }, "This model came without its language model, so it cannot say."));
    return;
  }
  if (!uses.length) {
    $("likely").replaceChildren();
    return;
  }
  const found = await ask("v1/substitutes", {
    tokens: uses.map((use) => answer.sentences[use.sentence].tokens),
    positions: uses.map((use) => use.position),
    k: 8,
  }, signal);
  const items = found.results.map((result, k) => {
    const bars = result.words.map((word) => {
      const share = Math.exp(word.log_prob);
      const bar = make("span", { title: `${(100 * share).toFixed(1)} %` }, word.word);
      bar.style.opacity = String(Math.max(0.65, Math.min(1, 0.6 + 3 * share)));
      return bar;
    });
    return make("li", {}, make("div", { class: "quiet" }, ...context(uses[k], 5)), make("div", { class: "bars" }, ...bars));
  });
  $("likely").replaceChildren(...items);
}

// ------------------------------------------------------------------ arithmetic

// products[i][l][j][m] and a weight for each layer: the cosine of every two mixed vectors.
function cosines(products, weights) {
  const inner = products.map((left) => products.map((_, j) => {
    let sum = 0;
    weights.forEach((a, l) => weights.forEach((b, m) => { sum += a * b * left[l][j][m]; }));
    return sum;
  }));
  const lengths = inner.map((row, i) => Math.sqrt(Math.max(0, row[i])));
  return inner.map((row, i) => row.map((value, j) => {
    const scale = lengths[i] * lengths[j];
    return scale > 0 ? Math.max(-1, Math.min(1, value / scale)) : 0;
  }));
}

// Principal components of vectors of which only the inner products are known: centre the table,
// then its two largest eigenvectors, each times the root of its value.
function spread(table) {
  const n = table.length;
  const means = table.map((row) => row.reduce((a, b) => a + b, 0) / n);
  const all = means.reduce((a, b) => a + b, 0) / n;
  const centred = table.map((row, i) => row.map((value, j) => value - means[i] - means[j] + all));
  const { values, vectors } = eigen(centred);
  const order = values.map((_, k) => k).sort((a, b) => values[b] - values[a]).slice(0, 2);
  const axes = order.map((k) => {
    const scale = Math.sqrt(Math.max(0, values[k]));
    const axis = vectors.map((row) => row[k] * scale);
    // An eigenvector has no sign of its own; a fixed one keeps the map from flipping.
    const largest = axis.reduce((best, value) => (Math.abs(value) > Math.abs(best) + 1e-9 ? value : best), 0);
    return largest < 0 ? axis.map((value) => -value) : axis;
  });
  const flat = values[order[0]] < 1e-9;
  return table.map((_, i) => [flat ? 0 : axes[0][i], axes[1] && !flat ? axes[1][i] : 0]);
}

// Jacobi's method for a symmetric matrix; columns of `vectors` belong to `values`.
function eigen(matrix) {
  const n = matrix.length;
  const a = matrix.map((row) => row.slice());
  const v = a.map((_, i) => a.map((_, j) => Number(i === j)));
  for (let sweep = 0; sweep < 30; sweep += 1) {
    let off = 0;
    for (let p = 0; p < n; p += 1) for (let q = p + 1; q < n; q += 1) off += a[p][q] * a[p][q];
    if (off < 1e-18) break;
    for (let p = 0; p < n; p += 1) {
      for (let q = p + 1; q < n; q += 1) {
        if (Math.abs(a[p][q]) < 1e-15) continue;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(t * t + 1), s = t * c;
        for (let k = 0; k < n; k += 1) {
          const x = a[k][p], y = a[k][q];
          a[k][p] = c * x - s * y;
          a[k][q] = s * x + c * y;
        }
        for (let k = 0; k < n; k += 1) {
          const x = a[p][k], y = a[q][k];
          a[p][k] = c * x - s * y;
          a[q][k] = s * x + c * y;
          const left = v[k][p], right = v[k][q];
          v[k][p] = c * left - s * right;
          v[k][q] = s * left + c * right;
        }
      }
    }
  }
  return { values: a.map((row, k) => row[k]), vectors: v };
}

// ------------------------------------------------------------------ start

function start() {
  for (const name of Object.keys(EXAMPLES)) {
    $("examples").append(make("button", {
      type: "button",
      onclick: () => { $("text").value = EXAMPLES[name].join("\n"); state.word = name; update(); },
    }, name));
  }
  $("examples").append(make("button", {
    type: "button",
    onclick: () => {
      $("text").value = lines().join(" ").replace(/([.!?…]["”’)]?)\s+(?=\S)/g, "$1\n");
      update();
    },
  }, "break text into lines"));
  let timer = 0;
  $("text").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, WAIT);
  });
  $("access").addEventListener("submit", (event) => {
    event.preventDefault();
    state.token = $("token").value.trim();
    update();
  });
  if (!$("text").value) $("text").value = EXAMPLES.play.join("\n");
  update();
}

start();
