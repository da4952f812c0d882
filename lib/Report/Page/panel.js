// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The texts beside the timeline: the summary of a block, an operation's facts, what is live or the figures of each rank, the
// search.

/** Rows of the table of live buffers. */
const BUFFERS_SHOWN = 20, PLACES_SHOWN = 8;

function plural(count, noun) { return `${count} ${noun}${count === 1 ? "" : "s"}`; }

class Panel {
  constructor(page) {
    this.page = page;
    this.details = document.getElementById("details");
    this.live = document.getElementById("live");
  }

  get view() { return this.page.view; }

  writeSummary(block) {
    const facts = block.sides[0].isRecorded ? this.figures(block.sides) : this.measures(block);
    document.getElementById("summary").replaceChildren(...facts);
    this.writeLegend(block);
  }

  fact(name, value, more = "") {
    const part = element("div", "", "fact");
    part.append(element("div", name, "name"), element("span", value, "value"), element("span", more, "more"));
    return part;
  }

  /** The figures of recorded timelines: of one, or from the least to the most of all that have it. */
  figures(sides) {
    const sum = numbers => numbers.reduce((all, number) => all + number, 0);
    const collectives = sum(sides.map(side => side.data.starts.op.length));
    const all = sum(sides.map(side => side.data.ops.count ? sum(side.data.ops.count) : side.count));
    const computations = all - collectives - sum(sides.map(side => side.data.waits.op.length));
    document.getElementById("size").textContent = `${plural(computations, "computation")}, ${plural(collectives, "collective")}`;
    return sides[0].data.figures.map(({name}) => {
      const found = sides.flatMap(side => side.data.figures.filter(figure => figure.name === name).map(figure => figure.ns));
      const [least, most] = [Math.min(...found), Math.max(...found)].map(formatNs);
      return this.fact(name, least === most ? least : `${least} \u2013 ${most}`);
    });
  }

  /** The measures of a block's schedule, and how they have changed. */
  measures(block) {
    const sides = block.sides, first = sides[0].data, last = sides.at(-1).data;
    const change = (name, before, after, format) => {
      if (sides.length === 1 || before === after)
        return this.fact(name, format(after), sides.length === 1 ? "" : this.page.data.titles.join(" and "));
      const share = before > 0 ? (after - before) / before : 0;
      const percent = after > 0 ? Math.max(share * 100, -99.9) : share * 100; // what is left is not nothing
      const more = before > 0 ? `${share > 0 ? "+" : share < 0 ? "\u2212" : ""}${Math.abs(percent).toFixed(1)} %` : "";
      return this.fact(name, `${format(before)} \u2192 ${format(after)}`, more);
    };
    const facts = [
      change("makespan", first.makespan, last.makespan, formatNs),
      change("computation waits", first.exposed, last.exposed, formatNs),
      change("peak memory", first.peak, last.peak, formatBytes),
    ];
    if (block.limit > 0)
      facts.push(this.fact("memory limit", formatBytes(block.limit), last.arguments ? `arguments ${formatBytes(last.arguments)} not included` : ""));
    if (block.bound > 0)
      facts.push(this.fact("lower bound", formatNs(block.bound), `${block.boundBy}; at most ${(Math.ceil(1e4 * Math.max(0, last.makespan - block.bound) / block.bound) / 100).toFixed(2)} % from optimal`));
    document.getElementById("size").textContent = `${plural(last.ops.kind.length, "operation")}, ${plural(last.starts.op.length, "collective")}`;
    return facts;
  }

  writeLegend(block) {
    const entry = (name, colour, isLine = false) => {
      const part = element("span"), mark = element("i", "", isLine ? "line" : "");
      mark.style[isLine ? "borderColor" : "background"] = `var(--${colour})`;
      part.append(mark, name);
      return part;
    };
    const {isRecorded} = block.sides[0], bound = isRecorded ? Math.max(...block.sides.map(side => side.data.bound)) : block.bound;
    const parts = [entry("computation", "compute"), entry(isRecorded ? "exposed: a collective runs, and no computation" : "computation waits", "stall")];
    const colours = {};
    Side.collectiveKinds.forEach((kind, index) => (colours[Math.min(index, 5)] ||= []).push(kind.replace(/^comm\./, "")));
    for (const [index, kinds] of Object.entries(colours))
      parts.push(entry(kinds.join(", "), "kind-" + index));
    if (!isRecorded)
      parts.push(entry("live memory", "memory"));
    if (block.limit > 0)
      parts.push(entry("memory limit", "limit", true));
    if (bound > 0)
      parts.push(entry(isRecorded ? "the earliest end in any order" : "lower bound of the makespan", "bound", true));
    parts.push(...(this.page.data.notes ?? []).map(note => element("span", note)));
    document.getElementById("legend").replaceChildren(...parts);
  }

