// Draws the map: points with WebGL 2 or on a 2D canvas, and marks above them. All texts are inserted as text nodes.
"use strict";

const data = JSON.parse(document.getElementById("map-data").textContent);
const SIZE = 65535;
const OTHER = 255; // the code of a point that is dimmed
const CELLS = 128; // the grid for finding the point under the pointer
const CATEGORIES = {
  light: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a100", "#4d4d4d"],
  dark: ["#3d9fe0", "#e69f00", "#00b884", "#dd94bb", "#8ccdf5", "#f0752a", "#f0e442", "#d9d9d9"],
};
const SEQUENCE = {
  light: ["#00224e", "#233e6c", "#4a546c", "#6a6a70", "#8b8077", "#ad9b6c", "#cfb64f", "#9a9a9a"],
  dark: ["#35507d", "#53658a", "#757d8c", "#93908f", "#b0a481", "#ccb96b", "#fee838", "#777777"],
};
const dark = matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);
const view = byId("view");
const marks = byId("marks");
const tip = byId("tip");
const search = byId("find");
const choice = byId("colour");
const status = byId("map-status");

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

const places = new Uint16Array(bytes(data.places).buffer);
const count = places.length / 2;
const colourings = data.colourings.map((each) => ({ ...each, codes: bytes(each.codes) }));
const cluster = bytes(data.cluster);
const shownOf = new Map(data.chunks.map((chunk, i) => [chunk[0], i]));
const codes = new Uint8Array(count);
let colouring = colourings[0];
let only = -1; // the value of the legend that is shown alone
let matched = null; // the points that the search found, or null
let chosen = -1;
let shownQuery = -1; // the only query that is drawn, or -1 for all
const bounds = [0, 1].map((axis) => {
  let [low, high] = [SIZE, 0];
  for (let i = axis; i < places.length; i += 2) [low, high] = [Math.min(low, places[i]), Math.max(high, places[i])];
  return { middle: (low + high) / 2, span: Math.max(1, high - low) };
});
const whole = () => ({ x: bounds[0].middle, y: bounds[1].middle, scale: 1 });
let camera = whole();

// Finding points

const starts = new Uint32Array(CELLS * CELLS + 1);
const sorted = new Uint32Array(count);
const cellOf = (x, y) => Math.min(CELLS - 1, (x * CELLS) >> 16) + CELLS * Math.min(CELLS - 1, (y * CELLS) >> 16);
for (let i = 0; i < count; i++) starts[cellOf(places[2 * i], places[2 * i + 1]) + 1]++;
for (let i = 0; i < CELLS * CELLS; i++) starts[i + 1] += starts[i];
{
  const next = starts.slice();
  for (let i = 0; i < count; i++) sorted[next[cellOf(places[2 * i], places[2 * i + 1])]++] = i;
}

function nearest(x, y, reach) {
  // The nearest point in pixels of the screen, at most `reach`.
  const [across, down] = units();
  let best = -1;
  let least = reach * reach;
  const low = (at, unit) => Math.max(0, Math.floor(((at - reach / unit) * CELLS) / (SIZE + 1)));
  const high = (at, unit) => Math.min(CELLS - 1, Math.floor(((at + reach / unit) * CELLS) / (SIZE + 1)));
  for (let row = low(y, down); row <= high(y, down); row++) {
    for (let column = low(x, across); column <= high(x, across); column++) {
      const cell = column + CELLS * row;
      for (let at = starts[cell]; at < starts[cell + 1]; at++) {
        const i = sorted[at];
        const distance = ((places[2 * i] - x) * across) ** 2 + ((places[2 * i + 1] - y) * down) ** 2;
        if (distance < least && codes[i] !== OTHER) [best, least] = [i, distance];
      }
    }
  }
  return best;
}

// The view

function size() {
  return { width: view.clientWidth, height: view.clientHeight };
}

