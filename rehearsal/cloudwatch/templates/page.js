// Draws the dashboards of this page from the JSON in it. Text from the JSON becomes text nodes and never HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const heard = document.querySelector(".heard");
const DASHES = ["", "5 3", "1.5 2.5", "8 3 2 3"];
const DAY_S = 86400;
const STEPS_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080];
const TICK_PX = 72;
const SPARSE = 12; // so few points are seen by their dots
const parsed = vega.parse(data.chart); // once: all graphs over time are one chart with other data

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

// Three digits of the largest value, and as many decimals for all: they stand one under the other.
function decimals(lines) {
  const values = lines.flatMap((line) => [...line.values, line.whole]).filter((value) => value !== null);
  if (values.every(Number.isInteger)) return 0;
  const largest = Math.max(...values.map(Math.abs));
  return Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(largest))));
}

function number(value, digits) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function moment(seconds) {
  const iso = new Date(seconds * 1000).toISOString();
  const clock = iso.slice(11, 16);
  return data.end_s - data.start_s > DAY_S ? `${iso.slice(5, 10)} ${clock}` : clock;
}

function swatch(line) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const ends = { x1: 0, x2: 22, y1: 4, y2: 4, stroke: `var(--hue-${line.hue % 6})`, "stroke-dasharray": DASHES[line.dash % 4] };
  for (const [name, value] of Object.entries(ends)) stroke.setAttribute(name, value);
  svg.setAttribute("class", "swatch");
  svg.setAttribute("aria-hidden", "true");
  svg.append(stroke);
  return svg;
}

// A graph is painted when it comes near the screen, and all of them while nothing else is to be done.
const unpainted = new Set();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) paintAll((graph) => graph.chart === target);
}, { rootMargin: "400px" });

function paintAll(which = () => true) {
  for (const graph of [...unpainted].filter(which)) {
    unpainted.delete(graph);
    seen.unobserve(graph.chart);
    graph.paint();
  }
}

function soon(does) {
  if ("requestIdleCallback" in window) requestIdleCallback(does, { timeout: 200 });
  else setTimeout(() => does({ timeRemaining: () => 0 }));
}

function paintRest(idle) {
  do paintAll((graph) => graph === unpainted.values().next().value);
  while (unpainted.size && idle.timeRemaining() > 15);
  if (unpainted.size) soon(paintRest);
  else document.documentElement.dataset.painted ??= Math.round(performance.now());
}

// One graph over time: the drawing, its legend with numbers, and the time that is pointed at.
class Graph {
  constructor(figure, widget) {
    this.figure = figure;
    this.widget = widget;
    this.chart = figure.querySelector(".chart");
    this.legend = figure.querySelector(".legend");
    this.first = data.start_s - (data.start_s % widget.period_s);
    this.title = figure.querySelector("h3").textContent;
    this.chart.addEventListener("pointermove", (event) => this.point(event));
    this.chart.addEventListener("pointerleave", () => this.at(null));
    this.chart.addEventListener("keydown", (event) => this.key(event));
  }

  draw(lines, why) {
    this.view?.finalize();
    this.view = null;
    this.period = null;
    unpainted.delete(this);
    this.lines = lines ?? [];
    this.decimals = decimals(this.lines);
    this.chart.replaceChildren();
    this.legend.replaceChildren();
    this.figure.querySelector("details")?.remove();
    const points = this.lines.flatMap((line) => line.periods);
    this.times = [...new Set(points)].sort((one, other) => one - other);
    this.chart.classList.toggle("none", !points.length);
    for (const name of ["tabindex", "role", "aria-label", "aria-roledescription"]) this.chart.removeAttribute(name);
    if (!points.length) return this.chart.append(make("p", { textContent: why }));
    this.chart.tabIndex = 0;
    this.chart.setAttribute("role", "img");
    this.chart.setAttribute("aria-label", this.said());
    this.list();
    seen.observe(this.chart);
    unpainted.add(this);
    this.tabulate();
  }

  said() {
    const time = (period) => moment(this.first + period * this.widget.period_s);
    const last = this.times[this.times.length - 1];
    const each = this.lines
      .filter((line) => line.values.length)
      .map((line) => `${line.label} from ${this.number(Math.min(...line.values))} to ${this.number(Math.max(...line.values))}`);
    return `${this.title}, ${time(this.times[0])} to ${time(last)} UTC: ${each.join("; ")}. Arrow keys read each time.`;
  }

