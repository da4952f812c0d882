//===- Timeline.cpp - Recorded timelines as a page from plain C -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See CommSched-c/Timeline.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/Timeline.h"
#include "Buffers.h"
#include "CommSched/Report/RecordedPage.h"
#include "CommSched/Support/OutputFile.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

using namespace commsched;

static llvm::Error writePage(llvm::StringRef request, llvm::StringRef path) {
  if (path.empty() || path == "-") // Standard output belongs to the caller.
    return llvm::createStringError("timeline page: expected the path of a file, got '" + path + "'");
  llvm::Expected<std::string> page = makeRecordedPage(request);
  if (!page)
    return page.takeError();
  return writeWhole(path, [&](llvm::raw_ostream &os) {
    os << *page;
    return llvm::Error::success();
  });
}

int commschedTimelineWritePage(const char *request, size_t length, const char *path, CommSchedBuffer *reason) {
  llvm::Error error = writePage({request, length}, path);
  const bool failed = static_cast<bool>(error);
  *reason = toBuffer(llvm::toString(std::move(error)));
  return failed;
}
