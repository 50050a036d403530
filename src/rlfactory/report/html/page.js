"use strict";
const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const data = JSON.parse(find("#data").textContent);

function make(name, properties, ...content) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...content);
  return element;
}

// Dark or light: the system's choice until the switch is used.
const root = document.documentElement;
try { root.dataset.theme = localStorage.getItem("theme") ?? ""; } catch { /* private window */ }
find("#theme").addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private window */ }
});

// Values under the pointer, or with arrow keys those of one iteration after the other.
const nearest = (values, wanted) =>
  values.reduce((best, value, i) => Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best, 0);
const [left, top_, right, bottom] = data.box;
const [width, height] = data.size;
all(".canvas").forEach((canvas, number) => {
  const { lines, limits: [x0, x1, y0, y1], digits } = data.plots[number];
  const tip = find(".tip", canvas), marks = find(".marks", canvas);
  const across = (x) => left + (x - x0) / (x1 - x0) * (right - left);
  const up = (y) => bottom - (y - y0) / (y1 - y0) * (bottom - top_);
  const text = (value) => value.toFixed(digits).replace("-", "\u2212");
  const shown = () => lines.filter((line) => find(`#row-${line.row}`).checked);
  const steps = () => [...new Set(shown().flatMap((line) => line.x))].sort((a, b) => a - b);
  const chip = (row, style) =>
    make("i", { className: row < data.palette ? "chip" : "chip again", style: `--c: var(--c${row % data.palette}); ${style}` });
  let current = null;
  function hide() { tip.hidden = true; marks.replaceChildren(); current = null; }

  // The point of each shown line at iteration x, unless it ends far from there. `y` is the pointer's.
  function show(x, y = null) {
    const reach = Math.max(12 / (right - left) * (x1 - x0), 0.5);
    const points = shown().map((line) => [line, nearest(line.x, x)])
      .filter(([line, i]) => Math.abs(line.x[i] - x) <= reach)
      .map(([line, i]) => ({ row: line.row, x: line.x[i], mean: line.mean[i], low: line.low[i], high: line.high[i] }));
    if (!points.length) return hide();
    current = x;
    const gap = (point) => y === null ? 0 : Math.abs(up(point.mean) - y);
    const near = y === null || points.length < 2 ? null : points.reduce((a, b) => gap(b) < gap(a) ? b : a);
    const listed = points.sort((a, b) => gap(a) - gap(b)).slice(0, 10).sort((a, b) => b.mean - a.mean);
    tip.replaceChildren(make("b", {}, `Iteration ${[...new Set(listed.map((p) => p.x))].join(", ")}`),
      make("table", {}, make("tbody", {}, ...listed.map((p) => make("tr", { className: p === near ? "near" : "" },
        make("th", { scope: "row" }, make("div", {}, chip(p.row, ""), make("span", {}, data.rows[p.row]))),
        make("td", {}, text(p.mean), ...(p.low !== null && p.high > p.low ? [make("small", {}, `[${text(p.low)}, ${text(p.high)}]`)] : [])))))));
    tip.hidden = false;
    const at = (p) => `left: ${across(p.x) / width * 100}%; top: ${up(p.mean) / height * 100}%`;
    marks.replaceChildren(make("i", { className: "cross", style: `left: ${across(listed[0].x) / width * 100}%` }), ...points.map((p) => chip(p.row, at(p))));
  }

  function point(event) {
    const box = find("svg", canvas).getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width, y = (event.clientY - box.top) / box.height * height;
    const known = steps();
    if (y < top_ - 12 || y > bottom + 12 || !known.length) return hide();
    show(known[nearest(known, x0 + (x - left) / (right - left) * (x1 - x0))], y);
  }
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  canvas.addEventListener("blur", hide);
  document.addEventListener("pointerdown", (event) => { if (!canvas.contains(event.target)) hide(); });
  canvas.addEventListener("keydown", (event) => {
    const known = steps(), now = current === null ? -1 : nearest(known, current), last = known.length - 1;
    const to = { ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined || last < 0) return;
    event.preventDefault();
    show(known[to]);
  });
});

// Images in full. Escape is the dialog's own key.
const lightbox = find("#lightbox"), large = find("img", lightbox), buttons = all(".enlarge");
let current = 0;
function turn(to) {
  current = (to + buttons.length) % buttons.length;
  const { src, alt, className } = find("img", buttons[current]);
  Object.assign(large, { src, alt, className });
  lightbox.classList.remove("full");
  find("span", lightbox).textContent = alt;
  find("p small", lightbox).textContent = `${current + 1} / ${buttons.length}`;
}
buttons.forEach((button, i) => button.addEventListener("click", () => { turn(i); lightbox.showModal(); }));
lightbox.addEventListener("click", ({ target }) => {
  if (target === large) lightbox.classList.toggle("full");
  else if (target.closest(".back")) turn(current - 1);
  else if (target.closest(".next")) turn(current + 1);
  else if (target.closest(".shut, .stage")) lightbox.close();
});
lightbox.addEventListener("keydown", ({ key }) => {
  if (key === "ArrowLeft") turn(current - 1);
  if (key === "ArrowRight") turn(current + 1);
});

// A printed page has all details open.
addEventListener("beforeprint", () => all("details").forEach((part) => { part.open = true; }));
