"use strict";
(() => {
const $ = (query, root = document) => root.querySelector(query);
const $$ = (query, root = document) => [...root.querySelectorAll(query)];
const NS = "http://www.w3.org/2000/svg";
const ROW = 20;

/** Make an element. Texts become text nodes, so that nothing of a report is ever read as markup. */
function make(name, attributes = {}, ...children) {
  const node = name.startsWith("svg:") ? document.createElementNS(NS, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}
const label = (name) => name.replaceAll("_", " ");
const short = (place) => place.slice(place.lastIndexOf("/") + 1);
const address = (value) => "0x" + value.toString(16).padStart(4, "0");
const group = (value, digits = 0) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const time = (us) => group(us, us >= 9999.5 ? 0 : us >= 99.95 ? 1 : us >= 9.995 ? 2 : 3);
function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1 %";
  if (share >= 0.995 && share < 1) return ">99 %";
  return `${group(share * 100, share > 0 && share < 0.0995 ? 1 : 0)} %`;
}
function change(ratio) {
  const value = ratio - 1;
  if (Math.abs(value) < 0.0005) return value === 0 ? "=" : "~0";
  return `${value > 0 ? "+" : "−"}${group(Math.abs(value) * 100, Math.abs(value) < 0.0995 ? 1 : 0)} %`;
}
function prefixed(value) {
  for (const [step, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= 0.9995 * step) return `${+(value / step).toPrecision(3)} ${prefix}`;
  }
  return `${+value.toPrecision(3)} `;
}

// ---- data --------------------------------------------------------------------------------------

async function read(id) {
  const node = document.getElementById(id);
  if (node === null) return null;
  if (node.tagName === "TEMPLATE") return node;
  if (node.dataset.deflated === undefined) return node.textContent;
  const bytes = Uint8Array.from(atob(node.textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}
const page = JSON.parse($("#page-data")?.textContent ?? "{}");
let view = 0, shown = -1, listing = null, drawn = false;

// ---- theme -------------------------------------------------------------------------------------

function remember(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch { /* file: pages may have no storage */ }
  return null;
}
const root = document.documentElement;
const theme = remember("warplens-theme");
if (theme === "dark" || theme === "light") root.dataset.theme = theme;
$("#theme").addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  remember("warplens-theme", root.dataset.theme);
});

// ---- tooltips ----------------------------------------------------------------------------------

const tip = $("#tip");
function moveTip(event) {
  const target = event.target.closest?.("[data-tip]");
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = target.dataset.tip;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}
document.addEventListener("pointermove", moveTip);
document.addEventListener("pointerdown", moveTip);
document.addEventListener("scroll", () => { tip.hidden = true; }, true);

// ---- views: GPU and model ----------------------------------------------------------------------

function showView() {
  for (const node of $$("[data-view]", $("#main"))) node.hidden = +node.dataset.view !== view;
  filterIndex();
  for (const node of $$("[data-roofline]", $("#main"))) drawRoofline(node);
}
$("#view")?.addEventListener("change", (event) => {
  view = +event.target.value;
  showView();
  if (shown >= 0) setUpSliders();
});

// ---- table of kernels --------------------------------------------------------------------------

const indexTable = $("#index-table"), indexSearch = $("#index-search");
function filterIndex() {
  if (!indexTable) return;
  const words = indexSearch.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of indexTable.tBodies[0].rows) {
    const isOfView = row.dataset.view === undefined || +row.dataset.view === view;
    const text = row.textContent.toLowerCase();
    row.hidden = !isOfView || !words.every((word) => text.includes(word));
    count += !row.hidden;
  }
  $("#index-count").textContent = words.length ? `${count} found` : "";
}
indexSearch?.addEventListener("input", filterIndex);
for (const [column, head] of $$("thead th", indexTable ?? make("table")).entries()) {
  if (!head.dataset.sort) continue;
  head.tabIndex = 0;
  const sort = () => {
    const isNumber = head.dataset.sort === "number";
    const order = head.getAttribute("aria-sort");
    const descending = order ? order === "ascending" : isNumber;
    for (const other of $$("[aria-sort]", indexTable)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const get = (row) => isNumber ? +(row.cells[column]?.dataset.value ?? -1) : row.cells[column]?.textContent.trim() ?? "";
    const compare = (a, b) => isNumber ? a - b : a < b ? -1 : a > b ? 1 : 0;
    const rows = [...indexTable.tBodies[0].rows].map((row, at) => [get(row), at, row]);
    rows.sort((a, b) => (descending ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1]);
    indexTable.tBodies[0].append(...rows.map((row) => row[2]));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
}

// ---- places: #/KERNEL/TAB/ADDRESS --------------------------------------------------------------

async function go() {
  const [, kernel = "", tab = "overview", place = ""] = location.hash.split("/");
  const names = page.names ?? [];
  const index = kernel === "" && names.length === 1 ? 0 : kernel === "" ? -1 : +kernel;
  if (page.kind !== "analyze") return;
  const isKnown = Number.isInteger(index) && index >= 0 && index < names.length;
  if ($("#index")) $("#index").hidden = isKnown;
  if (!isKnown) {
    $("#kernel").hidden = true;
    document.title = `${$(".crumb").title} – warplens`;
    showView();
    return;
  }
  const isOther = shown !== index;
  if (isOther) await showKernel(index);
  $("#kernel").hidden = false;
  selectTab(tab, isOther);
  if (tab === "listing" && listing) {
    listing.resize();
    if (place) listing.goTo(parseInt(place, 16));
  }
}
async function showKernel(index) {
  const holder = $("#kernel");
  listing = null;
  if ($("#index")) {
    const markup = await read(`markup-${index}`);
    // Our own template, in which all text of the report is escaped.
    const content = markup.tagName === "TEMPLATE" ? markup.content.cloneNode(true)
      : document.importNode(new DOMParser().parseFromString(`<template>${markup}</template>`, "text/html").querySelector("template").content, true);
    holder.replaceChildren(content);
    scrollTo(0, 0);
  }
  shown = index;
  document.title = `${page.names[index]} – warplens`;
  const data = JSON.parse(await read(`data-${index}`));
  const node = $("[data-listing]", holder);
  if (node && data.listing) listing = new Listing(node, data.listing, index);
  holder.curves = data.curves;
  setUpSliders();
  setUpGraph(holder);
  showView();
}
function selectTab(key, isFirst) {
  const tabs = $$("[role=tab]", $("#kernel"));
  const known = tabs.some((tab) => tab.dataset.tab === key) ? key : "overview";
  for (const tab of tabs) {
    const isSelected = tab.dataset.tab === known;
    tab.setAttribute("aria-selected", isSelected);
    tab.tabIndex = isSelected ? 0 : -1;
    if (isSelected && tab.parentNode.scrollWidth > tab.parentNode.clientWidth) {
      tab.parentNode.scrollLeft = tab.offsetLeft - tab.parentNode.offsetLeft - 40;
    }
  }
  for (const panel of $$("[role=tabpanel]", $("#kernel"))) panel.hidden = panel.id !== `panel-${known}`;
  const top = $("#kernel .kernel-head").getBoundingClientRect().bottom;
  if (!isFirst && top < 44) scrollTo(0, scrollY + top - 44);
  if (known === "flow") fitGraph($("#kernel"));
  for (const node of $$(`#panel-${known} [data-roofline]`)) drawRoofline(node);
}
addEventListener("hashchange", go);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.role === "tab" || event.target.getAttribute?.("role") === "tab") {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const tabs = $$("[role=tab]", $("#kernel"));
      const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
      location.hash = next.getAttribute("href");
      next.focus();
      event.preventDefault();
    }
  }
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    const input = $$("input[type=search]").find((one) => one.offsetParent !== null);
    if (input) { input.focus(); input.select(); event.preventDefault(); }
  }
});

