//===- ByteCount.h - Numbers of bytes on command lines ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The type of every option that is a number of bytes: 12884901888 and 12GiB are the same value. In C++ it is an
// int64_t.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_SUPPORT_BYTECOUNT_H
#define COMMSCHED_SUPPORT_BYTECOUNT_H

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"
#include <cstdint>

namespace commsched {

/// A number of bytes; what a negative one means is the option's.
struct ByteCount {
  int64_t value = 0;

  constexpr ByteCount(int64_t value = 0) : value(value) {}
  constexpr operator int64_t() const { return value; }

  /// What `parse` expects.
  static constexpr llvm::StringLiteral kExpected =
      "a number of bytes, alone or with one of the units kB, MB, GB, TB, KiB, MiB, GiB and TiB";

  /// Reads a number with or without a unit: kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024, and a
  /// number with a unit may have a fraction. Fails, and names the units, on anything else and beyond int64_t.
  static llvm::Expected<ByteCount> parse(llvm::StringRef text);
};

inline llvm::raw_ostream &operator<<(llvm::raw_ostream &os, ByteCount count) { return os << count.value; }

} // namespace commsched

template <> class llvm::cl::parser<commsched::ByteCount> : public llvm::cl::basic_parser<commsched::ByteCount> {
public:
  using basic_parser::basic_parser;

  /// Returns true on an error, which it prints.
  bool parse(Option &option, StringRef name, StringRef text, commsched::ByteCount &count);
  StringRef getValueName() const override { return "bytes"; }
  void printOptionDiff(const Option &option, commsched::ByteCount count, const OptionValue<commsched::ByteCount> &,
                       size_t width) const;
};

#endif // COMMSCHED_SUPPORT_BYTECOUNT_H