  paint() {
    const ms = (period) => (this.first + period * this.widget.period_s) * 1000;
    const rows = this.lines.flatMap((line, place) => {
      const one = { hue: line.hue % 6, dash: line.dash % 4, line: place };
      return line.periods.flatMap((period, index) => {
        const row = { ...one, at: ms(period), value: line.values[index] };
        const apart = index && period - line.periods[index - 1] > 1;
        return apart ? [{ ...one, at: ms(period) - 1, value: null }, row] : [row];
      });
    });
    const marks = this.widget.marks;
    const levels = marks.filter((mark) => mark.value !== null).map(({ value, label }) => ({ value, label }));
    const moments = marks.filter((mark) => mark.at).map(({ at, label }) => ({ at: Date.parse(at), label }));
    this.view = new vega.View(parsed, { renderer: "svg", hover: false })
      .logLevel(0).width(this.chart.clientWidth).height(this.chart.clientHeight)
      .signal("first", ms(-0.5)).signal("last", ms(Math.ceil((data.end_s - this.first) / this.widget.period_s) - 0.5))
      .signal("ticks", this.ticks()).signal("dot", this.times.length > SPARSE ? 12 : 36)
      .signal("clock", data.end_s - data.start_s > DAY_S ? "%d %b %H:%M" : "%H:%M")
      .signal("top", rows.some((row) => row.value > 0) ? 0 : 1) // an axis of zeros alone would have no length
      .data("points", rows).data("levels", levels)
      .data("moments", moments.filter(({ at }) => at >= data.start_s * 1000 && at <= data.end_s * 1000))
      .initialize(this.chart);
    this.view.run();
  }

  // Whole minutes, hours or days of UTC, as many as there is room for.
  ticks() {
    const room = Math.max(1, Math.floor(this.chart.clientWidth / (data.end_s - data.start_s > DAY_S ? 2 * TICK_PX : TICK_PX)));
    const steps = STEPS_MIN.map((minutes) => Math.max(minutes * 60, this.widget.period_s));
    const span = data.end_s - this.first;
    const step = steps.find((seconds) => span / seconds <= room) ?? steps[steps.length - 1];
    const first = Math.ceil(this.first / step) * step;
    return Array.from({ length: Math.ceil((data.end_s - first) / step) }, (_, place) => (first + place * step) * 1000);
  }

  list() {
    this.time = make("th", { scope: "col", textContent: "last point" });
    const head = make("tr", {}, make("th", { scope: "col", textContent: "" }),
      make("th", { scope: "col", textContent: "whole run" }), this.time);
    head.firstChild.append(make("span", { className: "heard", textContent: "line" }));
    this.cells = [];
    const rows = this.lines.map((line) => {
      const cell = make("td", { textContent: this.number(line.values[line.values.length - 1]) });
      this.cells.push(cell);
      return make("tr", {}, make("th", { scope: "row" }, swatch(line), line.label),
        make("td", { textContent: this.number(line.whole) }), cell);
    });
    this.legend.append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  tabulate() {
    const details = make("details", {}, make("summary", { textContent: "All values" }));
    details.addEventListener("toggle", () => {
      if (!details.open || details.childElementCount > 1) return;
      const head = make("tr", {}, ...["UTC", ...this.lines.map((line) => line.label)].map(
        (name) => make("th", { scope: "col", textContent: name })));
      const rows = this.times.map((period) => make("tr", {},
        make("th", { scope: "row", textContent: moment(this.first + period * this.widget.period_s) }),
        ...this.lines.map((line) => make("td", { textContent: this.number(this.value(line, period)) }))));
      const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
      const box = make("div", { className: "values", tabIndex: 0 }, table);
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", `All values: ${this.title}`);
      details.append(box);
    });
    this.figure.querySelector("figcaption").append(details);
  }

  number(value) {
    return number(value, this.decimals);
  }

  value(line, period) {
    const index = line.periods.indexOf(period);
    return index < 0 ? null : line.values[index];
  }

  point(event) {
    if (!this.view) return;
    const [left] = this.view.origin();
    const x = event.clientX - this.chart.getBoundingClientRect().left - left;
    const wanted = (this.view.scale("x").invert(x) / 1000 - this.first) / this.widget.period_s;
    const near = (one, other) => (Math.abs(other - wanted) < Math.abs(one - wanted) ? other : one);
    this.at(this.times.reduce(near));
  }

  key(event) {
    if (!this.view) return;
    const end = this.times.length - 1;
    const now = this.times.indexOf(this.period);
    const places = { ArrowLeft: now < 0 ? end : Math.max(0, now - 1), ArrowRight: now < 0 ? 0 : Math.min(end, now + 1), Home: 0, End: end };
    if (event.key === "Escape") return this.at(null);
    if (!(event.key in places)) return;
    event.preventDefault();
    this.at(this.times[places[event.key]]);
    heard.textContent = `${this.time.textContent}: ${this.lines
      .map((line, place) => `${line.label} ${this.cells[place].textContent}`).join("; ")}`;
  }

  at(period) {
    if (!this.view || this.period === period) return;
    this.period = period;
    const seconds = this.first + period * this.widget.period_s;
    this.time.textContent = period === null ? "last point" : `${moment(seconds)} UTC`;
    this.lines.forEach((line, place) => {
      const value = period === null ? line.values[line.values.length - 1] : this.value(line, period);
      this.cells[place].textContent = this.number(value);
    });
    const shown = period === null ? [] : [{ at: seconds * 1000 }];
    this.view.change("cursor", vega.changeset().remove(() => true).insert(shown)).run();
  }

  resize() {
    const width = this.chart.clientWidth;
    if (this.view && width && width !== this.view.width()) this.view.width(width).signal("ticks", this.ticks()).run();
  }
}

// Numbers over the whole time.
class Numbers {
  constructor(figure, widget) {
    this.box = figure.querySelector(".numbers");
    this.unit = figure.dataset.unit;
  }

