//===- TrafficCheck.cpp - Check that a rewrite still sends every byte -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A reduction computes with its elements, so their type is part of its key. All other kinds only move bytes, and a byte
// view may change their type.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// The key of traffic: [name of the operation, group, reduction, scale, element type]. Only reductions have the last
/// three.
static ArrayAttr getTrafficKey(CollectiveOpInterface start, Type value) {
  Builder builder(start.getContext());
  SmallVector<Attribute> parts = {builder.getStringAttr(start->getName().getStringRef()), start.getGroupAttr()};
  if (start.getCollectiveReduction()) {
    for (StringRef name : {"reduction", "scale"})
      if (Attribute attr = start->getAttr(name))
        parts.push_back(attr);
    if (auto shaped = dyn_cast<ShapedType>(value))
      parts.push_back(TypeAttr::get(shaped.getElementType()));
  }
  return builder.getArrayAttr(parts);
}

void TrafficCheck::count(Operation *root) {
  root->walk([&](CollectiveOpInterface start) {
    // Bytes as in costs: those that a gather produces, or that any other kind is given.
    bool byResult = start.getCollectiveKind() == CollectiveKind::AllGather;
    SmallVector<Type> values(byResult ? TypeRange(cast<FutureType>(start.getCollectiveFuture().getType()).getTypes())
                                      : TypeRange(start.getCollectiveInputs()));
    if (values.empty())
      values.push_back(start.getCollectiveFuture().getType());
    for (auto [index, type] : llvm::enumerate(values)) {
      Traffic &entry = traffic[getTrafficKey(start, type)];
      std::optional<int64_t> bytes = isa<ShapedType>(type) ? getStaticBytes(type) : std::nullopt;
      entry.collectives += index == 0;
      entry.bytes += bytes.value_or(0);
      entry.unsized += !bytes;
    }
  });
}

Traffic TrafficCheck::total() const {
  Traffic sum;
  for (const auto &[key, entry] : traffic) {
    sum.collectives += entry.collectives;
    sum.bytes += entry.bytes;
    sum.unsized += entry.unsized;
  }
  return sum;
}

LogicalResult TrafficCheck::compare(const TrafficCheck &after, Location loc, StringRef pass) const {
  LogicalResult result = success();
  auto check = [&](Attribute key, const Traffic &before, const Traffic &now) {
    if (before.bytes == now.bytes && before.unsized == now.unsized)
      return;
    result = emitError(loc) << pass << ": " << key << " carried " << before.bytes << " bytes and " << before.unsized
                            << " values of dynamic size before, " << now.bytes << " and " << now.unsized
                            << " after; please report this";
  };
  for (const auto &[key, before] : traffic) {
    auto found = after.traffic.find(key);
    check(key, before, found == after.traffic.end() ? Traffic() : found->second);
  }
  for (const auto &[key, now] : after.traffic)
    if (!traffic.contains(key))
      check(key, Traffic(), now);
  return result;
}
