// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is in view of one block, what is selected, and the frame that shows it.

class View {
  constructor(page) {
    this.page = page;
    this.rows = document.getElementById("rows");
    this.painter = new Painter(document.getElementById("canvas"));
    this.overview = new Overview(document.getElementById("overview"));
    this.axis = {base: 0, ticks: []};
    this.scheduled = false;
    /** Of the last frame, for tests and for whoever looks into the console. */
    this.statistics = {frames: 0, rectangles: 0};
    new ResizeObserver(() => this.resize()).observe(this.rows);
  }

  /** Shows a block from its beginning to its end. */
  show(block) {
    this.block = block;
    this.sides = block.sides;
    this.limit = block.limit;
    this.bound = block.bound;
    /** The end of time, ns: a little beyond the longer makespan. */
    this.span = Math.max(1, ...this.sides.map(side => side.makespan)) * 1.01;
    this.from = 0;
    this.to = this.span;
    this.scroll = 0;
    this.selection = null;
    this.cursor = null;
    this.range = null;
    this.hits = this.sides.map(() => null);
    this.rows.scrollTop = 0;
    this.resize();
  }

  resize() {
    if (!this.sides)
      return;
    const width = this.rows.clientWidth, height = this.rows.clientHeight;
    this.bands = layOut(this.sides, this.limit, height - 6);
    this.writeGutter();
    document.getElementById("spacer").style.height = Math.max(this.contentHeight, height) + "px";
    this.painter.resize(width, height);
    this.stale = true;
    this.update();
  }

  get contentHeight() { return this.bands.at(-1).top + this.bands.at(-1).height + 6; }
  get plotWidth() { return this.painter.width - GUTTER; }
  /** Pixels per ns. */
  get scale() { return this.plotWidth / (this.to - this.from); }
  xOf(when) { return GUTTER + (when - this.from) * this.scale; }
  whenAt(x) { return this.from + (x - GUTTER) / this.scale; }

  //===- What is in view -------------------------------------------------------------------------===//

  /** Shows the time from `from` to `to`, at least 20 ns, kept within the block. */
  setRange(from, to) {
    const length = Math.min(Math.max(to - from, 20), this.span);
    this.from = Math.min(Math.max(from + (to - from - length) / 2, 0), this.span - length);
    this.to = this.from + length;
    this.update();
  }

  /** Zooms by a factor; the moment `about` stays at its place. */
  zoom(factor, about = (this.from + this.to) / 2) {
    const length = Math.min(Math.max((this.to - this.from) * factor, 20), this.span);
    const share = (about - this.from) / (this.to - this.from);
    this.setRange(about - share * length, about - share * length + length);
  }

  pan(time) { this.setRange(this.from + time, this.to + time); }
  fit() { this.setRange(0, this.span); }

  /** Brings an operation into view, and makes it wide enough to be seen. */
  reveal(side, operation, close = false) {
    const {begin, end} = this.sides[side].facts(operation);
    if (Number.isNaN(begin))
      return;
    const length = Math.max(end - begin, 1), now = this.to - this.from, middle = (begin + end) / 2;
    const wanted = close ? length * 3 : Math.max(length * 1.2, Math.min(now, length * this.plotWidth / 24));
    if (close || wanted < now || begin < this.from || end > this.to)
      this.setRange(middle - wanted / 2, middle + wanted / 2);
    const box = this.boxOf(side, operation);
    if (box && (box.y < 4 || box.y + box.height > this.painter.height - 4))
      this.rows.scrollTop = Math.max(0, box.y + this.scroll - this.painter.height / 3);
  }

  //===- Geometry of the bands -------------------------------------------------------------------===//

  bandAt(y) { return this.bands.find(band => y + this.scroll >= band.top && y + this.scroll < band.top + band.height); }

  /** The height of a row on the canvas. */
  yOfRow(side, row, track = 0) {
    const band = this.bands.find(band => band.type === "row" && band.side === side && band.row === row && band.track === track);
    return band ? band.top - this.scroll : null;
  }

  /** The rectangle of an operation on the canvas, or null. */
  boxOf(side, operation) {
    const {begin, end, row} = this.sides[side].facts(operation);
    if (row < 0)
      return null;
    const track = this.sides[side].rows[row].tracks.findIndex(list => {
      const index = upperBound(list.starts, begin) - 1;
      return index >= 0 && list.operations[index] === operation;
    });
    const y = this.yOfRow(side, row, Math.max(track, 0));
    return {x: this.xOf(begin), y, width: (end - begin) * this.scale, height: ROW_HEIGHT};
  }

  /** The top and the bottom of a side, without scrolling. */
  extentOf(side) {
    const own = this.bands.filter(band => band.side === side);
    return [own[0].top, own.at(-1).top + own.at(-1).height];
  }

  /** What is at a point of the canvas: {side, when, band, operation}; the operation is -1 in empty places. */
  at(x, y) {
    const band = this.bandAt(y);
    if (!band || x < GUTTER)
      return null;
    const when = this.whenAt(x), hit = {side: band.side, when, band, operation: -1};
    if (band.type === "row") {
      const found = this.sides[band.side].rows[band.row].find(when, band.track, 3 / this.scale);
      if (found)
        hit.operation = found.track.operations[found.index];
    }
    return hit;
  }

  //===- Selection -------------------------------------------------------------------------------===//

  select(side, operation) {
    this.selection = operation < 0 ? null : {side, operation};
    this.update();
  }

