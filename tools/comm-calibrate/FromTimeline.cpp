//===- FromTimeline.cpp - A profile refined by a real run -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "FromTimeline.h"
#include "CommSched/Calibration/RunTimeline.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Support/OutputFile.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace commsched;

static void printSummary(llvm::ArrayRef<RunPoint> points, const Validation &validation) {
  for (const RunPoint &point : points)
    llvm::errs() << llvm::formatv("{0} on {1} ranks, {2}, {3}: {4} ({5} to {6}), {7} calls\n", stringify(point.kind),
                                  point.shape.ranks, stringify(point.element), formatBytes(point.bytes),
                                  formatNs(point.time.value), formatNs(point.time.lo), formatNs(point.time.hi),
                                  point.time.n);
  if (validation.heldOut == 0)
    llvm::errs() << "validation: no point has neighbours on both sides, so none was held out\n";
  else
    llvm::errs() << llvm::formatv(
        "validation: {0} of {1} points held out, predicted within {2:F1} % (median), {3:F1} % (95 %)\n",
        validation.heldOut, validation.points, validation.p50Permille / 10.0, validation.p95Permille / 10.0);
}

/// The same as JSON.
static llvm::json::Object describe(llvm::ArrayRef<RunPoint> points, const Validation &validation) {
  llvm::json::Array rows;
  for (const RunPoint &point : points)
    rows.push_back(llvm::json::Object{{"kind", stringify(point.kind)},
                                      {"ranks", point.shape.ranks},
                                      {"element", stringify(point.element)},
                                      {"bytes", point.bytes},
                                      {"ns", point.time.value},
                                      {"lo_ns", point.time.lo},
                                      {"hi_ns", point.time.hi},
                                      {"calls", point.time.n}});
  llvm::json::Object held{{"points", validation.points}, {"held_out", validation.heldOut}};
  if (validation.heldOut > 0) {
    held["median_permille"] = validation.p50Permille;
    held["p95_permille"] = validation.p95Permille;
  }
  return llvm::json::Object{{"points", std::move(rows)}, {"validation", std::move(held)}};
}

llvm::Expected<bool> commsched::refineFromTimelines(llvm::ArrayRef<std::string> paths, const MachineModel &base,
                                                    llvm::StringRef outputPath, bool quiet,
                                                    llvm::json::Object &figures) {
  std::vector<TimelineText> timelines;
  for (const std::string &path : paths) {
    llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
    if (!buffer)
      return llvm::createStringError("'" + path + "': " + buffer.getError().message());
    timelines.push_back({path, (*buffer)->getBuffer().str()});
  }
  llvm::Expected<std::vector<RunPoint>> points = readRunTimelines(timelines);
  if (!points)
    return points.takeError();
  llvm::Expected<Validation> validation = validateRefinement(base, *points);
  if (!validation)
    return validation.takeError();
  llvm::StringRef name = outputPath == "-" ? llvm::StringRef("refined") : llvm::sys::path::stem(outputPath);
  llvm::Expected<MachineModel> machine = refineProfile(base, *points, name, &*validation);
  if (!machine)
    return machine.takeError();
  if (llvm::Error error = writeWhole(outputPath, [&](llvm::raw_ostream &os) {
        os << machine->toJSON();
        return llvm::Error::success();
      }))
    return std::move(error);
  figures = describe(*points, *validation);
  if (!quiet)
    printSummary(*points, *validation);
  return validation->p95Permille <= kMostValidationPermille;
}
