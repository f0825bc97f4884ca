"use strict";
// Sentences go to /v1/explore, which answers with the inner products of every layer of every use of
// the word, and with the words that could stand in each place. Everything that is shown is made of
// those here, so that a change of view needs no service. A page that was saved by elmo.explore()
// holds such an answer and asks nobody.

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
const MOST_WORDS = 8;
const WAIT = 150; // milliseconds after the last key

const $ = (id) => document.getElementById(id);
const saved = $("answer") ? JSON.parse($("answer").textContent) : null;
const state = {
  word: null, // null: the service chooses
  answer: null,
  view: "senses", // or "mean", "mix", the number of a layer
  weights: [], // of the layers in the mix
  table: null, // the cosines that are shown
  pair: null, // two uses
  token: "",
  request: null,
};

function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function button(text, pressed, onclick, more = {}) {
  return make("button", { type: "button", "aria-pressed": String(pressed), onclick, ...more }, text);
}

// Redraw a part of the page without losing the focus of whoever walks through it by keyboard.
function replace(parent, ...children) {
  const active = parent.contains(document.activeElement) && document.activeElement.dataset.key;
  parent.replaceChildren(...children);
  const again = active && parent.querySelector(`[data-key="${active}"]`);
  if (again) again.focus({ preventScroll: true });
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
  const how = body === undefined ? { headers, signal } : { method: "POST", headers, body: JSON.stringify(body), signal };
  let response;
  try {
    response = await fetch(address, how);
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
      clear();
      return;
    }
    let answer = await ask("v1/explore", { sentences, word: state.word }, request.signal);
    if (state.word && !answer.uses.length) {
      state.word = null; // it is no longer there
      answer = await ask("v1/explore", { sentences, word: null }, request.signal);
    }
    problem(null);
    show(answer);
    labelSentences(request.signal);
    const spent = performance.now() - start;
    $("time").textContent = `Last change: ${Math.round(spent)} ms.`;
    document.body.dataset.ms = spent.toFixed(1);
    document.body.dataset.changes = String(Number(document.body.dataset.changes || 0) + 1);
  } catch (error) {
    complain(error);
  } finally {
    if (state.request === request) state.request = null;
  }
}

function complain(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Problem)) throw error;
  problem(error.message);
  $("access").hidden = error.status !== 401;
  if (error.status === 401) $("token").focus();
}

function problem(message) {
  $("problem").hidden = message === null;
  $("problem").textContent = message || "";
  document.body.classList.toggle("stale", message !== null);
  if (message === null) $("access").hidden = true;
}

function clear() {
  state.answer = null;
  problem(null);
  $("note").textContent = "Write a sentence or two, or take an example.";
  $("word").textContent = "…";
  $("sentences").replaceChildren();
  redraw();
  $("tagging").hidden = true;
}

// ------------------------------------------------------------------ showing

function show(answer) {
  const views = viewsOf(answer);
  if (!views.some(([view]) => view === state.view)) state.view = views[0][0];
  if (state.weights.length !== answer.n_layers) {
    state.weights = Array(answer.n_layers).fill(1 / answer.n_layers);
    makeSliders(answer.n_layers);
  }
  state.answer = answer;
  state.pair = null;
  $("model").textContent = `Model: ${answer.model}`;
  $("word").textContent = answer.word || "…";
  showSentences(answer);
  $("note").textContent = remark(answer);
  redraw();
}

function viewsOf(answer) {
  const layers = Array.from({ length: answer.n_layers }, (_, k) => [k, `layer ${k}`]);
  const senses = answer.senses ? [["senses", "sense vectors"]] : [];
  return [...senses, ["mean", "mean of all layers"], ...layers, ["mix", "own mix"]];
}

function remark(answer) {
  const without = answer.senses ? "" : " This model has no softmax, so there are no sense vectors; layers are compared.";
  if (!answer.word) return `No word is used twice yet. Pick any word, or write more.${without}`;
  if (answer.uses.length === 1) return `“${answer.word}” is used once; use it again to compare.${without}`;
  const more = answer.left_out ? `, and ${answer.left_out} more are left out` : "";
  return `${answer.uses.length} uses of “${answer.word}”${more}.${without}`;
}

// A use is called by the number of its sentence; if a sentence has several, they are 2a, 2b, ...
function label(k) {
  const uses = state.answer.uses;
  const here = uses.map((use, i) => [use.sentence, i]).filter(([s]) => s === uses[k].sentence);
  const letter = here.findIndex(([, i]) => i === k);
  return String(uses[k].sentence + 1) + (here.length > 1 ? String.fromCharCode(97 + (letter % 26)) : "");
}

const badge = (text) => make("span", { class: "number" }, text);

function showSentences(answer) {
  const word = (answer.word || "").toLowerCase();
  replace($("sentences"), ...answer.sentences.map((sentence, number) => {
    let used = false;
    const tokens = sentence.tokens.flatMap((token, position) => {
      const chosen = token.toLowerCase() === word;
      used = used || chosen;
      if (saved) return [chosen ? make("mark", {}, token) : token, " "];
      return [button(token, chosen, () => { state.word = token; update(); }, { "data-key": `${number}.${position}` })];
    });
    return make("li", used ? {} : { class: "unused" }, badge(String(number + 1)), make("span", {}, ...tokens));
  }));
}

