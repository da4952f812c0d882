//===- RecordedPage.h - Recorded timelines as a page ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The page of writeHtml, for timelines that did not come from a program: those of a profiler, one for each rank.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_RECORDEDPAGE_H
#define COMMSCHED_REPORT_RECORDEDPAGE_H

#include "CommSched/Support/Units.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace commsched {

/// The latest moment of a page, ns: up to here, the numbers of JavaScript are exact.
inline constexpr Ns kMaxPageNs = Ns(1) << 53;

/// The page of the timelines that `request` describes, as one HTML file. CommSched-c/Timeline.h says how; what it does
/// not name is left out. Fails with the place in the request if it is not as described. O(length of the request).
llvm::Expected<std::string> makeRecordedPage(llvm::StringRef request);

} // namespace commsched

#endif // COMMSCHED_REPORT_RECORDEDPAGE_H