// ---- listing -----------------------------------------------------------------------------------

/** A listing of which only the rows in sight are in the document. */
class Listing {
  constructor(node, data, index) {
    Object.assign(this, { node, data, index, current: -1, words: [] });
    this.panel = node.closest(".listing-card");
    this.details = $(".details", this.panel);
    this.waiters = new Map();
    data.producer.forEach((row, waiter) => {
      if (row >= 0) this.waiters.set(row, [...(this.waiters.get(row) ?? []), waiter]);
    });
    this.byAddress = new Map(data.address.map((value, row) => [value, row]));
    this.unknown = new Set(data.unknown);
    this.most = Math.max(...data.share, 1e-9);
    this.order = data.address.map((_, row) => row);
    const depth = Math.max(0, ...data.nests.map((nest) => nest.length));
    const hasPlaces = data.places.some(Boolean), hasControls = data.controls.some(Boolean);
    const widest = (texts) => texts.reduce((most, text) => Math.max(most, text.length), 0);
    const ch = (count, least = 0) => `${Math.max(least, Math.min(count, 84)) + 1}ch`;
    this.columns = [
      ["loop", `${8 + depth * 5}px`, ""], ["addr", ch(widest(data.address.map(address)), 6), "address"],
      ["share", "66px", "cycles"], ["stall", "44px", "stall"], ["pipe", ch(widest(data.pipes), 4), "pipe"],
      ["sass", ch(Math.min(44, widest(data.texts)), 24), "instruction"], ["why", "27ch", "waits for"],
      hasControls && ["ctl", ch(widest(data.controls)), "control"], hasPlaces && ["src", data.lines.some(Boolean) ? "60ch" : "26ch", "source"],
    ].filter((column) => column && (innerWidth > 640 || !["stall", "pipe"].includes(column[0])));
    this.template = this.columns.map((column) => column[1]).join(" ");
    this.head = make("div", { class: "listing-head", role: "row" },
      ...this.columns.map(([name, , title]) => make("span", { class: `c-${name}`, role: "columnheader" }, title)));
    this.head.style.gridTemplateColumns = this.template;
    this.rows = make("div", { class: "rows", role: "presentation" });
    node.replaceChildren(this.head, this.rows);
    node.setAttribute("aria-rowcount", data.address.length);
    this.fillFilters();
    node.addEventListener("scroll", () => this.draw());
    node.addEventListener("keydown", (event) => this.onKey(event));
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.select(+row.dataset.row);
    });
    this.filter();
    if (innerWidth > 1000) this.describe();
  }
  fillFilters() {
    const { data } = this, files = data.places.map((place) => place.replace(/:\d+$/, ""));
    this.files = files;
    const fill = (key, values, name = (value) => value) => {
      const select = $(`[data-filter=${key}]`, this.panel);
      const unique = [...new Set(values)].filter((value) => value !== "" && value !== undefined);
      select.append(...unique.map((value) => make("option", { value }, name(value))));
      select.closest("label").hidden = !unique.length;
      select.addEventListener("change", () => this.filter());
    };
    fill("stall", data.stalls.filter((stall) => stall !== "selected").toSorted?.() ?? data.stalls, label);
    fill("pipe", [...data.pipes].sort());
    fill("file", [...files].sort(), short);
    fill("loop", [...new Set(data.nests.flat())].sort((a, b) => a - b), (value) => address(+value));
    this.search = $(".listing-search", this.panel);
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { this.move(event.shiftKey ? -1 : 1, true); event.preventDefault(); }
      if (event.key === "Escape") { this.search.value = ""; this.filter(); this.node.focus(); }
    });
  }
  filter() {
    const { data } = this, get = (key) => $(`[data-filter=${key}]`, this.panel).value;
    const [stall, pipe, file, loop] = ["stall", "pipe", "file", "loop"].map(get);
    this.words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const stallIndex = data.stalls.indexOf(stall);
    this.order = data.address.map((_, row) => row).filter((row) => {
      if (pipe && data.pipes[data.pipe[row]] !== pipe) return false;
      if (file && this.files[data.place[row]] !== file) return false;
      if (loop && !data.nests[data.nest[row]].includes(+loop)) return false;
      if (stall && data.stall[row] !== stallIndex && !this.stackOf(row).some(([index]) => index === stallIndex)) return false;
      if (!this.words.length) return true;
      const text = `${address(data.address[row])} ${data.texts[data.text[row]]} ${data.places[data.place[row]]} ${data.lines[data.place[row]]} ${data.controls[data.control[row]]}`.toLowerCase();
      return this.words.every((word) => text.includes(word));
    });
    const isWhole = this.order.length === data.address.length;
    const share = this.order.reduce((sum, row) => sum + data.share[row], 0);
    $(".listing-count", this.panel).textContent = isWhole ? `${group(this.order.length)} instructions`
      : `${group(this.order.length)} of ${group(data.address.length)}, ${percent(Math.min(1, share))} of cycles`;
    this.rows.style.height = `${this.order.length * ROW}px`;
    this.first = -1;
    this.node.scrollTop = 0;
    if (isWhole && this.current >= 0) this.goTo(data.address[this.current], false);
    this.draw();
  }
  stackOf(row) {
    const flat = this.data.stack[row], pairs = [];
    for (let at = 0; at < flat.length; at += 2) pairs.push([flat[at], flat[at + 1]]);
    return pairs;
  }
  resize() { this.first = -1; this.draw(); }
  draw(all = false) {
    const height = this.node.clientHeight || 600;
    const first = all ? 0 : Math.max(0, Math.floor(this.node.scrollTop / ROW) - 12);
    if (first === this.first && !all) return;
    if (!all && this.first >= 0 && Math.abs(first - this.first) < 6 && this.last >= this.node.scrollTop / ROW + height / ROW) return;
    this.first = first;
    this.last = all ? this.order.length : Math.min(this.order.length, first + Math.ceil(height / ROW) + 36);
    this.rows.replaceChildren(...this.order.slice(first, this.last).map((row, at) => this.makeRow(row, first + at)));
  }
  makeRow(row, position) {
    const { data } = this, cells = [];
    const isDead = data.executed[row] === 0, nest = data.nests[data.nest[row]];
    for (const [name] of this.columns) {
      const cell = make("span", { class: `c-${name}`, role: "gridcell" });
      if (name === "loop") cell.append(...nest.map(() => make("i")));
      else if (name === "addr") cell.append(address(data.address[row]));
      else if (name === "share" && data.share[row] >= 0.0005) {
        const bar = make("i");
        bar.style.width = `${100 * data.share[row] / this.most}%`;
        cell.append(bar, make("b", {}, percent(data.share[row])));
      } else if (name === "stall" && data.stall_cycles[row] >= 0.05) cell.append(group(data.stall_cycles[row], data.stall_cycles[row] < 9.95 ? 1 : 0));
      else if (name === "pipe") cell.append(this.unknown.has(row) ? make("span", { class: "unknown" }, "X") : data.pipes[data.pipe[row]]);
      else if (name === "ctl") cell.append(data.controls[data.control[row]]);
      else if (name === "sass") cell.append(...this.highlight(data.texts[data.text[row]]));
      else if (name === "src") {
        const line = data.lines[data.place[row]];
        cell.append(...this.highlight(short(data.places[data.place[row]])), line ? "  " : "", ...(line ? this.highlight(line) : []));
      }
      else if (name === "why" && data.stall[row] >= 0 && data.stall_cycles[row] >= 0.05) {
        const stall = data.stalls[data.stall[row]], producer = data.producer[row];
        cell.append(make("i", { class: `dot s-${stall}` }), label(stall));
        if (producer >= 0) cell.append(" ", make("a", { href: this.link(producer), tabindex: "-1" }, `← ${address(data.address[producer])}`));
      }
      cells.push(cell);
    }
    const isBlock = position > 0 && this.order[position - 1] === row - 1 && data.executed[row] !== data.executed[row - 1];
    const current = this.current >= 0 && this.current !== row;
    const classes = ["row", row === this.current && "is-current", isBlock && "is-block", isDead && "is-dead",
      current && data.producer[this.current] === row && "is-producer", current && data.producer[row] === this.current && "is-waiter"];
    const node = make("div", { class: classes.filter(Boolean).join(" "), "data-row": row, role: "row", "aria-rowindex": row + 1,
      "aria-selected": row === this.current }, ...cells);
    node.style.gridTemplateColumns = this.template;
    node.style.top = `${position * ROW}px`;
    return node;
  }
  highlight(text) {
    const word = this.words.find((one) => text.toLowerCase().includes(one));
    if (!word) return [text];
    const at = text.toLowerCase().indexOf(word);
    return [text.slice(0, at), make("mark", {}, text.slice(at, at + word.length)), text.slice(at + word.length)];
  }
  link(row) { return `#/${this.index}/listing/${address(this.data.address[row])}`; }
  goTo(value, andSelect = true) {
    const row = this.byAddress.get(value);
    if (row === undefined) return;
    let position = this.order.indexOf(row);
    if (position < 0) {
      for (const select of $$("[data-filter]", this.panel)) select.value = "";
      this.search.value = "";
      this.current = -1;
      this.filter();
      position = row;
    }
    const top = position * ROW, height = this.node.clientHeight || 600;
    if (top < this.node.scrollTop + ROW || top > this.node.scrollTop + height - 3 * ROW) this.node.scrollTop = top - height / 3;
    if (andSelect) this.select(row, false);
  }
  select(row, andRemember = true) {
    this.current = row;
    this.first = -1;
    this.draw();
    this.describe();
    const link = this.link(row);
    if (andRemember && location.hash !== link) history.replaceState(null, "", link);
  }
  move(step, isMatch = false) {
    if (!this.order.length) return;
    const found = this.order.indexOf(this.current), at = found >= 0 ? found : step > 0 ? -1 : this.order.length;
    const next = isMatch
      ? (at + step + this.order.length) % this.order.length : Math.max(0, Math.min(this.order.length - 1, at + step));
    this.select(this.order[next]);
    this.goTo(this.data.address[this.order[next]], false);
  }
  onKey(event) {
    const rows = Math.max(1, Math.floor(this.node.clientHeight / ROW) - 3);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: rows, PageUp: -rows, Home: -1e9, End: 1e9 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (steps[event.key]) this.move(steps[event.key]);
    else if (event.key === "Enter" && this.data.producer[this.current] >= 0) location.hash = this.link(this.data.producer[this.current]);
    else if (event.key === "Backspace") history.back();
    else return;
    event.preventDefault();
  }
  describe() {
    const { data } = this, row = this.current;
    if (row < 0) {
      this.details.replaceChildren(make("p", { class: "muted" }, "Choose an instruction: its stalls, what it waits for, and what waits for it stand here."));
      return;
    }
    const fact = (name, value) => value === "" ? [] : [make("dt", {}, name), make("dd", {}, value)];
    const stack = this.stackOf(row), total = stack.reduce((sum, [, cycles]) => sum + cycles, 0);
    const place = data.places[data.place[row]], line = data.lines[data.place[row]];
    const links = (title, rows) => rows.length ? [make("h3", {}, title), make("ul", { class: "links" }, ...rows.slice(0, 12).map((other) =>
      make("li", {}, make("a", { class: "mono", href: this.link(other) }, address(data.address[other])), " ", make("span", { class: "mono small" }, data.texts[data.text[other]])))),
      rows.length > 12 ? make("p", { class: "muted small" }, `and ${rows.length - 12} more`) : ""] : [];
    this.details.replaceChildren(
      make("p", { class: "sass mono" }, make("b", {}, data.texts[data.text[row]])), make("p", { class: "mono muted" }, data.controls[data.control[row]]),
      make("dl", {}, ...fact("address", address(data.address[row])), ...fact("pipe", this.unknown.has(row) ? "unknown opcode" : data.pipes[data.pipe[row]]),
        ...fact("executed by a warp", `${({ assumed: "~", unknown: "?" })[data.provenances[data.provenance[row]]] ?? ""}${group(data.executed[row], Number.isInteger(data.executed[row]) ? 0 : 2)}`),
        ...fact("waits each time", data.stall_cycles[row] ? `${group(data.stall_cycles[row], 1)} cycles` : "not"), ...fact("of the launch's cycles", percent(data.share[row]))),
      ...(total ? [make("h3", {}, "Cycles by stall"), makeStack(stack.map(([index, cycles]) => [data.stalls[index], cycles]), total, 14),
        makeLegend(stack.map(([index, cycles]) => [data.stalls[index], cycles]), total)] : []),
      ...links("Waits for", data.producer[row] >= 0 ? [data.producer[row]] : []),
      ...links("Waited for by", this.waiters.get(row) ?? []),
      ...(place ? [make("h3", {}, place), ...(line ? [make("pre", {}, line)] : [])] : []));
  }
}
function makeStack(parts, total, height, width = 100) {
  const svg = make("svg:svg", { class: "stack", width: "100%", height, role: "img",
    "aria-label": parts.map(([name, cycles]) => `${label(name)} ${percent(cycles / total)}`).join(", ") });
  let start = 0;
  for (const [name, cycles] of parts) {
    const share = cycles / total * width;
    svg.append(make("svg:rect", { class: `seg s-${name}`, x: `${start}%`, width: `${share}%`, height,
      "data-tip": `${label(name)}: ${percent(cycles / total)}, ${group(cycles)} cycles` }));
    if (share > 3 + 1.1 * name.length && height > 20) svg.append(make("svg:text", { class: `seg-label l-${name}`, x: `${start + share / 2}%`, y: height / 2 + 4, "text-anchor": "middle" }, label(name)));
    start += share;
  }
  return svg;
}
function makeLegend(parts, total) {
  return make("ul", { class: "legend" }, ...parts.map(([name, cycles]) => make("li", {}, make("span", { class: `key s-${name}` }),
    make("span", { class: "name" }, label(name)), make("span", { class: "n" }, group(cycles)), make("span", { class: "n share" }, percent(cycles / total)))));
}
addEventListener("beforeprint", () => { if (listing) listing.draw(listing.order.length <= 3000); });
addEventListener("afterprint", () => listing?.resize());
let settle = 0;
addEventListener("resize", () => {
  listing?.resize();
  clearTimeout(settle);
  settle = setTimeout(() => { for (const node of $$("[data-roofline]", $("#main"))) if (node.offsetParent) drawRoofline(node); }, 120);
});