  /** A button that selects an operation and brings it into view. */
  link(side, operation, text = this.view.sides[side].label(operation)) {
    const button = element("button", text, "link");
    button.addEventListener("click", () => this.page.choose(side, operation, true));
    return button;
  }

  writeDetails() {
    const chosen = this.view.selection;
    if (!chosen) {
      const what = this.view.sides[0].isRecorded ? "its times, group and bytes" : "its operation, source location, cost and what limits it";
      this.details.replaceChildren(element("h2", "Operation"), element("p", `Click on a rectangle to see ${what}.`));
      return;
    }
    const {side, operation} = chosen, data = this.view.sides[side], facts = data.facts(operation);
    const heading = element("h2", facts.label);
    const sort = facts.kind === facts.label ? [] : [facts.kind];
    if (this.view.sides.length > 1)
      sort.push(data.title);
    heading.append(element("small", sort.join(", ")));
    const list = element("dl");
    const add = (name, ...values) => {
      const value = element("dd", "", name === "limited by" && facts.exposed > 0 ? "why" : "");
      value.append(...values);
      list.append(element("dt", name), value);
    };
    this.addTimes(data, facts, add);
    this.addCommunication(side, operation, facts, add);
    this.addPlaces(facts, add);
    if (!data.isRecorded)
      add("in the program", `number ${operation + 1} of ${data.count}`);
    this.addNeighbours(side, operation, facts, add);
    this.addCounterparts(side, operation, facts, add);
    this.details.replaceChildren(heading, list);
  }

  addTimes(data, facts, add) {
    const isWait = facts.awaited >= 0 || facts.kind === "comm.wait", length = facts.end - facts.begin;
    if (!Number.isNaN(facts.begin)) {
      add(!isWait ? "runs" : data.isRecorded ? "exposed" : "waits", formatNs(length));
      add("from", formatTime(facts.begin));
      add("to", formatTime(facts.end));
    }
    if (!isWait && !data.isRecorded) {
      const bars = facts.low < facts.high ? `, from ${formatNs(facts.low)} to ${formatNs(facts.high)}` : "";
      add("cost", formatNs(facts.cost) + (facts.origin ? ` (${facts.origin}${bars})` : ""));
      if (facts.cost > 0 && length > facts.cost)
        add("slowed down by", percent(length / facts.cost - 1) + ", by what runs at the same time");
    }
    if (facts.workspace > 0)
      add("workspace", formatBytes(facts.workspace));
  }

  addCommunication(side, operation, facts, add) {
    const data = this.view.sides[side];
    if (facts.group)
      add("group", facts.group);
    if (data.startAt[operation] >= 0) {
      if (facts.bytes >= 0)
        add("bytes", formatBytes(facts.bytes));
      if (facts.ranks > 0)
        add("ranks", facts.ranks);
      if (!data.isRecorded)
        add("issued", formatTime(facts.reached));
      if (facts.begin > facts.reached)
        add("queued for", formatNs(facts.begin - facts.reached));
      add("exposed", facts.exposed > 0 ? formatNs(facts.exposed) : "0 ns, hidden by computation");
      if (facts.late > 0)
        add("waiting for others", `${formatNs(facts.late)} of it`);
      const waits = data.waitsFor(operation);
      if (waits.length > 0 && !data.isRecorded)
        add("awaited at", formatTime(Number.isNaN(data.begin[waits[0]]) ? data.data.ops.reached[waits[0]] : data.begin[waits[0]]));
    }
    if (facts.awaited >= 0)
      add(data.isRecorded ? "while this runs" : "waits for", this.link(side, facts.awaited));
    if (facts.factor)
      add("limited by", facts.factor);
  }

  addPlaces(facts, add) {
    const all = [...new Set([...facts.places, ...facts.names])].filter(place => place !== facts.label || facts.places.length === 0);
    if (all.length === 0)
      return;
    const shown = all.slice(0, PLACES_SHOWN).join("\n");
    const more = all.length > PLACES_SHOWN ? `\nand ${all.length - PLACES_SHOWN} more` : "";
    const text = element("span", shown + more);
    text.style.whiteSpace = "pre-line";
    add("location", text);
    if (facts.names.length > 1)
      add("merged from", `${facts.names.length} collectives`);
  }

