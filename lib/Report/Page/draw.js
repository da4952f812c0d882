// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where everything is on the canvas, and how it is drawn. A frame costs time in what is in view, and draws at most a few
// rectangles per pixel and row, however many operations there are.

const GUTTER = 172, ROW_HEIGHT = 24, ROW_GAP = 3, TITLE_HEIGHT = 30, FIGURES_HEIGHT = 48, RESOURCE_HEIGHT = 34, BAND_GAP = 10;
/** Heights between which the memory curve uses the room that the rows leave. */
const MEMORY_LEAST = 96, MEMORY_MOST = 230;
/** Spans of at least this width, in pixels, have a gap of one pixel behind them. */
const WIDE = 8;

/** The height of a side's title. One with figures has two lines. */
function titleHeight(side) { return side.isRecorded ? FIGURES_HEIGHT : TITLE_HEIGHT; }

/** The bands of a block from the top to the bottom, on `room` pixels if they fit: [{type, side, top, height, ...}]. */
function layOut(sides, limit, room) {
  const bands = [];
  // A stream that only issues collectives has an empty row.
  const isShown = (side, row, lane) => lane < side.data.loads.length || row.tracks[0].starts.length > 0;
  let fixed = 0;
  for (const side of sides) {
    fixed += titleHeight(side) + BAND_GAP + side.resources.length * (RESOURCE_HEIGHT + ROW_GAP);
    fixed += side.rows.reduce((sum, row, lane) => sum + (isShown(side, row, lane) ? row.tracks.length : 0), 0) * (ROW_HEIGHT + ROW_GAP);
  }
  const memory = Math.floor(Math.min(Math.max((room - fixed) / sides.length, MEMORY_LEAST), MEMORY_MOST));
  const most = Math.max(1, limit, ...sides.map(side => side.data.peak ?? 0));
  let top = 0;
  const add = (type, height, gap, more) => {
    bands.push({type, top, height, ...more});
    top += height + gap;
  };
  sides.forEach((side, index) => {
    add("title", titleHeight(side), 0, {side: index});
    side.rows.forEach((row, lane) => {
      if (isShown(side, row, lane))
        row.tracks.forEach((_, track) => add("row", ROW_HEIGHT, ROW_GAP, {side: index, row: lane, track}));
    });
    side.resources.forEach((_, resource) => add("resource", RESOURCE_HEIGHT, ROW_GAP, {side: index, resource}));
    if (side.data.memory)
      add("memory", memory, BAND_GAP, {side: index, most: most * 1.06, ticks: byteTicks(most, memory > 150 ? 5 : 3)});
    else
      top += BAND_GAP;
  });
  return bands;
}

