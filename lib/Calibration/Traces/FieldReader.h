//===- FieldReader.h - Fields of events in a trace ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Traces come from other programs, so a field may be missing or have a value that makes no sense.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CALIBRATION_TRACES_FIELDREADER_H
#define COMMSCHED_LIB_CALIBRATION_TRACES_FIELDREADER_H

#include "CommSched/Machine/CollectiveCost.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include <cmath>
#include <optional>
#include <string>

namespace commsched {

/// Reads the fields of one object and keeps the first error.
class FieldReader {
public:
  FieldReader(const llvm::json::Object &object, std::string path, std::string &error)
      : object(object), path(std::move(path)), error(error) {}

  int64_t integer(llvm::StringRef key, int64_t least) {
    std::optional<int64_t> value = object.getInteger(key);
    if (!value || *value < least)
      fail(key, "expected an integer of at least " + llvm::Twine(least));
    return value.value_or(least);
  }

  /// Microseconds with decimals, as ns.
  Ns time(llvm::StringRef key) {
    std::optional<double> value = object.getNumber(key);
    if (!value || !(*value >= 0 && *value < static_cast<double>(kMaxNs) / 1000))
      fail(key, "expected a time in microseconds");
    return error.empty() ? std::llround(*value * 1000) : 0;
  }

  std::string string(llvm::StringRef key) {
    std::optional<llvm::StringRef> value = object.getString(key);
    if (!value)
      fail(key, "expected a string");
    return value.value_or("").str();
  }

  void fail(llvm::StringRef key, const llvm::Twine &message) {
    if (error.empty())
      error = ("field '" + llvm::Twine(path) + key + "': " + message).str();
  }

  const llvm::json::Object &object;

private:
  std::string path;
  std::string &error;
};

} // namespace commsched

#endif // COMMSCHED_LIB_CALIBRATION_TRACES_FIELDREADER_H
