//===- Environment.cpp - Settings and callbacks of an embedder --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"

using namespace mlir;
using namespace commsched;

Environment *Environment::of(MLIRContext *context) {
  auto *dialect = context->getLoadedDialect<comm::CommDialect>();
  return dialect ? dialect->getRegisteredInterface<Environment>() : nullptr;
}

void commsched::registerEnvironment(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, comm::CommDialect *dialect) { dialect->addInterfaces<Environment>(); });
}

std::string commsched::machineName(MLIRContext *context, StringRef option) {
  if (!option.empty())
    return option.str();
  const Environment *environment = Environment::of(context);
  return environment ? environment->machine : kDefaultMachine.str();
}

/// The model on which ranks agreed; null if they did not.
static std::shared_ptr<const CostModel> findAgreed(MLIRContext *context, const std::string &name) {
  const Environment *environment = Environment::of(context);
  if (!environment)
    return nullptr;
  auto found = environment->agreedMachines.find(name);
  return found == environment->agreedMachines.end() ? nullptr : found->second;
}

llvm::Expected<MachineModel> commsched::loadMachine(MLIRContext *context, StringRef option) {
  std::string name = machineName(context, option);
  if (std::shared_ptr<const CostModel> agreed = findAgreed(context, name))
    return agreed->machine();
  llvm::Expected<MachineModel> machine = MachineModel::load(name);
  if (const Environment *environment = Environment::of(context); machine && environment)
    machine->collectives.insert(machine->collectives.begin(), environment->curves.begin(), environment->curves.end());
  return machine;
}

std::shared_ptr<const CostModel> commsched::agreedModel(MLIRContext *context, StringRef option,
                                                        std::shared_ptr<const CostModel> own) {
  std::shared_ptr<const CostModel> agreed = findAgreed(context, machineName(context, option));
  return agreed ? agreed : own;
}