/** The colours of the page, read from its style sheet. */
function readColours() {
  const style = getComputedStyle(document.documentElement), read = name => style.getPropertyValue("--" + name).trim();
  const colours = {};
  for (const name of ["page", "line", "grid", "text", "quiet", "accent", "hit", "on-span", "band", "memory", "limit", "bound", "resource"])
    colours[name] = read(name);
  colours.kinds = [read("compute"), read("stall"), ...[0, 1, 2, 3, 4, 5].map(index => read("kind-" + index))];
  return colours;
}

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.widths = new Map();
    this.colours = readColours();
  }

  /** Gives the canvas a size in CSS pixels. */
  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = width + "px";
    this.canvas.style.height = height + "px";
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Draws the bands in view. `view` is the state of view.js. Returns the number of rectangles. */
  draw(view) {
    const {context, colours} = this;
    this.view = view;
    this.rectangles = 0;
    context.fillStyle = colours.page;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawGrid();
    this.drawEnds();
    for (const band of view.bands) {
      const top = band.top - view.scroll;
      if (top > this.height || top + band.height < 0)
        continue;
      const side = view.sides[band.side];
      context.save();
      context.beginPath();
      context.rect(GUTTER, top - 2, this.width - GUTTER, band.height + 4);
      if (band.type === "title") {
        context.fillStyle = colours.band;
        context.fillRect(0, top, this.width, band.height);
      } else {
        context.clip();
        if (band.type === "row")
          this.drawTrack(side, view.hits[band.side], side.rows[band.row].tracks[band.track], top, band.height);
        else if (band.type === "memory")
          this.drawMemory(side, band, top);
        else
          this.drawResource(side.resources[band.resource], side, top, band.height);
      }
      context.restore();
    }
    this.drawMarks();
    return this.rectangles;
  }

  fill(colour, x, y, width, height) {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
    ++this.rectangles;
  }

  line(colour, x0, y0, x1, y1, dash = []) {
    const {context} = this;
    context.strokeStyle = colour;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    context.setLineDash([]);
  }

  drawGrid() {
    this.context.lineWidth = 1;
    for (const {when} of this.view.axis.ticks) {
      const x = Math.round(this.view.xOf(when)) + 0.5;
      if (x >= GUTTER)
        this.line(this.colours.grid, x, 0, x, this.height);
    }
  }

  /** The end of each side, and the bound on it. They lie under the spans, whose names they would cross. */
  drawEnds() {
    const {view, colours} = this;
    this.context.lineWidth = 1.2;
    view.sides.forEach((side, index) => {
      const [top, bottom] = view.extentOf(index).map(y => y - view.scroll);
      const lineAt = (colour, when, dash) => {
        if (view.xOf(when) >= GUTTER)
          this.line(colour, view.xOf(when), top + titleHeight(side), view.xOf(when), bottom, dash);
      };
      lineAt(colours.text, side.makespan, []);
      const bound = side.data.bound ?? view.bound;
      if (bound > 0)
        lineAt(colours.bound, side.origin + bound, [3, 3]);
    });
  }

  /**
   * The rectangles of one track. A pixel that a span covers only in part shows the share of time that each colour takes,
   * so that many short operations look as full as one long one.
   */
  drawTrack(side, hits, track, top, height) {
    const {view} = this, {starts, ends, kinds, operations} = track;
    const shares = new Float64Array(this.colours.kinds.length);
    let pixel = -1, hitHere = false;
    const flush = () => {
      let y = top + height;
      for (let kind = 0; kind < shares.length; ++kind)
        if (shares[kind] > 0.005) {
          const part = Math.min(y - top, Math.max(1, shares[kind] * height));
          y -= part;
          this.fill(this.colours.kinds[kind], pixel, y, 1, part);
        }
      shares.fill(0);
      if (hitHere)
        this.fill(this.colours.hit, pixel, top - 2, 1, 4);
      hitHere = false;
    };
    const collect = (at, share, kind, hit) => {
      if (at !== pixel)
        flush();
      pixel = at;
      shares[kind] += share;
      hitHere ||= Boolean(hit);
    };
    // The ends of a track ascend as its starts do.
    for (let index = upperBound(ends, view.from); index < starts.length && starts[index] <= view.to; ++index) {
      const left = Math.max(view.xOf(starts[index]), GUTTER - 4), right = Math.min(view.xOf(ends[index]), this.width + 4);
      const kind = Math.min(kinds[index], shares.length - 1), hit = hits && hits[operations[index]];
      const first = Math.floor(left), last = Math.floor(right);
      if (first === last) {
        collect(first, right - left, kind, hit);
        continue;
      }
      const isWide = right - left >= WIDE;
      if (!isWide || first === pixel)
        collect(first, first + 1 - left, kind, hit);
      const from = first === pixel ? first + 1 : first, to = isWide ? last - 1 : last;
      if (to > from)
        this.drawSpan(side, operations[index], kind, hit, from, to, top, height);
      if (!isWide)
        collect(last, right - last, kind, false);
    }
    flush();
  }

  /** The whole pixels of a span, from `left` to `right`. */
  drawSpan(side, operation, kind, hit, left, right, top, height) {
    const {context, colours} = this;
    this.fill(colours.kinds[kind], left, top, right - left, height);
    if (kind === KIND_STALL && right - left > 5)
      this.hatch(left, top, right - left, height);
    if (hit) {
      context.strokeStyle = colours.hit;
      context.lineWidth = 2;
      context.strokeRect(left, top + 1, Math.max(right - left - 1, 1), height - 2);
    }
    const x = Math.max(left, GUTTER) + 4, room = Math.min(right, this.width) - x - 3;
    if (room > 24)
      this.drawLabel(side, operation, kind, x, top + height / 2 + 0.5, room);
  }

  /** Diagonals, so that a stall differs from its neighbours by more than its colour. */
  hatch(x, y, width, height) {
    const {context} = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.globalAlpha = 0.25;
    context.strokeStyle = this.colours["on-span"];
    context.lineWidth = 2;
    context.beginPath();
    const from = Math.max(x, GUTTER) - height, to = Math.min(x + width, this.width);
    for (let at = from - (from % 8); at < to; at += 8) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
    }
    context.stroke();
    context.restore();
  }

  measure(text) {
    let width = this.widths.get(text);
    if (width === undefined) {
      if (this.widths.size > 20000)
        this.widths.clear();
      this.widths.set(text, width = this.context.measureText(text).width);
    }
    return width;
  }

  /** Writes as much of a span's name as fits, or nothing. */
  drawLabel(side, operation, kind, x, y, room) {
    let text = side.label(operation);
    if (kind === KIND_STALL) {
      // Why nothing was computed, a recording does not tell.
      const [short, joint] = side.isRecorded ? ["exposed", ": "] : ["waits", " for "], wait = side.waitAt[operation];
      const long = wait < 0 ? short : short + joint + side.label(side.data.waits.start[wait]);
      text = this.measure(long) > room ? short : long;
    }
    if (this.measure(text) > room) {
      const keep = Math.floor(text.length * room / this.measure(text)) - 1;
      text = keep < 3 ? "" : text.slice(0, keep) + "\u2026";
      if (this.measure(text) > room)
        return;
    }
    this.context.fillStyle = this.colours["on-span"];
    this.context.fillText(text, x, y);
  }

  /** A step curve: the level of an entry holds from its time until that of the next one. */
  tracePath(when, level, end, yOf) {
    const {view, context} = this;
    let index = Math.max(upperBound(when, view.from) - 1, 0);
    const xEnd = view.xOf(end);
    context.beginPath();
    if (when.length === 0)
      return false;
    context.moveTo(Math.max(view.xOf(when[index]), GUTTER - 2), yOf(level[index]));
    let last = level[index];
    for (++index; index < when.length && when[index] <= view.to;) {
      // What happens within half a pixel is one jump, by way of its highest point.
      const x = view.xOf(when[index]);
      let highest = Math.max(last, level[index]);
      context.lineTo(x, yOf(last));
      for (last = level[index++]; index < when.length && view.xOf(when[index]) - x < 0.5; last = level[index++])
        highest = Math.max(highest, level[index]);
      context.lineTo(x, yOf(highest));
      context.lineTo(x, yOf(last));
    }
    context.lineTo(Math.min(xEnd, this.width + 2), yOf(last));
    return true;
  }

  drawSteps(when, level, end, yOf, base, colour) {
    const {context} = this;
    if (!this.tracePath(when, level, end, yOf))
      return;
    context.strokeStyle = colour;
    context.lineWidth = 1.4;
    context.lineJoin = "miter";
    context.stroke();
    context.lineTo(Math.min(this.view.xOf(end), this.width + 2), base);
    context.lineTo(Math.max(this.view.xOf(when[0]), GUTTER - 2), base);
    context.globalAlpha = 0.2;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }

  drawMemory(side, band, top) {
    const {view, colours} = this;
    const yOf = bytes => memoryY(band, top, bytes);
    for (const bytes of band.ticks)
      this.line(colours.grid, GUTTER, Math.round(yOf(bytes)) + 0.5, this.width, Math.round(yOf(bytes)) + 0.5);
    this.line(colours.line, GUTTER, top + band.height - 0.5, this.width, top + band.height - 0.5);
    this.drawSteps(side.when, side.live, side.makespan, yOf, yOf(0), colours.memory);
    if (view.limit > 0)
      this.line(colours.limit, GUTTER, yOf(view.limit), this.width, yOf(view.limit), [6, 4]);
  }

  drawResource(resource, side, top, height) {
    const {colours} = this;
    const base = top + height - 1;
    this.line(colours.line, GUTTER, base + 0.5, this.width, base + 0.5);
    this.drawSteps(resource.when, resource.level, side.makespan, level => base - level * (height - 4), base, colours.resource);
  }

  /** What lies over the bands: the selection with its ties, the cursor, the range of a zoom. */
  drawMarks() {
    const {context, view, colours} = this;
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.width - GUTTER, this.height);
    context.clip();
    for (const {side, operation, main} of view.marked())
      this.drawSelection(side, operation, main);
    if (view.cursor !== null) {
      // Not across the titles, which are text.
      const x = Math.round(view.xOf(view.cursor)) + 0.5;
      view.sides.forEach((side, index) => {
        const [top, bottom] = view.extentOf(index).map(y => y - view.scroll);
        this.line(colours.accent, x, top + titleHeight(side), x, bottom);
      });
    }
    if (view.range) {
      const [x0, x1] = view.range.map(when => view.xOf(when));
      context.globalAlpha = 0.2;
      this.fill(colours.accent, Math.min(x0, x1), 0, Math.abs(x1 - x0), this.height);
      context.globalAlpha = 1;
    }
    context.restore();
  }

  drawSelection(sideIndex, operation, main) {
    const {context, view, colours} = this, side = view.sides[sideIndex];
    context.strokeStyle = main ? colours.text : colours.accent;
    context.lineWidth = 2;
    const box = view.boxOf(sideIndex, operation);
    if (box)
      context.strokeRect(box.x - 1, box.y - 1, Math.max(box.width, 2) + 2, box.height + 2);
    if (side.startAt[operation] < 0 || !box || side.isRecorded)
      return;
    // A collective is tied to the moment of its issue, and to the waits for it.
    const tie = (when, row, x) => {
      const y = view.yOfRow(sideIndex, row);
      if (y !== null)
        this.line(colours.accent, view.xOf(when), y + ROW_HEIGHT / 2, x, box.y + box.height / 2, [2, 3]);
    };
    const facts = side.facts(operation);
    context.lineWidth = 1.2;
    tie(facts.reached, side.data.streamRow[side.data.ops.stream[operation]], box.x);
    for (const wait of side.waitsFor(operation)) {
      const end = Number.isNaN(side.end[wait]) ? side.data.ops.reached[wait] : side.end[wait];
      tie(end, side.data.streamRow[side.data.ops.stream[wait]], box.x + box.width);
    }
  }
}