function context(k, before, after = before) {
  const use = state.answer.uses[k];
  const tokens = state.answer.sentences[use.sentence].tokens;
  const start = Math.max(0, use.position - before);
  const end = Math.min(tokens.length, use.position + 1 + after);
  return [
    (start ? "… " : "") + tokens.slice(start, use.position).map((token) => `${token} `).join(""),
    make("mark", {}, tokens[use.position]),
    tokens.slice(use.position + 1, end).map((token) => ` ${token}`).join("") + (end < tokens.length ? " …" : ""),
  ];
}

function makeSliders(count) {
  const rows = Array.from({ length: count }, (_, k) => [
    make("label", { for: `layer-${k}` }, `layer ${k}`),
    make("input", {
      id: `layer-${k}`, type: "range", min: "0", max: "1", step: "0.05",
      oninput: (event) => { state.weights[k] = Number(event.target.value); redraw(); },
    }),
    make("output", { for: `layer-${k}`, id: `layer-${k}-value` }),
  ]);
  $("sliders").replaceChildren(...rows.flat());
}

// The cosine of every two uses in a view.
function tableOf(view) {
  const answer = state.answer;
  if (view === "senses") return sparseCosines(answer.senses);
  const weights = state.weights.map((weight, k) => (view === "mix" ? weight : Number(view === "mean" || view === k)));
  return cosines(answer.products, weights);
}

function redraw() {
  const answer = state.answer;
  replace($("choices"), ...(answer ? viewsOf(answer) : []).map(([view, name]) => button(name, view === state.view, () => {
    state.view = view;
    redraw();
  }, { "data-key": view })));
  $("sliders").hidden = !answer || state.view !== "mix";
  state.weights.forEach((weight, k) => {
    $(`layer-${k}`).value = String(weight);
    $(`layer-${k}-value`).textContent = weight.toFixed(2);
  });
  const count = answer ? answer.uses.length : 0;
  const reason = answer && answer.word ? `“${answer.word}” is used once. Use it in another sentence to compare.`
    : answer ? "Pick a word above." : "Write some sentences first.";
  empty("compare", count < 2 && reason);
  empty("spread", count < 2 && reason);
  empty("layers", count < 2 && reason);
  empty("words", (!count && reason) || (answer && !answer.senses && "This model has no softmax, so it predicts no words."));
  if (count > 1) {
    const table = tableOf(state.view);
    state.table = table;
    state.pair = state.pair || mostSimilar(table);
    showHeat(table);
    showMap(table);
    showSmall(answer);
  }
  showWords();
}

function mostSimilar(table) {
  let best = [0, 1];
  table.forEach((row, i) => row.forEach((value, j) => { if (i < j && value > table[best[0]][best[1]]) best = [i, j]; }));
  return best;
}

// A card shows what it is for, or one line that says why it cannot.
function empty(id, reason) {
  for (const node of $(id).children) {
    if (node.className === "empty") {
      node.hidden = !reason;
      node.textContent = reason || "";
    } else if (node.tagName !== "H2" && node.id !== "sliders") node.hidden = Boolean(reason);
  }
}

// ------------------------------------------------------------------ colours

function colour(name) {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
}

// From different to similar. The scale is fixed unless it is stretched to what this table has.
function shading(table) {
  const bottom = $("stretch").checked ? Math.min(...table.flat()) : 0;
  const [from, to] = [colour("--low"), colour("--high")];
  const shade = (cell, value) => {
    const share = Math.min(1, Math.max(0, bottom < 1 ? (value - bottom) / (1 - bottom) : 1));
    const mixed = from.map((part, k) => Math.round(part + (to[k] - part) * share));
    const light = mixed.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    cell.style.backgroundColor = `rgb(${mixed.join(" ")})`;
    // Where black and white have the same contrast with the background.
    cell.style.color = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.179 ? "#000" : "#fff";
  };
  return { shade, bottom };
}

// ------------------------------------------------------------------ the cards

function showHeat(table) {
  const { shade, bottom } = shading(table);
  const [first, second] = state.pair;
  $("low").textContent = bottom.toFixed(bottom ? 2 : 0);
  const head = make("div", { role: "row" }, make("div", { role: "columnheader", class: "corner" }, "use"),
    ...table.map((_, k) => make("div", { role: "columnheader" }, label(k))));
  const rows = table.map((row, i) => make("div", { role: "row" },
    make("div", { role: "rowheader" }, badge(label(i)), make("span", { class: "context" }, ...context(i, 3, 9))),
    ...row.map((value, j) => {
      const here = i === first && j === second;
      const cell = make("div", {
        role: "gridcell", class: here ? "on" : null, tabindex: here ? "0" : "-1", "data-key": `${i}.${j}`,
        onclick: () => choose(i, j), onkeydown: (event) => walk(event, i, j, table.length),
      }, value.toFixed(2));
      shade(cell, value);
      return cell;
    })));
  $("heat").style.setProperty("--n", String(table.length));
  replace($("heat"), head, ...rows);
  showPair(table);
}