function units() {
  // Pixels of the screen per unit of the map, on both axes: the points fill the view, stretched to at most twice.
  const { width, height } = size();
  const across = (width - 64) / bounds[0].span;
  const down = (height - 48) / bounds[1].span;
  return [Math.min(across, 2 * down) * camera.scale, Math.min(down, 2 * across) * camera.scale];
}

function toScreen(x, y) {
  const { width, height } = size();
  const [across, down] = units();
  return [width / 2 + (x - camera.x) * across, height / 2 + (y - camera.y) * down];
}

function toMap(left, top) {
  const { width, height } = size();
  const [across, down] = units();
  return [camera.x + (left - width / 2) / across, camera.y + (top - height / 2) / down];
}

function radius() {
  const base = Math.max(1.2, Math.min(4, 160 / Math.sqrt(count)));
  return Math.min(7, base * Math.sqrt(camera.scale));
}

function palette() {
  const scheme = dark.matches ? "dark" : "light";
  return (colouring.ordered ? SEQUENCE : CATEGORIES)[scheme];
}

function zoom(factor, left = size().width / 2, top = size().height / 2) {
  const [x, y] = toMap(left, top);
  camera.scale = Math.min(400, Math.max(0.5, camera.scale * factor));
  const [nowX, nowY] = toMap(left, top);
  camera.x += x - nowX;
  camera.y += y - nowY;
  draw();
}

function pan(right, down) {
  const now = units();
  camera.x = Math.min(SIZE, Math.max(0, camera.x + right / now[0]));
  camera.y = Math.min(SIZE, Math.max(0, camera.y + down / now[1]));
  draw();
}

// Drawing the points

const VERTEX = `#version 300 es
in vec2 place; in float code; uniform vec2 centre; uniform vec2 scale; uniform float radius; uniform vec3 colours[9];
out vec4 colour;
void main() {
  vec2 at = (place - centre) * scale;
  int number = int(code + 0.5);
  bool dimmed = number == 255;
  gl_Position = vec4(at.x, -at.y, dimmed ? 0.5 : 0.0, 1.0);
  gl_PointSize = dimmed ? max(1.0, radius) : 2.0 * radius;
  colour = dimmed ? vec4(colours[8], 0.35) : vec4(colours[min(number, 7)], 0.85);
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour; out vec4 shown;
void main() {
  float far = length(gl_PointCoord - 0.5) * 2.0;
  float inside = 1.0 - smoothstep(0.8, 1.0, far);
  shown = vec4(colour.rgb, 1.0) * (colour.a * inside);
}`;

function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
}

function makeWebGl(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
  if (!gl) return null;
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  const buffers = ["place", "code"].map((name, number) => {
    const buffer = gl.createBuffer();
    const at = gl.getAttribLocation(program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(at);
    gl.vertexAttribPointer(at, number ? 1 : 2, number ? gl.UNSIGNED_BYTE : gl.UNSIGNED_SHORT, false, 0, 0);
    return buffer;
  });
  gl.bindBuffer(gl.ARRAY_BUFFER, buffers[0]);
  gl.bufferData(gl.ARRAY_BUFFER, places, gl.STATIC_DRAW);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  const at = (name) => gl.getUniformLocation(program, name);
  const uniforms = { centre: at("centre"), scale: at("scale"), radius: at("radius"), colours: at("colours") };
  return {
    recolour() {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffers[1]);
      gl.bufferData(gl.ARRAY_BUFFER, codes, gl.DYNAMIC_DRAW);
    },
    draw(ratio) {
      const { width, height } = size();
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform2f(uniforms.centre, camera.x, camera.y);
      const [across, down] = units();
      gl.uniform2f(uniforms.scale, (2 * across) / width, (2 * down) / height);
      gl.uniform1f(uniforms.radius, radius() * ratio);
      gl.uniform3fv(uniforms.colours, [...palette(), dark.matches ? "#555b61" : "#b9bfc5"].flatMap(rgb));
      gl.drawArrays(gl.POINTS, 0, count);
    },
  };
}

