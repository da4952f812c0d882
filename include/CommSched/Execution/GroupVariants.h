//===- GroupVariants.h - Chosen ways as options of groups -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NCCL takes the number of thread blocks and its policy once for each communicator, and the runtime has one
// communicator for each group. So a `comm.variant` can be obeyed if all collectives of a group have it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_GROUPVARIANTS_H
#define COMMSCHED_EXECUTION_GROUPVARIANTS_H

#include "CommSched/Support/CollectiveVariant.h"
#include "mlir/IR/BuiltinOps.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// The ways that the collectives of a group ask for.
class GroupVariants {
public:
  /// Adds the collectives of a module. O(operations).
  void add(mlir::ModuleOp module);
  /// Adds those of another module.
  void add(const GroupVariants &other);

  /// Options in the form of COMMRT_NCCL_GROUPS, for the groups all of whose collectives ask for one way. Empty if there
  /// are none.
  std::string options() const;
  /// One line for each group that asks for what one communicator cannot do.
  std::vector<std::string> refused() const;

private:
  void add(const std::string &group, std::optional<VariantName> name);

  /// By name of the group: what is asked for; none of collectives that leave the choice to the library.
  std::map<std::string, std::vector<std::optional<VariantName>>> asked;
};

} // namespace commsched

#endif // COMMSCHED_EXECUTION_GROUPVARIANTS_H