function walk(event, i, j, count) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  choose(Math.min(count - 1, Math.max(0, i + step[0])), Math.min(count - 1, Math.max(0, j + step[1])));
  $("heat").querySelector("[tabindex='0']").focus();
}

function choose(i, j) {
  state.pair = [i, j];
  for (const cell of $("heat").querySelectorAll("[tabindex]")) {
    const here = cell.dataset.key === `${i}.${j}`;
    cell.classList.toggle("on", here);
    cell.tabIndex = here ? 0 : -1;
  }
  showPair(state.table);
  for (const point of $("map").children) point.classList.toggle("on", [i, j].includes(Number(point.dataset.use)));
  showWords();
}

function showPair(table) {
  const [i, j] = state.pair;
  const line = (k) => make("p", {}, badge(label(k)), " ", ...context(k, 12));
  const parts = i === j ? [line(i)] : [make("p", {}, make("strong", {}, table[i][j].toFixed(2)), ` is the cosine of ${label(i)} and ${label(j)}:`), line(i), line(j)];
  if (state.answer.senses) {
    const words = (i === j ? weighed(i) : sharedWords(i, j)).slice(0, MOST_WORDS).map(([word]) => chip(word, i !== j));
    const title = i === j ? "Words that fit here: " : words.length ? "Words that fit in both places: " : "No word fits in both places.";
    parts.push(make("div", { class: "chips" }, make("span", { class: "quiet" }, title), ...words));
  }
  $("pair").replaceChildren(...parts);
}

const chip = (word, shared, title) => make("span", { class: shared ? "chip shared" : "chip", title }, word);

// The words that are more likely at a place than in general, by how much more.
function weighed(k) {
  const { words, weights } = state.answer.senses[k];
  return words.map((word, at) => [word, weights[at]]).sort((a, b) => b[1] - a[1]);
}

// The words of two places, by what each adds to their cosine.
function sharedWords(i, j) {
  const other = new Map(weighed(j));
  return weighed(i).filter(([word]) => other.has(word))
    .map(([word, weight]) => [word, weight * other.get(word)]).sort((a, b) => b[1] - a[1]);
}

function showWords() {
  const answer = state.answer;
  if (!answer || !answer.senses || !answer.uses.length) return;
  const [i, j] = state.pair || [0, 0];
  const shared = new Set(i === j ? [] : sharedWords(i, j).map(([word]) => word));
  $("likely").replaceChildren(...answer.uses.map((_, k) => make("li", {},
    make("div", {}, badge(label(k)), " ", ...context(k, 6)),
    make("div", { class: "chips" }, ...weighed(k).slice(0, MOST_WORDS).map(
      ([word, weight]) => chip(word, (k === i || k === j) && shared.has(word), `e^${weight.toFixed(1)} times likelier than in general`))))));
  $("likely-note").textContent = "What the language model finds more likely here than in general" +
    (shared.size ? `; words that ${label(i)} and ${label(j)} share are green.` : ".");
}

function showSmall(answer) {
  const figures = viewsOf(answer).filter(([view]) => view === "senses" || typeof view === "number").map(([view, name]) => {
    const table = tableOf(view);
    const { shade } = shading(table);
    const cells = table.flatMap((row, i) => row.map((value, j) => {
      const cell = make("div", { title: `${label(i)} and ${label(j)}: ${value.toFixed(2)}` });
      shade(cell, value);
      return cell;
    }));
    const pairs = table.length * (table.length - 1);
    const mean = ((table.flat().reduce((a, b) => a + b, 0) - table.length) / pairs).toFixed(2);
    const grid = make("div", { class: "grid", role: "img", "aria-label": `Cosines of the ${name}, mean ${mean}` }, ...cells);
    grid.style.gridTemplateColumns = `repeat(${table.length}, 1fr)`;
    return make("figure", {}, grid, make("figcaption", {}, make("strong", {}, name), make("br"), `mean cosine ${mean}`));
  });
  $("small").replaceChildren(...figures);
}

const RADIUS = 11;

function showMap(table) {
  const { width, height } = $("chart").getBoundingClientRect();
  if (!width) return; // hidden
  const points = spread(table);
  const [x, y] = [0, 1].map((axis) => Math.max(1e-9, ...points.map((point) => Math.abs(point[axis]))));
  const scale = Math.min((width / 2 - 3 * RADIUS) / x, (height / 2 - 3 * RADIUS) / y);
  const places = points.map((point) => [width / 2 + point[0] * scale, height / 2 - point[1] * scale]);
  const numbers = apart(places, width, height);
  replace($("map"), ...places.map(([left, top], k) => {
    const [at, on] = numbers[k];
    const group = drawn("g", { "data-use": k, "data-key": k, tabindex: "0", role: "button", "aria-label": `${label(k)}: ${sentenceOf(k)}` },
      drawn("line", { x1: left, y1: top, x2: at, y2: on }), drawn("circle", { class: "dot", cx: left, cy: top, r: 3 }),
      drawn("circle", { class: "badge", cx: at, cy: on, r: RADIUS }), drawn("text", { x: at, y: on }, label(k)));
    group.classList.toggle("on", state.pair.includes(k));
    for (const event of ["pointerenter", "focus"]) group.addEventListener(event, () => tip($("tip"), at, on, [badge(label(k)), " ", sentenceOf(k)]));
    for (const event of ["pointerleave", "blur"]) group.addEventListener(event, () => { $("tip").hidden = true; });
    const pick = () => { choose(k, k); tip($("tip"), at, on, [badge(label(k)), " ", sentenceOf(k)]); };
    group.addEventListener("click", pick);
    group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } });
    return group;
  }));
}