// ---- control flow ------------------------------------------------------------------------------

function setUpGraph(holder) {
  for (const button of $$("[data-zoom]", holder)) {
    button.addEventListener("click", () => {
      const svg = $(".cfg", holder), box = svg.viewBox.baseVal;
      if (button.dataset.zoom === "fit") { fitGraph(holder, true); return; }
      const scale = svg.getBoundingClientRect().width / box.width * (button.dataset.zoom === "in" ? 1.25 : 0.8);
      svg.setAttribute("width", Math.round(box.width * scale));
      svg.setAttribute("height", Math.round(box.height * scale));
    });
  }
  drawn = false;
}
function fitGraph(holder, isWhole = false) {
  const svg = $(".cfg", holder), graph = $(".graph", holder);
  if (!svg || (drawn && !isWhole)) return;
  drawn = true;
  const box = svg.viewBox.baseVal, width = graph.clientWidth, height = innerHeight * 0.75;
  const scale = isWhole ? Math.min(width / box.width, height / box.height, 1) : Math.max(Math.min(width / box.width, 1), 0.55);
  svg.setAttribute("width", Math.round(box.width * scale));
  svg.setAttribute("height", Math.round(box.height * scale));
  graph.scrollLeft = (svg.clientWidth - width) / 2;
}

// ---- roofline ----------------------------------------------------------------------------------

