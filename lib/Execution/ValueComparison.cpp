//===- ValueComparison.cpp - Difference between two values of a run ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Equal values, the usual case, are one comparison of memory.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/ValueComparison.h"
#include "llvm/ADT/APFloat.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace llvm;
using namespace commsched;

/// Element `index`, exactly: the format has at most 64 bits.
static double toDouble(const HostValue &value, int64_t index) {
  auto type = cast<mlir::FloatType>(value.elementType);
  uint64_t bits = 0;
  std::memcpy(&bits, value.bytes.data() + index * value.elementBytes(), value.elementBytes());
  APFloat number(type.getFloatSemantics(), APInt(type.getWidth(), bits, false, true));
  bool isLossy;
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &isLossy);
  return number.convertToDouble();
}

static double largestMagnitude(const HostValue &value) {
  double largest = 0;
  for (int64_t i = 0, n = value.elements(); i < n; ++i)
    if (double number = std::fabs(toDouble(value, i)); std::isfinite(number))
      largest = std::max(largest, number);
  return largest;
}

ValueDifference commsched::compareElements(const HostValue &a, const HostValue &b) {
  ValueDifference difference;
  if (std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0)
    return difference;
  auto type = dyn_cast<mlir::FloatType>(a.elementType);
  double rounding = 0;
  if (type)
    rounding = std::ldexp(std::max(largestMagnitude(a), largestMagnitude(b)), 1 - int(type.getFPMantissaWidth()));
  int64_t width = a.elementBytes();
  for (int64_t i = 0, n = a.elements(); i < n; ++i) {
    if (std::memcmp(a.bytes.data() + i * width, b.bytes.data() + i * width, width) == 0)
      continue;
    difference.first = difference.first < 0 ? i : difference.first;
    ++difference.count;
    double roundings = std::numeric_limits<double>::infinity();
    if (type) {
      double x = toDouble(a, i), y = toDouble(b, i);
      if (std::isnan(x) && std::isnan(y))
        roundings = 0;
      else if (std::isfinite(x) && std::isfinite(y))
        roundings = x == y ? 0 : std::fabs(x - y) / rounding;
    }
    if (difference.worst < 0 || roundings > difference.roundings) {
      difference.worst = i;
      difference.roundings = roundings;
    }
  }
  return difference;
}