const sentenceOf = (k) => state.answer.sentences[state.answer.uses[k].sentence].tokens.join(" ");

// Move numbers apart until none hides another; each keeps a line to its point.
function apart(places, width, height) {
  const found = places.map(([x, y], k) => [x + Math.cos(k * 2.4) * 0.5, y + Math.sin(k * 2.4) * 0.5]);
  const least = 2 * RADIUS + 2;
  for (let round = 0; round < 200; round += 1) {
    let moved = false;
    for (let i = 0; i < found.length; i += 1) {
      for (let j = 0; j < i; j += 1) {
        const dx = found[i][0] - found[j][0], dy = found[i][1] - found[j][1];
        const distance = Math.hypot(dx, dy);
        if (distance >= least) continue;
        const push = (least - distance) / 2 + 0.1;
        const [ux, uy] = distance ? [dx / distance, dy / distance] : [1, 0];
        found[i][0] += ux * push; found[i][1] += uy * push;
        found[j][0] -= ux * push; found[j][1] -= uy * push;
        moved = true;
      }
    }
    for (const point of found) {
      point[0] = Math.min(width - RADIUS - 2, Math.max(RADIUS + 2, point[0]));
      point[1] = Math.min(height - RADIUS - 2, Math.max(RADIUS + 2, point[1]));
    }
    if (!moved) break;
  }
  return found;
}

// Show a box next to a point of its parent, where there is space for it.
function tip(box, x, y, content) {
  const parent = box.parentElement;
  box.replaceChildren(...content);
  box.hidden = false;
  const left = Math.min(parent.clientWidth - box.offsetWidth - 4, Math.max(4, x - box.offsetWidth / 2));
  const above = y - box.offsetHeight - 16;
  box.style.left = `${left}px`;
  box.style.top = `${above >= 0 ? above : y + 16}px`;
}

// ------------------------------------------------------------------ trained models

const tasks = { models: [], chosen: null, asked: 0 };

async function openTasks() {
  try {
    tasks.models = (await ask("v1/tasks")).data.map((model) => model.id);
  } catch (error) {
    return; // there are none
  }
  tasks.chosen = tasks.chosen || tasks.models[0];
  labelSentences();
}

async function labelSentences(signal) {
  const sentences = lines(), turn = ++tasks.asked;
  $("tagging").hidden = !tasks.models.length || !sentences.length;
  if ($("tagging").hidden) return;
  replace($("models"), ...tasks.models.map((name) => button(name, name === tasks.chosen, () => {
    tasks.chosen = name;
    labelSentences();
  }, { "data-key": name })));
  try {
    const found = await ask(`v1/tasks/${encodeURIComponent(tasks.chosen)}`, { sentences }, signal);
    if (turn !== tasks.asked) return; // other sentences or another model were asked for since
    $("tagged").replaceChildren(...found.results.map((result, k) => make("li", {}, badge(String(k + 1)), make("span", {}, ...labelled(result, sentences[k])))));
  } catch (error) {
    complain(error);
  }
}

// One label below each token, or one for the sentence.
function labelled(result, sentence) {
  const percent = (value) => (value === undefined ? undefined : `${Math.round(100 * value)} %`);
  if (!result.tags) {
    const names = [].concat(result.label).map(String);
    const of = (name) => percent((result.probabilities || {})[name]);
    return [...names.map((name) => chip(of(name) ? `${name} ${of(name)}` : name, true)), ` ${sentence}`];
  }
  return result.tokens.map((token, at) => make("span", { class: result.tags[at] === "O" ? "token" : "token marked", title: percent((result.probabilities || [])[at]) },
    token, make("small", {}, result.tags[at] === "O" ? "\u00a0" : result.tags[at])));
}

// ------------------------------------------------------------------ a corpus

// The senses of a word in the index that is served: /v1/models says whether there is one.
const corpus = {
  about: null,
  data: null, // senses and points of a word
  names: {}, // of senses, as somebody renamed them
  sense: 0, // the one to show; 0: all
  picked: null, // uses inside the brush, as places in data.rows
  hits: null, // of a search by example
  group: -1, // whose uses are picked, as the place in data.groups
  most: 100, // lines to show
  texts: new Map(), // row of the index to its line
  base: null, // the picture of all points
  brush: null, hover: -1, shown: 0,
};
// Frequent words that nobody wants to see first.
const DULL = new Set("that with this from have were which they their there would when what been said will them then into than could some more only about other these after over upon also".split(" "));
const PER_SENSE = 6, LINES = 100, PER_REQUEST = 500, MOST_SOURCES = 10;
const senseColour = (number) => `var(--s${((number - 1) % 8) + 1})`;