function makePlain(canvas) {
  const context = canvas.getContext("2d");
  return {
    recolour() {},
    draw(ratio) {
      const { width, height } = size();
      const colours = palette();
      const side = 2 * radius();
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      const drawn = [OTHER, ...colours.keys()];
      for (const code of drawn) {
        const dimmed = code === OTHER;
        context.globalAlpha = dimmed ? 0.35 : 0.85;
        context.fillStyle = dimmed ? (dark.matches ? "#555b61" : "#b9bfc5") : colours[code];
        const wide = dimmed ? side / 2 : side;
        for (let i = 0; i < count; i++) {
          if (codes[i] !== code) continue;
          const [left, top] = toScreen(places[2 * i], places[2 * i + 1]);
          if (left < -side || top < -side || left > width + side || top > height + side) continue;
          context.fillRect(left - wide / 2, top - wide / 2, wide, wide);
        }
      }
      context.globalAlpha = 1;
    },
  };
}

let points = makeWebGl(byId("points"));
view.dataset.drawn = points ? "webgl" : "canvas";
if (!points) points = makePlain(byId("points"));

// Drawing the marks: names of clusters, queries with their hits, and the chosen point

const words = (number) => data.clusters[number][0][0] ?? "";
const overlaps = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];

function drawMarks(ratio) {
  const context = marks.getContext("2d");
  const { width, height } = size();
  const style = getComputedStyle(document.body);
  const [ink, paper] = [style.color, style.backgroundColor];
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const write = (text, left, top) => {
    context.lineWidth = 4;
    context.strokeStyle = paper;
    context.strokeText(text, left, top);
    context.fillStyle = ink;
    context.fillText(text, left, top);
  };
  const boxOf = (text, left, top, centred) => {
    const wide = context.measureText(text).width;
    const start = centred ? left - wide / 2 : left;
    return [start, top - 8, start + wide, top + 8];
  };
  context.font = "600 12px system-ui, sans-serif";
  context.textAlign = "center";
  const taken = []; // boxes of texts that were written; names of clusters do not overlap them
  const ring = (i, wide) => {
    const [left, top] = toScreen(places[2 * i], places[2 * i + 1]);
    context.beginPath();
    context.arc(left, top, wide, 0, 2 * Math.PI);
    for (const [colour, line] of [[paper, 4], [ink, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.stroke();
    }
    return [left, top];
  };
  for (const [number, query] of data.queries.entries()) {
    if (!query.place || (shownQuery >= 0 && shownQuery !== number)) continue;
    const [left, top] = toScreen(...query.place);
    const whole = data.queries.length === 1 || shownQuery === number;
    if (whole) {
      for (const hit of query.hits) {
        const [x, y] = ring(hit, radius() + 3);
        context.beginPath();
        context.moveTo(left, top);
        context.lineTo(x, y);
        context.lineWidth = 1;
        context.stroke();
      }
    }
    context.beginPath();
    for (const [x, y] of [[0, -8], [8, 0], [0, 8], [-8, 0]]) context.lineTo(left + x, top + y);
    context.closePath();
    context.lineWidth = 2;
    context.strokeStyle = ink;
    context.fillStyle = query.weak ? paper : ink;
    context.fill();
    context.stroke();
    taken.push([left - 9, top - 9, left + 9, top + 9]);
    if (whole || data.queries.length <= 12) {
      const text = query.text.length > 50 ? query.text.slice(0, 49) + "…" : query.text;
      const wide = context.measureText(text).width;
      const after = left + 12 + wide <= width;
      const beside = after || left - 12 - wide >= 0; // else below, and inside the view
      const start = after ? left + 12 : beside ? left - 12 - wide : Math.max(4, width - 4 - wide);
      context.textAlign = "left";
      write(text, start, beside ? top : top + 18);
      context.textAlign = "center";
      taken.push(boxOf(text, start, beside ? top : top + 18, false));
    }
  }
  if (chosen >= 0) ring(chosen, radius() + 5);
  if (byId("names").checked) {
    for (const [number, [names, , example]] of data.clusters.entries()) {
      if (!names.length) continue;
      const [left, top] = toScreen(places[2 * example], places[2 * example + 1]);
      const box = boxOf(words(number), left, top, true);
      if (!taken.some((other) => overlaps(box, other)) && box[0] >= 0 && box[2] <= width && box[1] >= 0 && box[3] <= height) {
        taken.push(box);
        write(words(number), left, top);
      }
    }
  }
}

let waiting = 0;
function draw() {
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    const ratio = devicePixelRatio || 1;
    const { width, height } = size();
    for (const canvas of [byId("points"), marks]) {
      if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
      if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    }
    points.draw(ratio);
    drawMarks(ratio);
  });
}

