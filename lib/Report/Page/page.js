// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Wires the page: the blocks, mouse and keys, the search, the address.

class Page {
  constructor(data) {
    this.data = data;
    this.blocks = data.blocks.map(block => ({
      ...block,
      sides: block.sides.map((side, index) => new Side(side, data.strings, side.title ?? (block.sides.length === 1 ? "schedule" : data.titles[index]))),
    }));
    this.view = new View(this);
    this.panel = new Panel(this);
    this.found = [];
    this.foundAt = -1;
    this.live = {side: -1, entry: -1};
    document.getElementById("machine").textContent = data.machine === undefined ? "" : "machine " + data.machine;
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    if (this.blocks.length === 0) {
      document.getElementById("summary").append(element("p", "No block of this program has collectives."));
      return;
    }
    this.fillBlocks();
    if (this.isRecorded)
      this.leaveOut();
    this.listen();
    this.recall();
  }

  /** Whether the page shows what somebody else recorded. Such a page has one block. */
  get isRecorded() { return this.blocks[0].sides[0].isRecorded; }

  /** Takes away what a recording does not tell. */
  leaveOut() {
    for (const part of document.querySelectorAll(".scheduled"))
      part.hidden = true;
    document.getElementById("query").placeholder = "Search: name, group ( / )";
  }

  fillBlocks() {
    const select = document.getElementById("block");
    this.blocks.forEach((block, index) => select.add(new Option(`${block.name} (${formatNs(block.sides.at(-1).makespan)})`, index)));
    document.getElementById("blocks").hidden = this.isRecorded;
    select.addEventListener("change", () => this.show(Number(select.value)));
  }

  show(index) {
    this.index = index;
    document.getElementById("block").value = index;
    this.view.show(this.blocks[index]);
    this.panel.writeSummary(this.blocks[index]);
    this.panel.writeDetails();
    this.setLive(-1, -1);
    this.search(document.getElementById("query").value);
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.view.painter.colours = readColours();
    this.view.stale = true;
    this.view.update();
  }

  toggleTheme() { this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }

  //===- Selection -------------------------------------------------------------------------------===//

  /** Selects an operation, tells its facts and what is live when its stream comes to it. */
  choose(side, operation, reveal = false) {
    this.view.select(side, operation);
    this.panel.writeDetails();
    if (operation >= 0) {
      const data = this.view.sides[side];
      const byPosition = data.data.memoryByOperation;
      if (data.isRecorded)
        this.view.cursor = data.begin[operation];
      else
        this.setLive(side, byPosition ? operation : data.entryAt(data.begin[operation]));
      if (reveal)
        this.view.reveal(side, operation);
    }
  }

  setLive(side, entry) {
    this.live = {side, entry};
    if (entry >= 0)
      this.view.cursor = this.view.sides[side].when[entry];
    this.panel.writeLive(side, entry);
    this.view.update();
  }

  showPeak() {
    if (this.isRecorded)
      return;
    const side = this.live.side >= 0 ? this.live.side : this.view.sides.length - 1, entry = this.view.sides[side].peakEntry();
    this.setLive(side, entry);
    const when = this.view.sides[side].when[entry];
    if (when < this.view.from || when > this.view.to)
      this.view.setRange(when - (this.view.to - this.view.from) / 2, when + (this.view.to - this.view.from) / 2);
  }

  clear() {
    document.getElementById("query").value = "";
    this.search("");
    this.choose(0, -1);
    this.view.cursor = null;
    this.setLive(-1, -1);
  }

  //===- Search ----------------------------------------------------------------------------------===//

  /** Finds operations whose name, kind, place or group contains the text, in any case. O(strings + operations). */
  search(text) {
    const wanted = text.trim().toLowerCase();
    this.found = [];
    this.foundAt = -1;
    if (wanted === "") {
      this.view.hits = this.view.sides.map(() => null);
    } else {
      const matching = this.data.strings.map(string => (string.toLowerCase().includes(wanted) ? 1 : 0));
      this.view.hits = this.view.sides.map(side => side.match(matching));
      this.view.hits.forEach((hits, side) => {
        const own = [];
        for (let operation = 0; operation < hits.length; ++operation)
          if (hits[operation])
            own.push({side, operation});
        const begin = this.view.sides[side].begin;
        own.sort((a, b) => begin[a.operation] - begin[b.operation] || a.operation - b.operation);
        for (const hit of own)
          this.found.push(hit);
      });
    }
    this.view.stale = true;
    this.view.update();
    this.writeHits();
  }