async function openCorpus() {
  try {
    const [model] = (await ask("v1/models")).data;
    if (!model.index) return;
    corpus.about = await ask("v1/index");
  } catch (error) {
    return; // the sentences tell what is wrong
  }
  const { n_uses, n_words, name, words } = corpus.about;
  $("views").hidden = false;
  $("about").textContent = `${n_uses.toLocaleString("en")} uses of ${n_words.toLocaleString("en")} words in “${name}”.`;
  $("indexed").replaceChildren(...words.map(({ word }) => make("option", { value: word })));
  $("frequent").replaceChildren(make("span", { class: "quiet" }, "Frequent:"), ...words.slice(0, 12).map(({ word }) => make("button", {
    type: "button", onclick: () => { $("query").value = word; search(word); },
  }, word)));
  $("documents").hidden = !corpus.about.fields.length;
  for (const name of corpus.about.fields) $("by").append(make("option", { value: name }, name));
  const first = words.find(({ word }) => word.length > 3 && !DULL.has(word)) || words[0];
  const usual = ["date", "year", "genre", "corpus"].find((name) => corpus.about.fields.includes(name));
  if (!readAddress()) {
    $("query").value = first.word;
    $("by").value = usual || "";
  }
  view("corpus");
  drawCorpus();
  search($("query").value);
}

// Fill in the question that the address of the page keeps, if there is one.
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  for (const [id, name] of [["query", "q"], ["where", "where"], ["by", "by"]]) $(id).value = address.get(name) || "";
  return address.has("q");
}

function view(name) {
  for (const one of $("views").children) one.setAttribute("aria-pressed", String(one.dataset.view === name));
  for (const one of ["sentences", "corpus"]) $(`${one}-view`).hidden = one !== name;
}

async function search(text) {
  const marked = /\[([^\]]+)\]/.exec(text);
  const word = (marked ? marked[1] : text).trim();
  if (!word) return;
  if (!marked && /\s/.test(word) && !word.includes(",") && !corpus.about.words.some((one) => one.word === word.toLowerCase())) {
    problem(`Put one word in brackets to find similar uses, as in: ${word.replace(/\S+$/, "[$&]")}`);
    return;
  }
  document.body.classList.add("stale");
  const where = $("where").value.split(";").map((one) => one.trim()).filter((one) => one);
  const by = $("by").value || null;
  const address = new URLSearchParams(Object.entries({ q: text, where: where.join("; "), by: by || "" }).filter(([, value]) => value));
  try {
    const data = await ask("v1/index/senses", { word, where, by });
    const found = marked && await ask("v1/index/find", { text, where, k: 50 });
    Object.assign(corpus, { data, sense: 0, picked: null, group: -1, most: LINES, hover: -1, hits: found ? found.hits : null });
    if (location.hash.slice(1) !== String(address)) history.replaceState(null, "", `#${address}`);
    $("corpus-title").textContent = `${data.word} in ${corpus.about.name}`;
    document.title = `${data.word} in ${corpus.about.name}: elmore`;
    corpus.names = remembered();
    for (const hit of corpus.hits || []) corpus.texts.set(hit.row, hit);
    problem(null);
    drawCorpus();
    document.body.dataset.searches = String(Number(document.body.dataset.searches || 0) + 1);
  } catch (error) {
    complain(error);
  }
}

// Names live in this browser, and in what is exported; the service never writes. Other documents
// have other senses, which the sizes tell apart.
const drawer = () => `elmore ${corpus.about.name} ${corpus.data.word} ${corpus.data.senses.map((sense) => sense.count).join(" ")}`;

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(drawer())) || {};
  } catch (error) {
    return {};
  }
}

function rename(number, name) {
  corpus.names[number] = name.trim() || undefined;
  try {
    localStorage.setItem(drawer(), JSON.stringify(corpus.names));
  } catch (error) {
    // A browser may refuse to keep anything; the names hold until the page is closed.
  }
  showLines();
}

const senseName = (sense) => corpus.names[sense.number] || sense.name.slice(0, 3).join(", ") || `sense ${sense.number}`;