const LEVELS = ["DRAM", "L2", "L1"];
let unit = null; // of the work: flops, instructions; null: what the kernel has
function drawRoofline(node) {
  const here = +node.dataset.roofline, points = (page.points ?? []).filter((point) => point.view === view);
  const own = points.find((point) => point.kernel === here);
  const hasFlops = own ? own.flops > 0 : points.some((point) => point.flops > 0);
  const work = unit ?? (hasFlops ? "flops" : "instructions");
  const placed = points.filter((point) => point[work] > 0 && LEVELS.some((level) => point.bytes[level] > 0));
  const picker = make("select", { class: "tool", "aria-label": "Work" },
    make("option", { value: "flops" }, "operations"), make("option", { value: "instructions" }, "warp instructions"));
  picker.value = work;
  picker.addEventListener("change", () => { unit = picker.value; for (const one of $$("[data-roofline]", $("#main"))) drawRoofline(one); });
  const tools = make("div", { class: "filters" }, make("label", {}, "work ", picker));
  if (!placed.length) {
    node.replaceChildren(tools, make("p", { class: "muted" }, work === "flops" ? "No floating-point work with memory traffic on this GPU."
      : "Executed instructions are not known: give the launch."));
    return;
  }
  const chart = new Roofline(placed, placed.includes(own) ? own : null, work, node.clientWidth || 640);
  node.replaceChildren(tools, chart.svg, make("p", { class: "note" }, chart.note));
}