  writeHits() {
    const text = document.getElementById("query").value.trim() === "" ? ""
      : this.found.length === 0 ? "none"
      : this.foundAt < 0 ? `${this.found.length} hits` : `${this.foundAt + 1} of ${this.found.length}`;
    document.getElementById("hits").textContent = text;
  }

  step(direction) {
    if (this.found.length === 0)
      return;
    this.foundAt = this.foundAt < 0 ? (direction > 0 ? 0 : this.found.length - 1)
                                    : (this.foundAt + direction + this.found.length) % this.found.length;
    const {side, operation} = this.found[this.foundAt];
    this.choose(side, operation, true);
    this.writeHits();
  }

  //===- Mouse and keys --------------------------------------------------------------------------===//

  listen() {
    const {rows} = this.view, at = (id, event, act) => document.getElementById(id).addEventListener(event, act);
    rows.addEventListener("scroll", () => this.view.update());
    rows.addEventListener("wheel", event => this.onWheel(event), {passive: false});
    rows.addEventListener("pointerdown", event => this.onPress(event));
    rows.addEventListener("pointermove", event => this.onMove(event));
    rows.addEventListener("pointerup", event => this.onRelease(event));
    rows.addEventListener("pointerleave", () => { document.getElementById("tip").hidden = true; });
    rows.addEventListener("dblclick", event => this.onDoubleClick(event));
    document.addEventListener("keydown", event => this.onKey(event));
    at("query", "input", event => this.search(event.target.value));
    at("query", "keydown", event => {
      if (event.key === "Enter")
        this.step(event.shiftKey ? -1 : 1);
    });
    at("next", "click", () => this.step(1));
    at("previous", "click", () => this.step(-1));
    at("zoomIn", "click", () => this.view.zoom(0.5));
    at("zoomOut", "click", () => this.view.zoom(2));
    at("fit", "click", () => this.view.fit());
    at("theme", "click", () => this.toggleTheme());
    at("help", "click", () => document.getElementById("keys").showModal());
    const strip = document.getElementById("overview");
    const follow = event => {
      const middle = event.offsetX / strip.clientWidth * this.view.span, length = this.view.to - this.view.from;
      this.view.setRange(middle - length / 2, middle + length / 2);
    };
    strip.addEventListener("pointerdown", event => { strip.setPointerCapture(event.pointerId); follow(event); });
    strip.addEventListener("pointermove", event => { if (event.buttons & 1) follow(event); });
  }

  /** A pointer's place on the canvas. */
  pointOf(event) {
    const box = this.view.rows.getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  }