function drawCorpus() {
  const { data } = corpus;
  const reason = data ? null : "Search for a word to see its senses.";
  for (const id of ["atlas", "senses", "lines"]) empty(id, reason);
  if (!data) return;
  const n = data.rows.length;
  $("atlas-word").textContent = data.word;
  $("dots").setAttribute("aria-label", `Map of ${n} uses of ${data.word} in ${data.senses.length} senses`);
  $("how-sure").textContent = data.senses.length > 1
    ? `Stability ${data.stability.toFixed(2)}. Each sense is named by the words that could stand there; write a better name.`
    : "One sense: no division of the uses is clear and stable.";
  replace($("sense-list"), ...data.senses.map((sense) => {
    const item = make("li", {},
      button(`${sense.number}`, corpus.sense === sense.number, () => {
        Object.assign(corpus, { sense: corpus.sense === sense.number ? 0 : sense.number, picked: null, hits: null, most: LINES });
        drawCorpus();
      }, { "data-key": `sense-${sense.number}`, "aria-label": `Show sense ${sense.number}` }),
      make("input", {
        value: senseName(sense), "aria-label": `Name of sense ${sense.number}`, maxlength: "80",
        onchange: (event) => rename(sense.number, event.target.value),
      }),
      make("span", { class: "quiet" }, `${sense.count} (${Math.round(100 * sense.share)} %)`),
      bar([sense], () => sense.share),
      make("span", { class: "quiet words" }, sense.name.join(", "), ...(sense.near.length ? [make("br"), `near it: ${sense.near.join(", ")}`] : [])));
    item.style.setProperty("--sense", senseColour(sense.number));
    item.querySelector("button").prepend(make("span", { class: "dot" }));
    return item;
  }));
  const sources = data.senses.length > 1 && !data.groups.length ? Object.keys(data.senses[0].sources).slice(0, MOST_SOURCES) : [];
  $("shares-title").hidden = !data.groups.length && !sources.length;
  $("shares-title").textContent = data.groups.length ? `Shares by ${$("by").value}` : "Shares by document";
  $("shares").replaceChildren(
    ...sources.flatMap((source) => [make("span", { title: source }, source), bar(data.senses, (sense) => sense.sources[source]), make("span")]),
    ...data.groups.flatMap((group, k) => [make("span", { title: group.label }, group.label), groupBar(group, k),
      make("span", { class: "quiet", title: "occurrences per million words" }, `${group.per_million < 10 ? group.per_million.toFixed(1) : Math.round(group.per_million).toLocaleString("en")} pmw`)]));
  paint();
  showLines();
}

// A bar of the shares of senses.
function bar(senses, share) {
  const title = senses.map((sense) => `sense ${sense.number}: ${Math.round(100 * share(sense))} %`).join(", ");
  return make("div", { class: "bar", role: "img", "aria-label": title, title }, ...senses.map((sense) => {
    const part = make("div");
    part.style.setProperty("--sense", senseColour(sense.number));
    part.style.width = `${100 * share(sense)}%`;
    return part;
  }));
}

// The same for a group of documents; each part shows its uses.
function groupBar(group, number) {
  const { data } = corpus;
  return make("div", { class: "bar" }, ...data.senses.filter((_, k) => group.shares[k] > 0).map((sense) => {
    const share = group.shares[sense.number - 1];
    const title = `${group.label}, sense ${sense.number}: ${Math.round(100 * share)} %`;
    const part = make("button", { type: "button", title, "aria-label": title, onclick: () => {
      const picked = data.rows.map((_, k) => k).filter((k) => data.members[k] === number && data.numbers[k] === sense.number);
      Object.assign(corpus, { picked, group: number, hits: null, sense: 0, most: LINES });
      paint();
      showLines();
    } });
    part.style.setProperty("--sense", senseColour(sense.number));
    part.style.width = `${100 * share}%`;
    return part;
  }));
}

// The uses to list, as places in data.rows.
function chosenUses() {
  const { data, sense, picked, hits } = corpus;
  if (hits) {
    const at = new Map(data.rows.map((row, k) => [row, k]));
    return hits.map((hit) => at.get(hit.row)).filter((k) => k !== undefined);
  }
  if (picked) return picked;
  return data.rows.map((_, k) => k).filter((k) => !sense || data.numbers[k] === sense);
}

async function texts(rows) {
  const missing = rows.filter((row) => !corpus.texts.has(row));
  for (let at = 0; at < missing.length; at += PER_REQUEST) {
    const found = await ask("v1/index/uses", { rows: missing.slice(at, at + PER_REQUEST) });
    for (const line of found.uses) corpus.texts.set(line.row, line);
  }
  return rows.map((row) => corpus.texts.get(row));
}

async function showLines() {
  const { data, picked, hits, sense } = corpus;
  const turn = corpus.shown += 1;
  const all = chosenUses();
  const grouped = !picked && !hits && !sense && data.senses.length > 1;
  const seen = {};
  const key = $("sort").value;
  const some = grouped && !key ? all.filter((k) => { const n = data.numbers[k]; seen[n] = (seen[n] || 0) + 1; return seen[n] <= PER_SENSE; }) : key ? all.slice() : all.slice(0, corpus.most);
  try {
    if (key) { // all of them are needed to sort them
      const every = await texts(some.map((k) => data.rows[k]));
      const keys = new Map(every.map((line, at) => [some[at], sortingKey(line, key)]));
      some.sort((a, b) => keys.get(a).localeCompare(keys.get(b)) || a - b);
      some.splice(corpus.most);
    }
    const found = await texts(some.map((k) => data.rows[k]));
    if (turn !== corpus.shown) return; // somebody has chosen other uses meanwhile
    const rows = [];
    let last = 0;
    some.forEach((k, at) => {
      const number = data.numbers[k];
      if (number !== last && !hits && !key) rows.push(heading(data.senses[number - 1]));
      last = number;
      rows.push(lineOf(found[at], k, hits));
    });
    const columns = ["left", "word", "right", "where"].map((name) => make("col", { class: name }));
    $("kwic").replaceChildren(make("colgroup", {}, ...columns), make("tbody", {}, ...rows));
    $("chosen").textContent = hits ? `${all.length} uses, the most similar first` : picked ? `${all.length} selected uses${corpus.group >= 0 ? ` of ${data.groups[corpus.group].label}` : ""}`
      : sense ? `${all.length} uses of sense ${sense}, the most typical first` : !grouped ? `${all.length} uses, the most typical first` : `The most typical uses of each sense, of ${all.length}`;
    $("everything").hidden = !picked && !hits && !sense;
    $("more-row").hidden = (grouped && !key) || some.length >= all.length;
  } catch (error) {
    complain(error);
  }
}

