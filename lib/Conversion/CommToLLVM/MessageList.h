//===- MessageList.h - The messages that a program is certain to start ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A program announces its messages before it runs, so that ranks can find out whether they fit together and cannot hang
// (commrt_program_messages). This finds the list.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_COMMTOLLVM_MESSAGELIST_H
#define COMMSCHED_LIB_CONVERSION_COMMTOLLVM_MESSAGELIST_H

#include "mlir/IR/BuiltinOps.h"
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// One step of the list, as commrt_message has it.
struct MessageStep {
  int64_t kind = 0, dtype = 0, count = 0;
  std::string group, location;
  int64_t peer = 0, tag = 0, batch = 0, stream = 0, awaited = 0;
};

/// The messages, collectives and waits of the module's public function that starts messages and that no other function
/// calls, in order, with loops and calls expanded. A list without messages is empty. Peers are places in the group, so
/// that one list holds for all ranks. Nothing if a message is not certain to start (under a condition, in a loop whose
/// number of iterations is not constant), if several public functions start messages, or if the list would have more
/// than 65,536 steps. Collectives are left out if one of them is not certain to start. The operations are on buffers.
/// O(operations + steps).
std::optional<std::vector<MessageStep>> listMessages(mlir::ModuleOp module);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_COMMTOLLVM_MESSAGELIST_H
