// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The marks of the axes: round numbers, as many as fit.

/** The smallest of 1, 2, 5, 10, 20, ... that is at least `value`. */
function roundUp(value) {
  const power = Math.pow(10, Math.floor(Math.log10(value)));
  for (const factor of [1, 2, 5, 10])
    if (factor * power >= value * (1 - 1e-9))
      return factor * power;
  return 10 * power;
}

/**
 * The ticks of a time axis from `from` to `to`, ns, that are at least `spacing` pixels apart on `width` pixels:
 * {step, base, ticks: [{when, label}]}. All labels have one unit. If they would need more than three decimals, they count
 * from `base`, a round moment before `from`; otherwise `base` is 0.
 */
function timeTicks(from, to, width, spacing) {
  const length = to - from, step = Math.max(1, roundUp(length * spacing / Math.max(width, 1)));
  const decimalsFor = scale => Math.max(0, Math.ceil(Math.log10(scale / step) - 1e-9));
  let base = 0, [unit, scale] = timeUnit(to);
  if (decimalsFor(scale) > 3) {
    const round = Math.pow(10, Math.ceil(Math.log10(length)));
    base = Math.floor(from / round) * round;
    [unit, scale] = timeUnit(to - base);
  }
  const decimals = decimalsFor(scale), ticks = [];
  for (let count = Math.ceil(from / step - 1e-9); count * step <= to + step * 1e-9; ++count) {
    const when = count * step;
    ticks.push({when, label: (base ? "+" : "") + ((when - base) / scale).toFixed(decimals) + " " + unit});
  }
  return {step, base, ticks};
}

/** Round amounts of bytes up to `most`, at most `count` of them above 0. */
function byteTicks(most, count) {
  let unit = 1;
  while (most / unit >= 1024)
    unit *= 1024;
  const step = Math.max(1, roundUp(most / unit / count) * unit), ticks = [];
  for (let bytes = step; bytes <= most; bytes += step)
    ticks.push(bytes);
  return ticks;
}