function sortingKey(line, key) {
  if (key === "source") return `${line.source} ${String(line.line).padStart(9, "0")}`;
  return (key === "right" ? line.right : line.left.split(" ").reverse().join(" ")).toLowerCase();
}

function heading(sense) {
  const cell = make("th", { colspan: "4", scope: "colgroup" }, make("span", { class: "dot" }), `${sense.number}. ${senseName(sense)}`);
  cell.style.setProperty("--sense", senseColour(sense.number));
  return make("tr", {}, cell);
}

function lineOf(line, k, hits) {
  const hit = hits && hits.find((one) => one.row === line.row);
  const why = hit ? `${hit.cosine.toFixed(2)}  ${hit.shared.join(", ")}` : `${line.source}:${line.line}`;
  const row = make("tr", { title: `${line.left} ${line.word} ${line.right} (${line.source}:${line.line})`, onpointerenter: () => { corpus.hover = k; frame(); } },
    make("td", { class: "left" }, make("bdi", {}, line.left), " "), make("td", { class: "word" }, make("mark", {}, line.word), " "),
    make("td", { class: "right" }, line.right), make("td", { class: "where quiet" }, why));
  return row;
}

// -------------------------------------------------------------- the map, on a canvas

// All points are drawn once; while the pointer moves, that picture is copied.
function paint() {
  const { width, height } = $("plane").getBoundingClientRect();
  if (!width || !corpus.data) return;
  const { data } = corpus;
  const ratio = window.devicePixelRatio || 1;
  const dots = $("dots");
  dots.width = Math.round(width * ratio);
  dots.height = Math.round(height * ratio);
  const reach = (values) => { const [low, high] = ends(values); return [(low + high) / 2, Math.max(1e-9, high - low)]; };
  const [x, dx] = reach(data.x), [y, dy] = reach(data.y);
  const radius = data.rows.length > 5000 ? 1.7 : data.rows.length > 800 ? 2.5 : 4;
  const scale = Math.min((width - 24) / dx, (height - 24) / dy);
  corpus.places = data.rows.map((_, k) => [width / 2 + (data.x[k] - x) * scale, height / 2 - (data.y[k] - y) * scale]);
  const on = corpus.picked || corpus.hits || corpus.sense ? new Set(chosenUses()) : null;
  const base = document.createElement("canvas");
  base.width = dots.width;
  base.height = dots.height;
  const pen = base.getContext("2d");
  pen.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const colours = data.senses.map((sense) => style.getPropertyValue(`--s${((sense.number - 1) % 8) + 1}`));
  for (const strong of [false, true]) { // those that are chosen above the others
    corpus.places.forEach(([left, top], k) => {
      if ((!on || on.has(k)) !== strong) return;
      pen.globalAlpha = strong ? 0.75 : 0.15;
      pen.fillStyle = colours[data.numbers[k] - 1];
      pen.beginPath();
      pen.arc(left, top, radius, 0, 7);
      pen.fill();
    });
  }
  Object.assign(corpus, { base, ratio, radius });
  frame();
}

// Math.min(...values) has a limit on how many it takes.
const ends = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

function frame() {
  if (!corpus.base) return;
  const pen = $("dots").getContext("2d");
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, $("dots").width, $("dots").height);
  pen.drawImage(corpus.base, 0, 0);
  pen.scale(corpus.ratio, corpus.ratio);
  pen.strokeStyle = ink;
  if (corpus.hover >= 0) {
    const [left, top] = corpus.places[corpus.hover];
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(left, top, corpus.radius + 4, 0, 7);
    pen.stroke();
  }
  if (corpus.brush) {
    const { x, y, left, top } = corpus.brush;
    pen.lineWidth = 1;
    pen.setLineDash([4, 3]);
    pen.strokeRect(Math.min(x, left), Math.min(y, top), Math.abs(x - left), Math.abs(y - top));
    pen.setLineDash([]);
  }
}

function nearest(x, y) {
  let best = -1, least = 14 * 14;
  corpus.places.forEach(([left, top], k) => {
    const distance = (left - x) ** 2 + (top - y) ** 2;
    if (distance < least) { best = k; least = distance; }
  });
  return best;
}

async function pointAt(x, y) {
  const found = nearest(x, y);
  if (found === corpus.hover) return;
  corpus.hover = found;
  frame();
  $("plane-tip").hidden = true;
  if (found < 0) return;
  try {
    const [line] = await texts([corpus.data.rows[found]]);
    if (corpus.hover === found) tip($("plane-tip"), x, y, [`${line.left} `, make("mark", {}, line.word), ` ${line.right}`]);
  } catch (error) {
    complain(error);
  }
}