/** Points of kernels under the slopes of memory levels and the ceilings of peaks, on logarithmic axes. */
class Roofline {
  constructor(points, own, work, room) {
    Object.assign(this, { points, own, work, word: work === "flops" ? "FLOP" : "inst" });
    this.width = Math.max(300, Math.min(880, room));
    this.height = Math.round(Math.max(280, Math.min(400, this.width * 0.66)));
    Object.assign(this, { left: 58, right: this.width - (own ? 94 : 14), top: 12, bottom: this.height - 44, isNarrow: this.width < 460 });
    this.svg = make("svg:svg", { width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}`, role: "img", "aria-label": `Roofline of ${points.length} kernels` });
    this.memory = this.findMemoryRates();
    this.peaks = this.findPeaks();
    this.dots = this.placeDots();
    this.scale();
    this.drawAxes();
    this.drawSlopes();
    this.drawPeaks();
    if (own) this.drawPipes();
    this.drawDots();
  }
  findMemoryRates() {
    const find = (level) => Math.max(...this.points.map((point) => point.memory.find((roof) => roof.name === level)?.per_second ?? 0));
    return LEVELS.map((level) => [level, find(level)]).filter(([, rate]) => rate > 0);
  }
  findPeaks() {
    if (this.work === "instructions") return [["issue slots", Math.max(...this.points.map((point) => point.issue_per_second))]];
    const found = new Map();
    for (const point of this.own ? [this.own] : this.points) {
      for (const roof of point.compute) found.set(roof.name, Math.max(found.get(roof.name) ?? 0, roof.per_second));
    }
    return [...found].sort((a, b) => b[1] - a[1]);
  }
  /** A dot for each level of the page's own kernel; for others one, of DRAM, or of L2 where none come from DRAM. */
  placeDots() {
    const isShown = (point, level) => point === this.own || level === (point.bytes.DRAM > 0 ? "DRAM" : point.bytes.L2 > 0 ? "L2" : "L1");
    return this.points.flatMap((point) => LEVELS.filter((level) => point.bytes[level] > 0 && isShown(point, level))
      .map((level) => ({ point, level, x: point[this.work] / point.bytes[level], y: point[this.work] / point.time_us * 1e6 })));
  }
  scale() {
    const peak = Math.max(...this.peaks.map(([, rate]) => rate), ...this.dots.map((dot) => dot.y), 1);
    const decades = (values, pad) => [10 ** Math.floor(Math.log10(Math.min(...values)) - pad), 10 ** Math.ceil(Math.log10(Math.max(...values)) + pad)];
    [this.x0, this.x1] = decades([...this.dots.map((dot) => dot.x), peak / this.memory[0][1]], 0.15);
    [this.y0] = decades([...this.dots.map((dot) => dot.y), peak / 30], 0.05);
    Object.assign(this, { y1: peak * 3, peak });
  }
  px(x) { return this.left + (this.right - this.left) * Math.log10(x / this.x0) / Math.log10(this.x1 / this.x0); }
  py(y) { return this.bottom - (this.bottom - this.top) * Math.log10(y / this.y0) / Math.log10(this.y1 / this.y0); }
  put(name, attributes, ...children) { this.svg.append(make(`svg:${name}`, attributes, ...children)); }
  drawAxes() {
    const { left, right, top, bottom } = this, middle = (top + bottom) / 2;
    for (let x = this.x0; x <= this.x1 * 1.001; x *= 10) {
      this.put("line", { class: "grid-line", x1: this.px(x), x2: this.px(x), y1: top, y2: bottom });
      this.put("text", { x: this.px(x), y: bottom + 16, "text-anchor": "middle" }, x > 999 ? prefixed(x).trim() : String(+x.toPrecision(3)));
    }
    for (let y = this.y0; y <= this.y1; y *= 10) {
      this.put("line", { class: "grid-line", x1: left, x2: right, y1: this.py(y), y2: this.py(y) });
      this.put("text", { x: left - 6, y: this.py(y) + 4, "text-anchor": "end" }, prefixed(y).trim());
    }
    const name = this.work === "flops" ? "FLOP" : "warp instructions";
    this.put("text", { class: "axis-title", x: (left + right) / 2, y: this.height - 6, "text-anchor": "middle" }, `${name} per byte of the level`);
    this.put("text", { class: "axis-title", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, `${this.word}/s`);
  }
  drawSlopes() {
    const angle = Math.atan2(this.py(10 * this.y0) - this.py(this.y0), this.px(10 * this.x0) - this.px(this.x0)) * 180 / Math.PI;
    for (const [level, rate] of this.memory) {
      const from = Math.max(this.x0, this.y0 / rate), to = Math.min(this.peak / rate, this.x1), text = `${level} ${group(rate / 1e9)} GB/s`;
      if (from >= to) continue;
      this.put("path", { class: `roof ${level}`, d: `M${this.px(from)} ${this.py(from * rate)}L${this.px(to)} ${this.py(to * rate)}`, "data-tip": text });
      const at = from * (to / from) ** 0.32, x = this.px(at), y = this.py(at * rate) - 6;
      this.put("text", { class: "roof-label", x, y, transform: `rotate(${angle} ${x} ${y})` }, this.isNarrow ? level : text);
    }
  }
  drawPeaks() {
    const steepest = Math.max(...this.memory.map(([, rate]) => rate));
    let above = -99;
    for (const [name, rate] of this.peaks.filter(([, rate]) => rate >= this.y0)) {
      const text = `${name} ${prefixed(rate)}${this.word}/s`;
      this.put("path", { class: "roof", d: `M${this.px(Math.max(this.x0, rate / steepest))} ${this.py(rate)}H${this.right}`, "data-tip": text });
      above = Math.max(this.py(rate) - 5, above + 12);
      this.put("text", { class: "roof-label", x: this.right, y: above, "text-anchor": "end" }, this.isNarrow ? name : text);
    }
  }
  /** Where each pipe would be busy all the time with the kernel's own mix. */
  drawPipes() {
    const y = this.own[this.work] / this.own.time_us * 1e6;
    const pipes = Object.entries(this.own.pipes).filter(([, share]) => share > 0.02).map(([name, share]) => [name, y / share])
      .filter(([, rate]) => rate >= this.y0 && rate <= this.y1).sort((a, b) => b[1] - a[1]).slice(-9);
    let above = 0;
    for (const [name, rate] of pipes) {
      const at = this.py(rate);
      above = Math.max(at + 4, above + 12);
      this.put("line", { class: "pipe", x1: this.left, x2: this.right, y1: at, y2: at, "data-tip": `${name} all busy: ${prefixed(rate)}${this.word}/s of this kernel's mix` });
      this.put("path", { class: "pipe", d: `M${this.right} ${at}L${this.right + 7} ${above - 4}` });
      this.put("text", { class: "pipe-label", x: this.right + 9, y: above }, name);
    }
  }
  drawDots() {
    const own = this.dots.filter((dot) => dot.point === this.own).sort((a, b) => a.x - b.x);
    if (own.length > 1) this.put("line", { class: "link", x1: this.px(own[0].x), x2: this.px(own.at(-1).x), y1: this.py(own[0].y), y2: this.py(own[0].y) });
    for (const dot of [...this.dots.filter((dot) => dot.point !== this.own), ...own]) this.svg.append(this.makeDot(dot));
    own.forEach((dot, at) => {
      const isNear = (other) => Math.abs(this.px(other.x) - this.px(dot.x)) < 24;
      if (own.slice(0, at).some(isNear)) return;
      this.put("text", { class: "roof-label", x: this.px(dot.x), y: this.py(dot.y) + 19, "text-anchor": "middle" }, own.filter(isNear).map((other) => other.level).sort().join(", "));
    });
  }
  makeDot({ point, level, x, y }) {
    const name = page.names[point.kernel], isOwn = point === this.own;
    const circle = make("svg:circle", { class: `pt ${level} ${this.own ? (isOwn ? "here" : "other") : ""}`, cx: this.px(x), cy: this.py(y), r: isOwn ? 6 : 4.5,
      tabindex: 0, role: "link", "aria-label": name,
      "data-tip": `${name}\n${prefixed(y)}${this.word}/s, ${+x.toPrecision(3)} ${this.word} per byte of ${level}\n${time(point.time_us)} µs, ${point.bound}-bound` });
    const open = () => { location.hash = `#/${point.kernel}`; };
    circle.addEventListener("click", open);
    circle.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    return circle;
  }
  get note() {
    if (!this.own) return "Points by their bytes of DRAM, of L2 where none come from DRAM; a point opens its kernel.";
    const others = this.points.length > 1 ? " Pale points: other kernels, by their bytes of DRAM." : "";
    return `Dashed: where a pipe would be busy all the time with this kernel's mix.${others}`;
  }
}