  /** The selected operation and its counterparts, which are outlined. */
  marked() {
    if (!this.selection)
      return [];
    const {side, operation} = this.selection, marked = [{side, operation, main: true}];
    this.sides.forEach((other, index) => {
      if (index !== side)
        for (const same of this.sides[side].counterparts(operation, other))
          marked.push({side: index, operation: same, main: false});
    });
    return marked;
  }

  //===- Frames ----------------------------------------------------------------------------------===//

  /** Asks for a frame; several changes make one. */
  update() {
    if (this.scheduled)
      return;
    this.scheduled = true;
    requestAnimationFrame(() => this.frame());
  }

  /** Draws now. */
  frame() {
    this.scheduled = false;
    if (!this.sides || this.plotWidth <= 0)
      return;
    const time = performance.now();
    this.scroll = this.rows.scrollTop;
    this.axis = timeTicks(this.from, this.to, this.plotWidth, 86);
    this.writeAxis();
    if (this.stale)
      this.overview.prepare(this, this.painter.colours);
    this.stale = false;
    this.overview.draw(this, this.painter.colours);
    this.statistics.rectangles = this.painter.draw(this);
    this.statistics.milliseconds = performance.now() - time;
    ++this.statistics.frames;
    this.page.remember();
  }

  writeAxis() {
    const axis = document.getElementById("axis"), parts = [];
    const isSeen = this.cursor !== null && this.cursor >= this.from && this.cursor <= this.to;
    const marked = isSeen ? Math.min(Math.max(this.xOf(this.cursor) - GUTTER, 58), this.plotWidth - 58) : -Infinity;
    for (const {when, label} of this.axis.ticks) {
      // The label of the cursor takes the place of the ticks beside it.
      const x = this.xOf(when) - GUTTER;
      if (x < 30 || x > this.plotWidth - 36 || Math.abs(x - marked) < 98)
        continue;
      const tick = document.createElement("span");
      tick.textContent = label;
      tick.style.left = x + "px";
      parts.push(tick);
    }
    if (isSeen) {
      const mark = document.createElement("b");
      mark.textContent = formatTime(Math.round(this.cursor));
      mark.style.left = marked + "px";
      parts.push(mark);
    }
    axis.replaceChildren(...parts);
    document.getElementById("corner").textContent = this.axis.base ? formatTime(this.axis.base) + " +" : "";
  }

  /** The names of the rows, the titles and the scales of memory, as text of the page. */
  writeGutter() {
    const parts = [];
    const add = (name, top, height, ...texts) => {
      const part = document.createElement("div");
      part.className = name;
      part.style.top = top + "px";
      part.style.height = part.style.lineHeight = height + "px";
      for (const text of texts)
        part.append(element("span", text));
      parts.push(part);
      return part;
    };
    for (const band of this.bands) {
      const side = this.sides[band.side];
      if (band.type === "title" && side.isRecorded) {
        const figures = element("small");
        figures.append(...side.data.figures.map(({name, ns}) => element("span", `${name} ${formatNs(ns)}`)));
        const title = add("title figures", band.top, band.height, side.title);
        title.firstChild.append(element("small", side.data.note));
        title.append(figures);
      } else if (band.type === "title") {
        const {exposed, peak} = side.data;
        add("title", band.top, band.height, side.title).append(element("small",
          `${formatNs(side.makespan)}, computation waits ${formatNs(exposed)}, peak ${formatBytes(peak)}` +
          (side.slowedDown > 0 ? `, ${formatNs(side.slowedDown)} by contention` : "")));
      } else if (band.type === "row") {
        const row = side.rows[band.row];
        const busy = row.load === undefined || band.track > 0 || side.length === 0 ? "" : percent(row.load / side.length);
        const label = add("lane", band.top, band.height, band.track > 0 ? "" : row.name, busy);
        label.title = busy ? `${row.name}: busy for ${formatNs(row.load)}, ${busy} of the ${side.isRecorded ? "trace" : "makespan"}` : row.name;
      } else if (band.type === "resource") {
        const resource = side.resources[band.resource];
        add("lane", band.top, band.height, resource.name, percent(averageOf(resource, side.makespan)));
      } else {
        this.writeMemoryScale(band, add);
      }
    }
    document.getElementById("gutter").replaceChildren(...parts);
  }

  writeMemoryScale(band, add) {
    add("lane", band.top + band.height - 20, 16, "live memory");
    const taken = [];
    const put = (name, bytes, text) => {
      const y = memoryY(band, band.top, bytes);
      if (y < band.top + 10 && name !== "scale limit" || taken.some(other => Math.abs(other - y) < 14))
        return;
      taken.push(y);
      add(name, y - 7, 14, text);
    };
    if (this.limit > 0)
      put("scale limit", this.limit, "limit " + formatBytes(this.limit));
    for (const bytes of band.ticks)
      put("scale", bytes, formatBytes(bytes).replace(/\.0+ /, " "));
  }
}

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name)
    made.className = name;
  return made;
}

function percent(share) { return (share * 100).toFixed(share < 0.0995 ? 1 : 0) + " %"; }

/** The mean level of a step curve from 0 to `end`. */
function averageOf({when, level}, end) {
  let sum = 0;
  for (let index = 0; index < when.length; ++index)
    sum += level[index] * (Math.min(index + 1 < when.length ? when[index + 1] : end, end) - Math.min(when[index], end));
  return end > 0 ? sum / end : 0;
}