function select(brush) {
  const inside = (value, a, b) => value >= Math.min(a, b) && value <= Math.max(a, b);
  const all = corpus.places.map((_, k) => k).filter((k) => !corpus.sense || corpus.data.numbers[k] === corpus.sense);
  const small = Math.abs(brush.x - brush.left) + Math.abs(brush.y - brush.top) < 6;
  const one = nearest(brush.x, brush.y);
  const picked = small ? (one < 0 ? [] : [one])
    : all.filter((k) => inside(corpus.places[k][0], brush.x, brush.left) && inside(corpus.places[k][1], brush.y, brush.top));
  Object.assign(corpus, { picked: picked.length ? picked : null, group: -1, hits: null, most: LINES });
  paint();
  showLines();
}

function watchPlane() {
  const dots = $("dots");
  const at = (event) => { const box = dots.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  dots.addEventListener("pointerdown", (event) => {
    const [x, y] = at(event);
    if (!corpus.base) return;
    dots.setPointerCapture(event.pointerId);
    corpus.brush = { x, y, left: x, top: y };
  });
  dots.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!corpus.base) return;
    if (!corpus.brush) { pointAt(x, y); return; }
    Object.assign(corpus.brush, { left: x, top: y });
    $("plane-tip").hidden = true;
    requestAnimationFrame(frame);
  });
  dots.addEventListener("pointerup", (event) => {
    const brush = corpus.brush;
    corpus.brush = null;
    if (brush) select(brush);
    pointAt(...at(event));
  });
  dots.addEventListener("pointercancel", () => { corpus.brush = null; frame(); });
  dots.addEventListener("pointerleave", () => { corpus.hover = -1; $("plane-tip").hidden = true; frame(); });
  new ResizeObserver(paint).observe($("plane"));
}

async function download(kind) {
  const { data } = corpus;
  try {
    const all = chosenUses();
    const found = await texts(all.map((k) => data.rows[k]));
    const uses = found.map(({ left, word, right, source, line }, at) => {
      const number = data.numbers[all[at]];
      return { sense: number, name: senseName(data.senses[number - 1]), left, word, right, source, line };
    });
    // As in the files of `elmore senses`: no cell is a formula, and a mark says that it is UTF-8.
    const safe = (cell) => (/^[=+\-@\t\r]/.test(cell) && Number.isNaN(Number(cell)) ? `'${cell}` : cell);
    const quoted = (value) => `"${safe(String(value)).replaceAll('"', '""')}"`;
    const text = kind === "json"
      ? JSON.stringify({ word: data.word, senses: data.senses.map((sense) => ({ ...sense, name: senseName(sense), words: sense.name })), uses }, null, 1)
      : "\ufeff" + [["sense", "name", "left", "word", "right", "source", "line"].join(","), ...uses.map((use) => Object.values(use).map(quoted).join(","))].join("\n") + "\n";
    const address = URL.createObjectURL(new Blob([text], { type: kind === "json" ? "application/json" : "text/csv" }));
    make("a", { href: address, download: `${data.word.replace(/[^\p{L}\p{N}]+/gu, "_")}.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } catch (error) {
    complain(error);
  }
}

// ------------------------------------------------------------------ arithmetic

// Words and weights of each use: the cosine of every two.
function sparseCosines(senses) {
  const maps = senses.map(({ words, weights }) => new Map(words.map((word, k) => [word, weights[k]])));
  const lengths = senses.map(({ weights }) => Math.hypot(...weights));
  return maps.map((left, i) => maps.map((right, j) => {
    let sum = 0;
    for (const [word, weight] of left) sum += weight * (right.get(word) || 0);
    return lengths[i] && lengths[j] ? Math.min(1, sum / (lengths[i] * lengths[j])) : 0;
  }));
}

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
  $("stretch").addEventListener("change", redraw);
  new ResizeObserver(() => { if (state.answer && state.answer.uses.length > 1) showMap(state.table); }).observe($("chart"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redraw(); paint(); });
  if (saved) {
    document.body.classList.add("still");
    $("pick").textContent = "Sentences";
    show(saved);
    return;
  }
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
  }, "split into lines"));
  let timer = 0;
  $("text").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, WAIT);
  });
  $("access").addEventListener("submit", (event) => {
    event.preventDefault();
    state.token = $("token").value.trim();
    update();
    openCorpus();
    openTasks();
  });
  for (const one of $("views").children) one.addEventListener("click", () => { view(one.dataset.view); redraw(); drawCorpus(); });
  $("ask").addEventListener("submit", (event) => { event.preventDefault(); search($("query").value); });
  $("everything").addEventListener("click", () => { Object.assign(corpus, { sense: 0, picked: null, group: -1, hits: null }); drawCorpus(); });
  for (const id of ["where", "by"]) $(id).addEventListener("change", () => search($("query").value));
  $("sort").addEventListener("change", showLines);
  window.addEventListener("hashchange", () => { readAddress(); search($("query").value); });
  $("more").addEventListener("click", () => { corpus.most += LINES; showLines(); });
  for (const kind of ["csv", "json"]) $(`export-${kind}`).addEventListener("click", () => download(kind));
  watchPlane();
  if (!$("text").value) $("text").value = EXAMPLES.play.join("\n");
  update();
  openCorpus();
  openTasks();
}

start();
