//===- CommReport.cpp - The pass comm-report --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Measures a module once: before and after are equal.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/ReportCollector.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREPORT
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

struct CommReportPass : public commsched::impl::CommReportBase<CommReportPass> {
  using CommReportBase::CommReportBase;

  LogicalResult initialize(MLIRContext *context) final {
    if (std::string wrong = validate(NoiseOptions{scenarios, collectiveSpreadPermille, computeSpreadPermille});
        !wrong.empty())
      return emitError(UnknownLoc::get(context)) << wrong;
    return success();
  }

  void runOnOperation() final {
    ReportOptions options;
    options.machine = machine;
    options.reportFile = reportFile;
    options.timelineFile = timelineFile;
    options.table = table;
    options.noise = {scenarios, collectiveSpreadPermille, computeSpreadPermille};
    stampSignature(getOperation());
    ReportCollector collector(options);
    if (failed(collector.measureOnce(getOperation())))
      signalPassFailure();
  }
};

} // namespace
