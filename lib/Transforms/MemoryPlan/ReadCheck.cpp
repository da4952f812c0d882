//===- ReadCheck.cpp - Check that all reads give equal values ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "ReadCheck.h"
#include "ValueNumbers.h"

using namespace mlir;
using namespace commsched;

ReadCheck::Reads ReadCheck::readsOf(Block &block) {
  BlockValues values(block);
  ValueNumbers numbers(values, OpaqueOps::ByLocation);
  Reads reads;
  for (Operation &op : block)
    for (Value value : valuesReadBy(&op))
      reads[&op].push_back(numbers.leaderOf(value));
  return reads;
}

Operation *ReadCheck::findChange(Block &block) const {
  Reads now = readsOf(block);
  for (Operation &op : block) {
    auto before = reads.find(&op);
    if (before != reads.end() && before->second != now.lookup(&op))
      return &op;
  }
  return nullptr;
}