  draw(lines, why) {
    this.box.classList.toggle("none", !lines);
    const digits = Math.max(decimals(lines ?? []), this.unit ? 0 : 2); // a ratio of 3 is 3.00
    this.box.replaceChildren(...(lines ?? []).map((line) => {
      const value = make("b", {}, number(line.whole, digits), " ", make("small", { textContent: this.unit }));
      return make("div", {}, value, make("span", { textContent: line.label }));
    }));
    if (!lines) this.box.append(make("p", { textContent: why }));
  }

  resize() {}
}

class Dashboard {
  constructor(dashboard) {
    this.section = document.getElementById(dashboard.name);
    this.variables = dashboard.variables;
    this.choices = [...this.section.querySelectorAll(".choices select")];
    const drawn = dashboard.widgets.filter((widget) => widget.kind === "lines" || widget.kind === "numbers");
    const figures = [...this.section.querySelectorAll("figure.graph")];
    this.graphs = drawn.map((widget, place) => ({
      widget,
      drawing: new (widget.kind === "lines" ? Graph : Numbers)(figures[place], widget),
    }));
    for (const choice of this.choices) {
      choice.addEventListener("change", () => {
        this.draw((graph) => graph.widget.varies);
        soon(paintRest);
      });
    }
  }

  draw(which = () => true) {
    const chosen = this.choices.map((choice) => choice.value);
    const named = this.variables.map((variable, place) => `${variable.label.toLowerCase()} ${chosen[place]}`).join(" and ");
    for (const graph of this.graphs.filter(which)) {
      const key = graph.widget.varies ? chosen.join("\n") : "";
      graph.drawing.draw(graph.widget.lines[key], `The records have no value of ${graph.widget.varies ? `${named}` : "this"}.`);
    }
  }
}

const dashboards = data.dashboards.map((dashboard) => new Dashboard(dashboard));
for (const dashboard of dashboards) dashboard.draw();
const watch = new ResizeObserver(() => requestAnimationFrame(() => {
  for (const dashboard of dashboards) for (const graph of dashboard.graphs) graph.drawing.resize();
}));
watch.observe(document.body);
addEventListener("beforeprint", () => paintAll());
const near = [...unpainted].filter((graph) => graph.chart.getBoundingClientRect().top < innerHeight);
paintAll((graph) => near.includes(graph));
requestAnimationFrame(() => setTimeout(() => {
  document.documentElement.dataset.ready = Math.round(performance.now()); // what the first screen shows is on it
  soon(paintRest);
}));
