//===- CollectiveKind.cpp - Names of collectives ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The spelling of the dialect, the profiles and the reports.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/CollectiveKind.h"
#include <iterator>

using namespace commsched;

llvm::StringRef commsched::stringify(CollectiveKind kind) {
  static constexpr llvm::StringLiteral names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                                  "broadcast",  "reduce",         "gather",     "scatter",
                                                  "permute",    "send",           "recv",       "barrier"};
  static_assert(std::size(names) == static_cast<size_t>(CollectiveKind::Barrier) + 1, "expected one name per kind");
  return names[static_cast<unsigned>(kind)];
}

std::optional<CollectiveKind> commsched::parseCollectiveKind(llvm::StringRef name) {
  for (unsigned kind = 0; kind <= static_cast<unsigned>(CollectiveKind::Barrier); ++kind)
    if (stringify(static_cast<CollectiveKind>(kind)) == name)
      return static_cast<CollectiveKind>(kind);
  return std::nullopt;
}
