//===- ByteCount.cpp - Numbers of bytes on command lines --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ByteCount.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/ByteCount.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace llvm;
using namespace commsched;

/// The bytes of a unit, or 0 if there is no such unit.
static int64_t bytesOf(StringRef unit) {
  static constexpr std::pair<StringLiteral, int64_t> units[] = {
      {"B", 1},
      {"kB", 1000},
      {"MB", 1000 * 1000},
      {"GB", 1000 * 1000 * 1000},
      {"TB", int64_t(1000) * 1000 * 1000 * 1000},
      {"KiB", 1 << 10},
      {"MiB", 1 << 20},
      {"GiB", 1 << 30},
      {"TiB", int64_t(1) << 40},
  };
  for (const auto &[name, bytes] : units)
    if (unit.equals_insensitive(name))
      return bytes;
  return 0;
}

Expected<ByteCount> ByteCount::parse(StringRef text) {
  int64_t whole = 0;
  if (!text.getAsInteger(10, whole))
    return ByteCount(whole);
  StringRef number = text.take_while([](char c) { return isDigit(c) || c == '.'; });
  int64_t unit = bytesOf(text.drop_front(number.size()).trim());
  double value = 0;
  if (unit > 0 && !number.getAsInteger(10, whole) && whole <= std::numeric_limits<int64_t>::max() / unit)
    return ByteCount(whole * unit);
  if (unit > 0 && !number.getAsDouble(value) && std::abs(value) < 0x1p62 / static_cast<double>(unit))
    return ByteCount(static_cast<int64_t>(value * static_cast<double>(unit)));
  return createStringError("expected " + kExpected + ", got '" + text + "'");
}

bool cl::parser<ByteCount>::parse(Option &option, StringRef, StringRef text, ByteCount &count) {
  Expected<ByteCount> parsed = ByteCount::parse(text);
  if (!parsed)
    return option.error(toString(parsed.takeError()));
  count = *parsed;
  return false;
}

void cl::parser<ByteCount>::printOptionDiff(const Option &option, ByteCount count, const OptionValue<ByteCount> &,
                                            size_t width) const {
  printOptionName(option, width);
  outs() << "= " << count << "\n";
}
