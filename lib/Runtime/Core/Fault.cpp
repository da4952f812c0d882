//===- Fault.cpp - Faults that the runtime injects on request ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The parser of fault specifications.
//
//===------------------------------------------------------------------------------------------===//

#include "Fault.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>

using namespace commsched::runtime;

/// A year.
static constexpr int64_t longestMs = int64_t(365) * 24 * 3600 * 1000;

static bool parseNumber(const std::string &text, int64_t &value) {
  char *end = nullptr;
  errno = 0;
  value = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == 0 && errno == 0 && value >= 0;
}

std::string Fault::parse(const char *text, Fault &fault) {
  fault = Fault();
  std::string spec = text ? text : "";
  if (spec.empty())
    return "";
  auto bad = [&](const char *why) { return "fault '" + spec + "': " + why; };
  size_t at = spec.find('@');
  if (at == std::string::npos)
    return bad("expected KIND@N[:rank=R][:ms=T]");
  static constexpr const char *names[] = {"",      "delay", "drop", "mismatch", "error",    "hang",
                                          "stall", "die",   "size", "order",    "signature"};
  std::string kind = spec.substr(0, at), rest = spec.substr(at + 1);
  for (int i = 1; i < 11; ++i)
    if (kind == names[i])
      fault.kind = static_cast<FaultKind>(i);
  if (fault.kind == FaultKind::none)
    return bad("the kinds are delay, drop, mismatch, error, hang, stall, die, size, order, signature");
  size_t colon = rest.find(':');
  if (!parseNumber(rest.substr(0, colon), fault.start))
    return bad("N must be a number from 0");
  while (colon != std::string::npos) {
    size_t next = rest.find(':', colon + 1);
    std::string field = rest.substr(colon + 1, next == std::string::npos ? next : next - colon - 1);
    int64_t value;
    size_t equals = field.find('=');
    if (equals == std::string::npos || !parseNumber(field.substr(equals + 1), value))
      return bad("the fields are rank=R and ms=T");
    std::string key = field.substr(0, equals);
    if (key == "rank")
      fault.rank = static_cast<int32_t>(value);
    else if (key == "ms")
      fault.ms = std::min(value, longestMs);
    else
      return bad("the fields are rank=R and ms=T");
    colon = next;
  }
  return "";
}
