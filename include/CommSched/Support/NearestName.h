//===- NearestName.h - Suggestions for misspelt names -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The end of a message about a name that does not exist.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_SUPPORT_NEARESTNAME_H
#define COMMSCHED_SUPPORT_NEARESTNAME_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace commsched {

/// The name of `known` with the fewest edits to `name`, the first of several; empty if all of them need more than two
/// and more than a third of its letters. O(known * name * name).
llvm::StringRef nearestName(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> known);

/// "; did you mean 'NAME'?" with the nearest name, or "; expected A, B or C" if none is near.
std::string suggestName(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> known);

/// "A, B or C".
std::string listChoices(llvm::ArrayRef<llvm::StringRef> choices);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_NEARESTNAME_H
