// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The data of the page: decodes the columns of TimelinePage.cpp and RecordedPage.cpp, and answers questions about them. Knows
// no document.

const KIND_COMPUTE = 0, KIND_STALL = 1, KIND_COLLECTIVE = 2;

/** Three significant digits, as Support/Format.cpp writes them. */
function threeDigits(value) {
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

/** A duration: "333 us". */
function formatNs(ns) {
  if (ns < 1000)
    return Math.round(ns) + " ns";
  let value = ns / 1000;
  for (const unit of ["us", "ms"]) {
    if (value < 999.5)
      return threeDigits(value) + " " + unit;
    value /= 1000;
  }
  return threeDigits(value) + " s";
}

/** A moment, exact to the nanosecond: "123.456789 ms". */
function formatTime(ns) {
  const [unit, scale, digits] = timeUnit(ns);
  let text = (ns / scale).toFixed(digits);
  if (digits > 0)
    text = text.replace(/\.?0+$/, "");
  return text + " " + unit;
}

/** The unit in which a time is at least 1: its name, ns, and its digits down to the nanosecond. */
function timeUnit(ns) {
  return ns < 1000 ? ["ns", 1, 0] : ns < 1e6 ? ["us", 1e3, 3] : ns < 1e9 ? ["ms", 1e6, 6] : ["s", 1e9, 9];
}

function formatBytes(bytes) {
  if (bytes < 1024)
    return bytes + " B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; bytes >= 999.5 && unit + 1 < units.length; ++unit)
    bytes /= 1024;
  return threeDigits(bytes) + " " + units[unit];
}

/** The number of leading entries of an ascending array that are at most `value`. */
function upperBound(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/** One row of rectangles. Spans of a row that overlap are on several tracks, which lie below each other. */
class Row {
  constructor(name, load, spans) {
    this.name = name;
    this.load = load;
    spans.sort((a, b) => a.start - b.start || a.end - b.end);
    const ends = [];
    this.tracks = [];
    for (const span of spans) {
      let track = ends.findIndex(end => end <= span.start);
      if (track < 0)
        track = ends.push(0) - 1;
      ends[track] = span.end;
      (this.tracks[track] ||= []).push(span);
    }
    if (this.tracks.length === 0)
      this.tracks.push([]);
    this.tracks = this.tracks.map(list => ({
      starts: Float64Array.from(list, span => span.start),
      ends: Float64Array.from(list, span => span.end),
      operations: Int32Array.from(list, span => span.operation),
      kinds: Uint8Array.from(list, span => span.kind),
    }));
  }

  /** The span at a moment on one track: {track, index}, or null. `slack`: ns by which it may be missed. */
  find(when, trackIndex, slack) {
    const track = this.tracks[trackIndex];
    const index = upperBound(track.starts, when) - 1;
    if (index >= 0 && when <= track.ends[index])
      return {track, index};
    const ahead = index + 1 < track.starts.length ? track.starts[index + 1] - when : Infinity;
    const behind = index >= 0 ? when - track.ends[index] : Infinity;
    if (Math.min(ahead, behind) > slack)
      return null;
    return {track, index: ahead < behind ? index + 1 : index};
  }
}

/**
 * One measurement of a block, such as that before the passes, or one timeline that somebody else recorded. A recorded one has
 * figures in place of memory, costs, places and dependences.
 */
class Side {
  constructor(data, strings, title) {
    this.data = data;
    this.strings = strings;
    this.title = title;
    this.isRecorded = data.figures !== undefined;
    this.makespan = data.makespan;
    /** From its first moment to its last, ns. */
    this.origin = data.begin ?? 0;
    this.length = this.makespan - this.origin;
    this.count = data.ops.kind.length;
    this.when = Float64Array.from(data.memory?.when ?? []);
    this.live = Float64Array.from(data.memory?.live ?? []);
    // With contention: the share of each resource that is in use, from each moment on.
    this.resources = (data.resources || []).map(({name, when, permille}) => ({
      name: name.replaceAll("_", " "),
      when: Float64Array.from(when),
      level: Float64Array.from(permille, value => value / 1e3),
    }));
    /** What activities that share resources add to the makespan, ns. */
    this.slowedDown = data.resources ? data.makespan - data.undisturbed : 0;
    // Indexed by operation: its place in the sparse columns of starts and waits, and its first span; -1 without one.
    this.startAt = new Int32Array(this.count).fill(-1);
    this.waitAt = new Int32Array(this.count).fill(-1);
    data.starts.op.forEach((op, index) => { this.startAt[op] = index; });
    data.waits.op.forEach((op, index) => { this.waitAt[op] = index; });
    if (this.isRecorded)
      this.byMatch = new Map(data.starts.op.map((op, index) => [data.starts.match[index], op]).filter(([match]) => match >= 0));
    this.#makeRows();
  }

  #makeRows() {
    const {spans, lanes, loads} = this.data;
    const byRow = lanes.map(() => []);
    this.begin = new Float64Array(this.count).fill(NaN);
    this.end = new Float64Array(this.count).fill(NaN);
    this.rowOf = new Int32Array(this.count).fill(-1);
    for (let index = 0; index < spans.op.length; ++index) {
      const operation = spans.op[index], start = spans.start[index], end = start + spans.length[index];
      const row = spans.row[index];
      const kind = spans.stall[index] ? KIND_STALL : row > 0 && row < loads.length ? this.collectiveColour(operation) : KIND_COMPUTE;
      byRow[row].push({operation, start, end, kind});
      if (this.rowOf[operation] < 0)
        [this.begin[operation], this.end[operation], this.rowOf[operation]] = [start, end, row];
    }
    // With several streams, the load of the compute lane is that of all of them; each row tells its own.
    const {streamRow = [0]} = this.data, severalStreams = streamRow.length > 1;
    const work = list => list.reduce((sum, span) => sum + (span.kind === KIND_STALL ? 0 : span.end - span.start), 0);
    this.rows = byRow.map((list, row) => {
      const isStream = severalStreams && streamRow.includes(row);
      return new Row(isStream && row === 0 ? lanes[row] + ", stream 0" : lanes[row], isStream ? work(list) : loads[row], list);
    });
  }

  /** The colour of a collective: KIND_COLLECTIVE and more, by the first use of its kind in the whole page. */
  collectiveColour(operation) {
    const kinds = Side.collectiveKinds, kind = this.kind(operation);
    let index = kinds.indexOf(kind);
    if (index < 0)
      index = kinds.push(kind) - 1;
    return KIND_COLLECTIVE + index;
  }

  text(index) { return index < 0 ? "" : this.strings[index]; }
  kind(operation) { return this.text(this.data.ops.kind[operation]); }
  names(operation) { return this.#list(this.data.ops.names?.[operation] ?? -1); }
  places(operation) { return this.#list(this.data.ops.places?.[operation] ?? -1); }
  #list(entry) { return (Array.isArray(entry) ? entry : entry < 0 ? [] : [entry]).map(index => this.strings[index]); }

  /** The short name of an operation: the name of its location, or else its kind. One may stand for neighbours that follow it. */
  label(operation) {
    const name = this.names(operation)[0], more = (this.data.ops.count?.[operation] ?? 1) - 1;
    if (more > 0)
      return `${this.kind(operation)} and ${more} more`;
    return name === undefined || this.places(operation).includes(name) ? this.kind(operation) : name;
  }

  /** All facts of an operation, for the panel. */
  facts(operation) {
    const {ops, starts, waits} = this.data;
    const facts = {
      label: this.label(operation), kind: this.kind(operation), names: this.names(operation), places: this.places(operation),
      begin: this.begin[operation], end: this.end[operation], row: this.rowOf[operation],
      group: this.text(ops.group[operation]), bytes: 0, exposed: 0, factor: "", awaited: -1,
    };
    if (!this.isRecorded)
      Object.assign(facts, {
        reached: ops.reached[operation], cost: ops.cost[operation], low: ops.low[operation], high: ops.high[operation],
        origin: this.text(ops.origin[operation]), workspace: ops.workspace[operation],
      });
    const start = this.startAt[operation], wait = this.waitAt[operation];
    if (start >= 0)
      Object.assign(facts, {bytes: starts.bytes[start], exposed: starts.exposed[start], factor: this.text(starts.factor?.[start] ?? -1)});
    if (start >= 0 && this.isRecorded)
      Object.assign(facts, {ranks: starts.ranks[start], late: starts.late[start]});
    if (wait >= 0)
      Object.assign(facts, {awaited: waits.start[wait], exposed: waits.exposed[wait], factor: this.text(waits.factor[wait])});
    return facts;
  }

  /** The waits for a start. */
  waitsFor(operation) {
    const {waits} = this.data;
    return waits.op.filter((op, index) => waits.start[index] === operation);
  }

  /** The entry of the memory curve that holds at a moment: the last one, or with `highest` the largest of that moment. */
  entryAt(when, highest = false) {
    const last = upperBound(this.when, when) - 1;
    let best = last;
    for (let index = last; highest && index >= 0 && this.when[index] === this.when[last]; --index)
      if (this.live[index] > this.live[best])
        best = index;
    return best;
  }

  liveAt(when) {
    const entry = this.entryAt(when);
    return entry < 0 ? 0 : this.live[entry];
  }

  peakEntry() {
    let best = 0;
    for (let index = 1; index < this.live.length; ++index)
      if (this.live[index] > this.live[best])
        best = index;
    return best;
  }

  /** What is live in an entry of the memory curve, the largest first: indices of buffers. */
  buffersAt(entry) {
    const {first, last, bytes} = this.data.buffers, found = [];
    for (let index = 0; index < first.length; ++index)
      if (first[index] <= entry && entry <= last[index])
        found.push(index);
    return found.sort((a, b) => bytes[b] - bytes[a] || a - b);
  }

  /** The span before (-1) or after (+1) one operation's on its row: an operation, or -1. */
  neighbour(operation, direction) {
    const row = this.rows[this.rowOf[operation]];
    for (const track of row ? row.tracks : []) {
      const index = track.operations.indexOf(operation);
      if (index >= 0)
        return track.operations[index + direction] ?? -1;
    }
    return -1;
  }

  /** Marks the operations that have a string among `matching` (1 by string): an array of bytes, indexed by operation. */
  match(matching) {
    const {ops} = this.data, result = new Uint8Array(this.count);
    const has = entry => (Array.isArray(entry) ? entry.some(index => matching[index]) : entry >= 0 && matching[entry]);
    for (let op = 0; op < this.count; ++op)
      if (this.rowOf[op] >= 0 && (has(ops.names?.[op] ?? -1) || has(ops.kind[op]) || has(ops.places?.[op] ?? -1) || has(ops.group[op])))
        result[op] = 1;
    return result;
  }

  /** Keys under which the operations of the other side are found: by kind, name and how often both occurred before. */
  #keys() {
    if (!this.byKey) {
      this.byKey = new Map();
      this.keysOf = [];
      const seen = new Map();
      for (let op = 0; op < this.count; ++op) {
        const names = this.data.ops.names[op], parts = Array.isArray(names) ? names : [names];
        this.keysOf.push(parts.map(part => {
          const base = this.data.ops.kind[op] + " " + part, count = seen.get(base) || 0;
          seen.set(base, count + 1);
          const key = base + " " + count;
          this.byKey.set(key, op);
          return key;
        }));
      }
    }
    return this;
  }

  /**
   * The operations of another side that are the same operation, or that were merged with it or into it. Of recorded ones: the
   * same collective on another rank.
   */
  counterparts(operation, other) {
    if (this.byMatch) {
      const match = this.data.starts.match[this.startAt[operation]];
      return other.byMatch.has(match) ? [other.byMatch.get(match)] : [];
    }
    const keys = this.#keys().keysOf[operation];
    other.#keys();
    return [...new Set(keys.map(key => other.byKey.get(key)).filter(op => op !== undefined))];
  }
}
Side.collectiveKinds = [];
