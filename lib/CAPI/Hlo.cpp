//===- Hlo.cpp - Modules of XLA from plain C --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See CommSched-c/Hlo.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/Hlo.h"
#include "Buffers.h"
#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "llvm/Support/FormatVariadic.h"

using namespace commsched;
using namespace commsched::hlo;

namespace json = llvm::json;

/// 0 and an empty text for success; 1 and the reason otherwise.
static int statusOf(llvm::Error error, CommSchedBuffer *reason) {
  bool failed = static_cast<bool>(error);
  std::string text = llvm::toString(std::move(error));
  *reason = toBuffer(text);
  return failed;
}

int commschedScheduleHlo(const char *data, size_t length, const char *options, CommSchedBuffer *module,
                         CommSchedBuffer *report) {
  *module = toBuffer("");
  llvm::Expected<TransformOptions> parsed = parseTransformOptions(options);
  if (!parsed)
    return statusOf(parsed.takeError(), report);
  TransformResult result = transformModule(llvm::StringRef(data, length), *parsed);
  commschedBufferDestroy(*module);
  *module = toBuffer(result.module);
  *report = toBuffer(llvm::formatv("{0}", json::Value(std::move(result.report))).str());
  return 0;
}

int commschedXlaInstall(const void *api, CommSchedBuffer *reason) { return statusOf(installTransform(api), reason); }

int commschedXlaConfigure(const char *options, CommSchedBuffer *reason) {
  std::optional<TransformOptions> wanted;
  if (options) {
    llvm::Expected<TransformOptions> parsed = parseTransformOptions(options);
    if (!parsed)
      return statusOf(parsed.takeError(), reason);
    wanted = std::move(*parsed);
  }
  setTransformOptions(std::move(wanted));
  return statusOf(llvm::Error::success(), reason);
}

CommSchedBuffer commschedXlaTakeReports(void) {
  json::Array reports;
  for (json::Object &report : takeTransformReports())
    reports.push_back(std::move(report));
  return toBuffer(llvm::formatv("{0}", json::Value(std::move(reports))).str());
}
