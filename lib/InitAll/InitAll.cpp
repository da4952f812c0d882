//===- InitAll.cpp - Registration of all of CommSched's parts ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The only place that refers to every library of the project.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/InitAll.h"

#include "CommSched/Analysis/Costs/CostInterface.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Split/SplitInterface.h"
#include "CommSched/Conversion/Bufferization.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Pipelines.h"
#include "mlir/IR/DialectRegistry.h"

void commsched::registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<comm::CommDialect>();
  registerEnvironment(registry);
}

void commsched::registerAllExtensions(mlir::DialectRegistry &registry) {
  registerCostModels(registry);
  registerSplitModels(registry);
  registerBufferizableOpInterfaceModels(registry);
}

void commsched::registerAllPasses() {
  registerCommSchedPasses();
  registerPipelines();
  registerConversionPipelines();
}

const char *commsched::getVersion() { return COMMSCHED_VERSION; }
