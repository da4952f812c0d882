//===- Markup.h - Text in HTML and SVG --------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_REPORT_PAGE_MARKUP_H
#define COMMSCHED_LIB_REPORT_PAGE_MARKUP_H

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

namespace commsched {

/// A text with the characters that markup reserves replaced.
inline std::string escapeMarkup(llvm::StringRef text) {
  std::string result;
  llvm::raw_string_ostream os(result);
  llvm::printHTMLEscaped(text, os);
  return result;
}

} // namespace commsched

#endif // COMMSCHED_LIB_REPORT_PAGE_MARKUP_H
