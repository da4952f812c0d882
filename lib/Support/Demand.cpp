//===- Demand.cpp - Demand of an activity on the resources of a device ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Names of resources.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/Demand.h"

llvm::StringRef commsched::stringify(Resource resource) {
  static constexpr llvm::StringLiteral kNames[kNumResources] = {"compute_units", "memory", "node_links", "network",
                                                                "copy_engines"};
  return kNames[static_cast<unsigned>(resource)];
}