  addNeighbours(side, operation, facts, add) {
    const data = this.view.sides[side], previous = data.neighbour(operation, -1);
    if (previous >= 0 && data.end[previous] === facts.begin)
      add("begins after", this.link(side, previous));
  }

  addCounterparts(side, operation, facts, add) {
    this.view.sides.forEach((other, index) => {
      if (index === side)
        return;
      const same = this.view.sides[side].counterparts(operation, other);
      if (same.length === 0 && other.isRecorded) // Whether it is there, a recording does not tell.
        return;
      if (same.length === 0)
        return add(other.title, "not there");
      const first = same[0], begin = other.begin[first];
      if (Number.isNaN(begin))
        return add(other.title, "takes no time");
      const moved = begin - facts.begin;
      const by = Number.isNaN(moved) || moved === 0 ? "" : `, ${formatNs(Math.abs(moved))} ${moved < 0 ? "earlier" : "later"}`;
      add(other.title, this.link(index, first, `at ${formatTime(begin)}`), by + (same.length > 1 ? `, and ${same.length - 1} more` : ""));
    });
  }

  /** What is live on one side in an entry of its memory curve. Recorded ones have their figures there. */
  writeLive(side, entry) {
    const data = this.view.sides[side];
    if (this.view.sides[0].isRecorded)
      return this.live.replaceChildren(...this.view.sides.flatMap(recorded => this.listFigures(recorded)));
    if (side < 0 || !data || entry < 0) {
      this.live.replaceChildren(element("h2", "Live memory"), element("p", "Click anywhere to see what is live at that moment. p shows the peak."));
      return;
    }
    const buffers = data.buffersAt(entry), {bytes, op, workspace} = data.data.buffers;
    const heading = element("h2", `Live: ${formatBytes(data.live[entry])}`);
    heading.append(element("small", `${this.view.sides.length > 1 ? data.title + ", " : ""}at ${formatTime(data.when[entry])}, ${plural(buffers.length, "buffer")}`));
    const table = element("table");
    for (const buffer of buffers.slice(0, BUFFERS_SHOWN)) {
      const row = element("tr"), cell = element("td");
      cell.append(op[buffer] < 0 ? "donated argument" : this.link(side, op[buffer]));
      if (workspace[buffer])
        cell.append(element("small", " workspace"));
      row.append(element("td", formatBytes(bytes[buffer])), cell);
      table.append(row);
    }
    const rest = buffers.slice(BUFFERS_SHOWN);
    const parts = [heading, table];
    if (rest.length > 0)
      parts.push(element("p", `and ${rest.length} more with ${formatBytes(rest.reduce((sum, buffer) => sum + bytes[buffer], 0))}`));
    this.live.replaceChildren(...parts);
  }

  /** All figures of a recorded timeline, with their shares of the first. */
  listFigures(side) {
    const heading = element("h3", side.title), list = element("dl"), whole = side.data.figures[0].ns;
    for (const {name, ns} of side.data.figures)
      list.append(element("dt", name), element("dd", formatNs(ns) + (whole > 0 ? `, ${percent(ns / whole)}` : "")));
    return [heading, list];
  }

  /** The small text beside the pointer. */
  tipFor(hit) {
    const data = this.view.sides[hit.side];
    if (hit.band.type === "memory")
      return [`${formatBytes(data.liveAt(hit.when))} live`, `limit ${formatBytes(this.view.limit)}`];
    if (hit.band.type === "resource") {
      const resource = data.resources[hit.band.resource], entry = upperBound(resource.when, hit.when) - 1;
      return [`${resource.name}: ${percent(entry < 0 ? 0 : resource.level[entry])}`];
    }
    if (hit.operation < 0)
      return null;
    const facts = data.facts(hit.operation), texts = [facts.label];
    if (facts.awaited >= 0 && data.isRecorded)
      texts.push(`${formatNs(facts.end - facts.begin)}, while ${data.label(facts.awaited)} runs and no computation`);
    else if (facts.awaited >= 0)
      texts.push(`computation waits ${formatNs(facts.end - facts.begin)} for ${data.label(facts.awaited)}`);
    else
      texts.push(`${facts.kind === facts.label ? "" : facts.kind + ", "}${formatNs(facts.end - facts.begin)}`);
    if (data.isRecorded && data.startAt[hit.operation] >= 0)
      texts.push([facts.bytes < 0 ? "" : formatBytes(facts.bytes), facts.ranks > 0 ? plural(facts.ranks, "rank") : "", facts.group].filter(Boolean).join(", "));
    if (facts.factor)
      texts.push(facts.factor);
    return texts.filter(Boolean);
  }
}