// Colours and search

function recolour() {
  for (let i = 0; i < count; i++) {
    const code = colouring.codes[i];
    const hidden = (only >= 0 && code !== only) || (matched && !matched.has(i));
    codes[i] = hidden ? OTHER : Math.min(code, 7);
  }
  points.recolour();
  draw();
}

function make(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function dot(colour) {
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const circle = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  for (const [name, value] of [["width", 12], ["height", 12], ["aria-hidden", "true"]]) drawn.setAttribute(name, value);
  for (const [name, value] of [["cx", 6], ["cy", 6], ["r", 5], ["fill", colour]]) circle.setAttribute(name, value);
  drawn.append(circle);
  return drawn;
}

function showLegend() {
  const totals = new Uint32Array(colouring.values.length);
  for (const code of colouring.codes) totals[code]++;
  byId("legend").replaceChildren(
    ...colouring.values.map((value, number) => {
      const button = make("button", undefined, { type: "button", "aria-pressed": String(number === only) });
      button.append(dot(palette()[Math.min(number, 7)]), `${value} (${totals[number].toLocaleString("en")})`);
      button.addEventListener("click", () => {
        only = only === number ? -1 : number;
        showLegend();
        recolour();
        byId("legend").querySelectorAll("button")[number].focus();
      });
      const item = make("li");
      item.append(button);
      return item;
    }),
  );
}

function nameOf(i) {
  const shown = shownOf.get(i);
  return shown === undefined ? `chunk ${i + 1}` : data.files[data.chunks[shown][1]] + data.chunks[shown][2];
}

function about(i) {
  const shown = shownOf.get(i);
  const names = data.clusters[cluster[i]][0].join(", ");
  const values = colourings.slice(1).map((each) => `${each.name.toLowerCase()}: ${each.values[each.codes[i]]}`);
  return [
    make("b", nameOf(i)),
    make("div", [names && `cluster: ${names}`, ...values].filter(Boolean).join("; "), { class: "note" }),
    make("pre", shown === undefined ? "The report does not hold the text of this chunk." : data.chunks[shown][3], { dir: "auto" }),
  ];
}

function choose(i, centre) {
  chosen = i;
  byId("chosen").replaceChildren(...(i < 0 ? [] : about(i)));
  if (i >= 0 && centre) {
    [camera.x, camera.y] = [places[2 * i], places[2 * i + 1]];
    camera.scale = Math.max(camera.scale, 4);
  }
  draw();
}

function listOf(numbers) {
  byId("found").replaceChildren(
    ...numbers.slice(0, 50).map((i) => {
      const button = make("button", nameOf(i), { type: "button" });
      button.addEventListener("click", () => choose(i, true));
      const item = make("li");
      item.append(button);
      return item;
    }),
  );
}

function find() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  matched = null;
  listOf([]);
  status.textContent = "";
  if (wanted.length) {
    const found = data.chunks.filter((chunk) => {
      const text = `${data.files[chunk[1]]} ${chunk[3]}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    matched = new Set(found.map((chunk) => chunk[0]));
    listOf([...matched]);
    status.textContent = `${found.length.toLocaleString("en")} of ${data.chunks.length.toLocaleString("en")} texts in the report`;
  }
  recolour();
}

// Events

marks.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
}, { passive: false });

const held = new Map();
let moved = 0;
marks.addEventListener("pointerdown", (event) => {
  marks.setPointerCapture(event.pointerId);
  held.set(event.pointerId, [event.offsetX, event.offsetY]);
  moved = 0;
});
marks.addEventListener("pointermove", (event) => {
  const before = held.get(event.pointerId);
  const now = [event.offsetX, event.offsetY];
  if (!before) return hover(...now);
  moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
  held.set(event.pointerId, now);
  if (held.size === 1) pan(before[0] - now[0], before[1] - now[1]);
  else if (held.size === 2) {
    const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
    zoom(apart(now) / apart(before), other[0], other[1]);
  }
});
for (const end of ["pointerup", "pointercancel"]) {
  marks.addEventListener(end, (event) => {
    held.delete(event.pointerId);
    if (end === "pointerup" && moved < 4) choose(under(event.offsetX, event.offsetY));
  });
}
marks.addEventListener("pointerleave", () => (tip.hidden = true));

function under(left, top) {
  return nearest(...toMap(left, top), Math.max(8, radius() + 3));
}

function hover(left, top) {
  const i = under(left, top);
  tip.hidden = i < 0;
  if (i < 0) return;
  tip.replaceChildren(...about(i));
  const { width, height } = size();
  tip.style.left = `${Math.max(0, Math.min(left + 12, width - tip.offsetWidth))}px`;
  tip.style.top = `${top + 12 + tip.offsetHeight > height ? Math.max(0, top - 12 - tip.offsetHeight) : top + 12}px`;
}

function nextPoint(event, right, down) {
  // The nearest point in the direction of the arrow, from the chosen one or from the middle of the view.
  const [x, y] = chosen < 0 ? [camera.x, camera.y] : [places[2 * chosen], places[2 * chosen + 1]];
  let best = -1;
  let least = Infinity;
  for (let i = 0; i < count; i++) {
    const [across, along] = [places[2 * i] - x, places[2 * i + 1] - y];
    const ahead = across * right + along * down;
    const aside = Math.abs(across * down) + Math.abs(along * right);
    if (i !== chosen && codes[i] !== OTHER && ahead > 0 && ahead >= aside && ahead + aside < least) [best, least] = [i, ahead + aside];
  }
  if (best < 0) return;
  choose(best);
  const [left, top] = toScreen(places[2 * best], places[2 * best + 1]);
  const { width, height } = size();
  if (left < 20 || top < 20 || left > width - 20 || top > height - 20) choose(best, true);
  status.textContent = `${nameOf(best)}`;
}

marks.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const arrow = arrows[event.key];
  if (arrow && event.shiftKey) pan(60 * arrow[0], 60 * arrow[1]);
  else if (arrow) nextPoint(event, ...arrow);
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "0") reset();
  else if (event.key === "Escape") choose(-1);
  else return;
  event.preventDefault();
});

function reset() {
  camera = whole();
  draw();
}

let timer = 0;
search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(find, 120);
});
choice.addEventListener("change", () => {
  colouring = colourings[choice.selectedIndex];
  only = -1;
  showLegend();
  recolour();
});
byId("names").addEventListener("change", draw);
byId("closer").addEventListener("click", () => zoom(1.5));
byId("farther").addEventListener("click", () => zoom(1 / 1.5));
byId("whole").addEventListener("click", reset);
for (const button of document.querySelectorAll("button[data-query]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    shownQuery = Number(button.dataset.query);
    const query = data.queries[shownQuery];
    if (query.place) [camera.x, camera.y] = query.place;
    listOf(query.hits);
    status.textContent = `Hits of “${query.text}”, best first`;
    byId("map").scrollIntoView();
    marks.focus({ preventScroll: true });
    draw();
  });
}
dark.addEventListener("change", () => {
  showLegend();
  recolour();
});
new ResizeObserver(draw).observe(view);
byId("map-tools").hidden = false;
if (data.queries.length === 1) {
  listOf(data.queries[0].hits);
  status.textContent = `Hits of “${data.queries[0].text}”, best first`;
}
showLegend();
recolour();