// ---- what if -----------------------------------------------------------------------------------

const FIGURES = {
  "memory.bandwidth_gbps": ["DRAM bandwidth", "GB/s", 1], "l2.bandwidth_gbps": ["L2 bandwidth", "GB/s", 1],
  "memory.l2_bytes_per_cycle_per_sm": ["L2 port of an SM", "B/cycle", 1], "l2.size_bytes": ["L2 size", "MiB", 1048576],
  "sm.count": ["SMs", "", 1], "clock.boost_mhz": ["SM clock", "MHz", 1], "memory.dram_latency_cycles": ["DRAM latency", "cycles", 1],
  "limits.shared_bytes_per_sm": ["Shared memory of an SM", "KiB", 1024], "limits.registers_per_sm": ["Registers of an SM", "", 1],
};
const EFFECT_CLASSES = { faster: "down", slower: "up", none: "muted" };
/** A change of time, or that there is none beyond the resolution of the model. */
const describeEffect = (point, ratio) => point.effect === "none" ? "no effect" : change(ratio);
function setUpSliders() {
  const holder = $("#kernel"), node = $("[data-sliders]", holder), result = $("[data-whatif-result]", holder);
  if (!node || !holder.curves?.length) return;
  const gpu = page.views[view]?.gpu;
  const curves = holder.curves.filter((curve) => curve.gpu === gpu);
  if (!curves.length) {
    node.replaceChildren(make("p", { class: "muted" }, "No edited figures of this GPU were predicted."));
    result.replaceChildren();
    return;
  }
  const sliders = curves.map((curve) => new Slider(curve, (moved) => {
    for (const other of sliders) if (other !== moved) other.set(other.base);
    showPoint(result, moved.curve, moved.point);
  }));
  node.replaceChildren(...sliders.map((slider) => slider.node));
  const first = sliders[0];
  showPoint(result, first.curve, first.curve.points[first.base]);
  $("[data-tornado]", holder)?.replaceChildren(makeTornado(sliders));
}
/** The change of time with each figure at its lowest and highest value; a click moves the slider there. */
function makeTornado(sliders) {
  const body = make("tbody");
  for (const slider of sliders) {
    const { points } = slider.curve, base = points[slider.base], cells = [0, points.length - 1].map((index) => {
      const ratio = points[index].time_us === null ? null : points[index].time_us / base.time_us;
      const button = make("button", { type: "button", class: `link ${EFFECT_CLASSES[points[index].effect] ?? ""}` },
        ratio === null ? "does not run" : describeEffect(points[index], ratio));
      button.addEventListener("click", () => { slider.input.value = index; slider.input.dispatchEvent(new Event("input")); slider.input.focus(); });
      return make("td", { class: "n" }, button);
    });
    body.append(make("tr", {}, make("td", {}, slider.name), ...cells));
  }
  const heads = ["Figure", ...[0, sliders[0].curve.points.length - 1].map((index) => `×${+sliders[0].curve.points[index].factor.toPrecision(2)}`)];
  return make("table", { class: "data" }, make("thead", {}, make("tr", {}, ...heads.map((text, at) => make("th", { scope: "col", class: at ? "n" : "" }, text)))), body);
}
class Slider {
  constructor(curve, onMove) {
    this.curve = curve;
    this.base = curve.points.findIndex((point) => point.factor === 1);
    const tensor = curve.key.match(/^tensor\.(\w+)\./);
    const [name, unit, scale] = FIGURES[curve.key] ?? (tensor ? [`Tensor rate, ${tensor[1].toUpperCase()}`, "FMA/cycle/SM", 1] : [curve.key, "", 1]);
    Object.assign(this, { name, unit, scale });
    this.input = make("input", { type: "range", min: 0, max: curve.points.length - 1, step: 1, id: `slide-${curve.key}`, title: curve.key });
    this.output = make("output", { for: `slide-${curve.key}` });
    this.svg = make("svg:svg", { viewBox: "0 0 118 40", "aria-hidden": "true" });
    this.node = make("div", { class: "slider" },
      make("div", {}, make("div", { class: "slider-head" }, make("label", { for: `slide-${curve.key}` }, name), this.output), this.input), this.svg);
    this.drawSpark();
    this.set(this.base);
    this.input.addEventListener("input", () => { this.set(+this.input.value); onMove(this); });
    this.input.addEventListener("dblclick", () => { this.set(this.base); onMove(this); });
  }
  drawSpark() {
    const times = this.curve.points.map((point) => point.time_us), base = times[this.base];
    const ratios = times.map((us) => us === null ? null : us / base), known = ratios.filter((ratio) => ratio !== null);
    const low = Math.min(...known, 0.75), high = Math.max(...known, 1.3);
    this.at = (index) => [4 + 110 * index / (times.length - 1), ratios[index] === null ? null : 36 - 32 * (Math.log(ratios[index] / low) / Math.log(high / low))];
    const path = ratios.map((ratio, index) => ratio === null ? "" : `${index && ratios[index - 1] !== null ? "L" : "M"}${this.at(index).map((v) => v.toFixed(1)).join(" ")}`).join("");
    const level = this.at(this.base)[1];
    this.dot = make("svg:circle", { class: "spark-dot", r: 3.5 });
    this.svg.append(make("svg:line", { class: "spark-base", x1: 0, x2: 118, y1: level, y2: level }), make("svg:path", { class: "spark", d: path }), this.dot);
    this.node.classList.toggle("is-flat", this.curve.points.every((point) => point.effect === "none"));
  }
  get point() { return this.curve.points[+this.input.value]; }
  set(index) {
    this.input.value = index;
    const point = this.curve.points[index], value = point.value / this.scale;
    const text = `${group(value, value < 10 && !Number.isInteger(value) ? 2 : Number.isInteger(value) || value >= 100 ? 0 : 1)} ${this.unit}`.trim();
    const effect = point.effect === "none" ? "" : " time", base_us = this.curve.points[this.base].time_us;
    const ratio = point.time_us === null ? "does not run" : `${describeEffect(point, point.time_us / base_us)}${effect}`;
    this.output.textContent = index === this.base ? text : `${text} (×${+point.factor.toPrecision(3)}), ${ratio}`;
    this.input.setAttribute("aria-valuetext", this.output.textContent);
    const [x, y] = this.at(index);
    this.dot.setAttribute("cx", x);
    this.dot.setAttribute("cy", y ?? 4);
    this.node.classList.toggle("is-moved", index !== this.base);
  }
}
function showPoint(node, curve, point) {
  const base = curve.points.find((one) => one.factor === 1), isBase = point === base;
  const title = make("h2", {}, "Prediction ", make("span", { class: "muted" }, `model ${curve.model}, ${page.views[view].name}`));
  if (point.time_us === null) {
    node.replaceChildren(title, make("p", { class: "callout warn" }, `Does not run: ${point.refused}`));
    return;
  }
  const mostTime = Math.max(base.time_us, point.time_us);
  const parts = (one) => Object.entries(one.cpi_stack).sort((a, b) => b[1] - a[1]);
  const row = (name, one) => [make("span", { class: "muted" }, name), makeStack(parts(one), one.cycles, 30, 100 * one.time_us / mostTime)];
  const ratio = point.time_us / base.time_us;
  node.replaceChildren(title,
    make("p", { class: "hero" }, make("span", { class: "big" }, time(point.time_us)), make("span", { class: "unit" }, "µs"),
      isBase ? "" : make("b", { class: EFFECT_CLASSES[point.effect] }, describeEffect(point, ratio)), make("span", { class: "chip" }, `${point.bound}-bound`)),
    make("div", { class: "compare" }, ...row("as it is", base), ...(isBase ? [] : row("edited", point))),
    isBase ? make("p", { class: "note" }, "The curves show the time over each figure, from half to twice; move a slider to see the stalls there.") : "",
    makeLegend(parts(point), point.cycles));
}

