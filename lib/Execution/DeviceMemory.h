//===- DeviceMemory.h - Arguments and results in the memory of a backend ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compiled code gets buffers in the memory of the context's backend. On CPU backends that is the memory of the values
// themselves. On devices the host reaches buffers by copies only.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_EXECUTION_DEVICEMEMORY_H
#define COMMSCHED_LIB_EXECUTION_DEVICEMEMORY_H

#include "CommSched/Execution/HostValue.h"
#include "CommSched/Runtime/Runtime.h"
#include <vector>

namespace commsched {

/// The buffers of a program's arguments.
class ArgumentMemory {
public:
  /// `values` and `context` outlive this object.
  ArgumentMemory(commrt_context *context, std::vector<HostValue> &values);

  /// On a device, makes a buffer for each argument that is not a scalar and copies the argument into it. Returns the
  /// runtime's status. After an error the context owns what was made.
  int32_t create();
  /// On a device, copies the buffers back to the arguments and releases them. Returns the runtime's status.
  int32_t fetch();
  /// The buffer of argument `index`.
  void *operator[](size_t index) const { return buffers[index]; }

private:
  commrt_context *context;
  std::vector<HostValue> &values;
  std::vector<void *> buffers; ///< indexed by argument
};

/// Waits until everything is done that was put on the context's default stream before, and every collective that was
/// started on it. Returns the runtime's status. Nothing on CPU backends.
int32_t awaitDevice(commrt_context *context);

} // namespace commsched

#endif // COMMSCHED_LIB_EXECUTION_DEVICEMEMORY_H
