//===- Format.cpp - Sizes and times as text ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Three significant digits and a unit.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/Format.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <cmath>
#include <limits>

using namespace commsched;

/// `value` with three significant digits.
static std::string threeDigits(double value) {
  return llvm::formatv(value >= 99.95 ? "{0:f0}" : value >= 9.995 ? "{0:f1}" : "{0:f2}", value).str();
}

std::string commsched::formatBytes(Bytes bytes) {
  static constexpr llvm::StringLiteral units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024)
    return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return threeDigits(value) + " " + units[unit].str();
}

std::string commsched::formatNs(Ns ns) {
  if (ns < 0 && ns != std::numeric_limits<Ns>::min())
    return "-" + formatNs(-ns);
  if (ns < 1000)
    return std::to_string(ns) + " ns";
  double value = static_cast<double>(ns) / 1000;
  for (llvm::StringRef unit : {"us", "ms"}) {
    if (value < 999.5)
      return threeDigits(value) + " " + unit.str();
    value /= 1000;
  }
  return threeDigits(value) + " s";
}

std::string commsched::formatAtMost(double fraction) {
  // A fraction of integers is off by less than what is subtracted.
  return llvm::formatv("{0:f2} %", std::max(0.0, std::ceil(1e4 * fraction - 1e-9)) / 100).str();
}