// ---- diff --------------------------------------------------------------------------------------

function setUpAligned(node) {
  const data = JSON.parse($(`#${node.dataset.aligned}`).textContent);
  const { old: before, new: after, pairs, kinds } = data;
  const widths = [before, after].map((side) => side.texts.reduce((most, text) => Math.max(most, text.length), 10));
  const controls = Math.max(...[before, after].flatMap((side) => side.controls.map((text) => text.length)), 0);
  const template = widths.map((width, at) => `${at ? "calc(7ch + 9px)" : "7ch"} 56px ${controls + 2}ch ${width + 2}ch`).join(" ");
  const rows = make("div", { class: "rows" });
  const head = make("div", { class: "listing-head" }, ...["old", "cycles", "control", "instruction", "new", "cycles", "control", "instruction"].map((text) => make("span", {}, text)));
  head.style.gridTemplateColumns = template;
  node.replaceChildren(head, rows);
  const only = $("input", node.parentNode);
  let order = [];
  const side = (columns, row, cls) => row < 0 ? [make("span", { class: cls }), make("span"), make("span"), make("span")] : [
    make("span", { class: `c-addr ${cls}` }, address(columns.address[row])), make("span", { class: "c-stall" }, columns.share[row] >= 0.0005 ? percent(columns.share[row]) : ""),
    make("span", { class: "c-ctl" }, " ", columns.controls[columns.control[row]]), make("span", {}, columns.texts[columns.text[row]])];
  let first = -1;
  const draw = () => {
    const start = Math.max(0, Math.floor(node.scrollTop / ROW) - 12);
    if (start === first) return;
    first = start;
    rows.replaceChildren(...order.slice(start, start + Math.ceil((node.clientHeight || 600) / ROW) + 30).map((index, at) => {
      const [old, fresh] = pairs[index];
      const line = make("div", { class: `row k-${kinds[index]}` }, ...side(before, old, ""), ...side(after, fresh, "side-new"));
      line.style.gridTemplateColumns = template;
      line.style.top = `${(start + at) * ROW}px`;
      return line;
    }));
  };
  const filter = () => {
    const near = new Set();
    kinds.forEach((kind, index) => { if (kind !== "equal") for (let other = index - 3; other <= index + 3; other++) near.add(other); });
    order = pairs.map((_, index) => index).filter((index) => !only?.checked || near.has(index));
    rows.style.height = `${order.length * ROW}px`;
    first = -1;
    draw();
  };
  node.addEventListener("scroll", draw);
  only?.addEventListener("change", filter);
  node.closest("details")?.addEventListener("toggle", () => { first = -1; draw(); });
  filter();
}
for (const node of $$("[data-aligned]")) setUpAligned(node);
const diffSearch = $("#diff-search"), diffPick = $("#diff-pick");
function filterDiff() {
  const words = diffSearch.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const node of $$("[data-verdict]")) {
    const text = node.dataset.name.toLowerCase();
    node.hidden = (diffPick.value !== "" && node.dataset.verdict !== diffPick.value) || !words.every((word) => text.includes(word));
  }
}
diffSearch?.addEventListener("input", filterDiff);
diffPick?.addEventListener("change", filterDiff);
addEventListener("hashchange", openDetails);
function openDetails() {
  if (page.kind === "analyze" || !location.hash.startsWith("#k")) return;
  const node = document.getElementById(location.hash.slice(1));
  if (node?.tagName === "DETAILS") { node.open = true; node.scrollIntoView(); }
}
openDetails();
go();
})();
