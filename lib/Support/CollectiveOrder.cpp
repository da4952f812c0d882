//===- CollectiveOrder.cpp - Names of the modes of collective order ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The spelling of the options.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/CollectiveOrder.h"

using namespace commsched;

llvm::StringRef commsched::stringify(CollectiveOrder mode) {
  switch (mode) {
  case CollectiveOrder::Program:
    return "program";
  case CollectiveOrder::Group:
    return "group";
  case CollectiveOrder::Free:
    return "free";
  }
  return "";
}