  onWheel(event) {
    const {x} = this.pointOf(event), step = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || x < GUTTER)
      return;
    event.preventDefault();
    const across = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(across) > Math.abs(event.deltaY))
      this.view.pan(across * step / this.view.scale);
    else
      this.view.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY * step)) * 0.002), this.view.whenAt(x));
  }

  onPress(event) {
    const point = this.pointOf(event);
    if (event.button !== 0 || point.x >= this.view.painter.width)
      return;
    this.drag = {...point, from: this.view.from, scroll: this.view.rows.scrollTop, moved: false, zooms: event.shiftKey};
    this.view.rows.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    const point = this.pointOf(event);
    if (!this.drag)
      return this.hover(point);
    const dx = point.x - this.drag.x, dy = point.y - this.drag.y;
    this.drag.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (!this.drag.moved)
      return;
    document.getElementById("tip").hidden = true;
    if (this.drag.zooms) {
      this.view.range = [this.view.whenAt(this.drag.x), this.view.whenAt(point.x)];
      this.view.update();
      return;
    }
    const length = this.view.to - this.view.from, from = this.drag.from - dx / this.view.scale;
    this.view.rows.scrollTop = this.drag.scroll - dy;
    this.view.setRange(from, from + length);
  }

  onRelease(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag)
      return;
    if (drag.moved && drag.zooms) {
      const [from, to] = this.view.range.slice().sort((a, b) => a - b);
      this.view.range = null;
      this.view.setRange(from, to);
    } else if (!drag.moved) {
      this.click(this.pointOf(event));
    }
  }

  /** A click selects the operation, if there is one, and tells what is live at that moment. */
  click({x, y}) {
    const hit = this.view.at(x, y);
    if (!hit)
      return;
    if (hit.operation >= 0)
      return this.choose(hit.side, hit.operation);
    this.choose(hit.side, -1);
    this.setLive(hit.side, this.view.sides[hit.side].entryAt(hit.when));
    this.view.cursor = Math.max(0, hit.when);
  }

  onDoubleClick(event) {
    const {x, y} = this.pointOf(event), hit = this.view.at(x, y);
    if (hit && hit.operation >= 0)
      this.view.reveal(hit.side, hit.operation, true);
  }

  hover(point) {
    const tip = document.getElementById("tip"), hit = this.view.at(point.x, point.y), texts = hit && this.panel.tipFor(hit);
    tip.hidden = !texts;
    this.view.rows.style.cursor = hit && hit.operation >= 0 ? "pointer" : "default";
    if (!texts)
      return;
    tip.replaceChildren(element("b", texts[0]), ...texts.slice(1).map(text => element("p", text)));
    const {width, height} = this.view.painter, top = document.getElementById("top").offsetHeight;
    tip.style.left = Math.max(0, Math.min(point.x + 14, width - tip.offsetWidth - 6)) + "px";
    tip.style.top = top + (point.y + 18 + tip.offsetHeight > height ? point.y - tip.offsetHeight - 10 : point.y + 18) + "px";
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open)
      return;
    const isTyping = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.key === "Escape") {
      this.clear();
      event.target.blur?.();
      return;
    }
    if (isTyping || event.target.tagName === "BUTTON" && ["Enter", " "].includes(event.key))
      return;
    const act = this.keys()[event.key];
    if (!act)
      return;
    event.preventDefault();
    act();
  }

  keys() {
    const {view} = this, chosen = view.selection, length = view.to - view.from;
    const toNeighbour = direction => {
      const next = chosen ? view.sides[chosen.side].neighbour(chosen.operation, direction) : -1;
      if (next >= 0)
        this.choose(chosen.side, next, true);
    };
    return {
      "+": () => view.zoom(0.7), "=": () => view.zoom(0.7), "w": () => view.zoom(0.7), "-": () => view.zoom(1 / 0.7), "s": () => view.zoom(1 / 0.7),
      "ArrowLeft": () => view.pan(-length / 8), "a": () => view.pan(-length / 8), "ArrowRight": () => view.pan(length / 8), "d": () => view.pan(length / 8),
      "ArrowUp": () => { view.rows.scrollTop -= 60; }, "ArrowDown": () => { view.rows.scrollTop += 60; },
      "0": () => view.fit(), "Home": () => view.fit(),
      "f": () => { if (chosen) view.reveal(chosen.side, chosen.operation, true); },
      "[": () => toNeighbour(-1), "]": () => toNeighbour(1),
      "b": () => {
        const other = view.marked().find(mark => !mark.main);
        if (other)
          this.choose(other.side, other.operation, true);
      },
      "p": () => this.showPeak(),
      "/": () => document.getElementById("query").select(),
      "n": () => this.step(1), "N": () => this.step(-1),
      "t": () => this.toggleTheme(),
      "?": () => document.getElementById("keys").showModal(),
    };
  }

  //===- The address -----------------------------------------------------------------------------===//

  /** Writes block, part and selection into the address, so that it can be sent to somebody. */
  remember() {
    const {view} = this, parts = new URLSearchParams();
    if (this.index > 0)
      parts.set("block", this.blocks[this.index].name);
    if (view.from > 0 || view.to < view.span)
      parts.set("from", Math.round(view.from)), parts.set("to", Math.round(view.to));
    if (view.selection)
      parts.set("side", view.selection.side), parts.set("op", view.selection.operation);
    const address = "#" + parts;
    if (address === this.address)
      return;
    this.address = address;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => history.replaceState(null, "", address), 200);
  }

  recall() {
    const parts = new URLSearchParams(location.hash.slice(1)), number = name => Number(parts.get(name));
    if (parts.has("q"))
      document.getElementById("query").value = parts.get("q");
    if (parts.has("theme"))
      this.setTheme(parts.get("theme") === "dark" ? "dark" : "light");
    this.show(Math.max(0, this.blocks.findIndex(block => block.name === parts.get("block"))));
    const side = this.view.sides[number("side")];
    if (parts.has("op") && side && number("op") >= 0 && number("op") < side.count)
      this.choose(number("side"), number("op"));
    if (parts.has("from") && number("to") > number("from"))
      this.view.setRange(number("from"), number("to"));
  }
}

window.timelinePage = new Page(JSON.parse(document.getElementById("data").textContent));