/** The height at which a band of the memory curve shows an amount of bytes. */
function memoryY(band, top, bytes) {
  return top + band.height - bytes / band.most * band.height;
}

/** The strip above the axis: the whole time, where computation waits, where hits are, and what is in view. */
class Overview {
  constructor(canvas) {
    this.canvas = canvas;
    this.still = document.createElement("canvas");
  }

  /** Draws what does not depend on the part in view: once per size, theme and search. O(spans). */
  prepare(view, colours) {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    for (const canvas of [this.canvas, this.still]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = this.still.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const scale = width / view.span, lane = (height - 6) / view.sides.length, gap = 2 / Math.max(1, view.sides.length - 1);
    view.sides.forEach((side, index) => {
      const top = 2 + index * (lane + gap);
      const {waiting, hits} = this.columnsOf(side, view.hits[index], scale, Math.ceil(width) + 1);
      context.fillStyle = colours.kinds[KIND_COMPUTE];
      context.globalAlpha = 0.3;
      context.fillRect(side.origin * scale, top, side.length * scale, lane);
      context.globalAlpha = 1;
      for (let x = 0; x < waiting.length; ++x) {
        if (waiting[x] > 0) {
          const part = Math.min(lane, Math.max(1.5, Math.min(1, waiting[x]) * lane));
          context.fillStyle = colours.kinds[KIND_STALL];
          context.fillRect(x, top + lane - part, 1, part);
        }
        if (hits[x]) {
          context.fillStyle = colours.hit;
          context.fillRect(x, top, 1, lane);
        }
      }
    });
  }

  /** Indexed by pixel: the share of its time for which computation waits, and whether a hit begins there. */
  columnsOf(side, found, scale, count) {
    const waiting = new Float64Array(count), hits = new Uint8Array(count), {spans} = side.data;
    for (let at = 0; at < spans.op.length; ++at) {
      const from = spans.start[at] * scale, to = from + spans.length[at] * scale;
      if (found && found[spans.op[at]])
        hits[Math.floor(from)] = 1;
      for (let x = Math.floor(from); spans.stall[at] && x < to; ++x)
        waiting[x] += Math.min(x + 1, to) - Math.max(x, from);
    }
    return {waiting, hits};
  }

  draw(view, colours) {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.still, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const left = view.from / view.span * width, right = view.to / view.span * width;
    context.fillStyle = colours.page;
    context.globalAlpha = 0.65;
    context.fillRect(0, 0, left, height);
    context.fillRect(right, 0, width - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 2), height - 1.5);
  }
}
