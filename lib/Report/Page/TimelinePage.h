//===- TimelinePage.h - The frame of the timeline page ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// There is one page for schedules and for recorded timelines. It reads from its data what there is to draw.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_REPORT_PAGE_TIMELINEPAGE_H
#define COMMSCHED_LIB_REPORT_PAGE_TIMELINEPAGE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

namespace commsched {

/// Writes the page around its data, which are JSON as lib/Report/Page/model.js reads them.
void writePage(llvm::StringRef data, llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_LIB_REPORT_PAGE_TIMELINEPAGE_H
