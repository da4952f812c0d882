//===- NearestName.cpp - Suggestions for misspelt names ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See NearestName.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/NearestName.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

StringRef commsched::nearestName(StringRef name, ArrayRef<StringRef> known) {
  auto least = static_cast<unsigned>(std::max<size_t>(name.size() / 3, 2)) + 1;
  StringRef nearest;
  for (StringRef candidate : known)
    if (unsigned edits = name.edit_distance(candidate, /*AllowReplacements=*/true, /*MaxEditDistance=*/least);
        edits < least) {
      least = edits;
      nearest = candidate;
    }
  return nearest;
}

std::string commsched::suggestName(StringRef name, ArrayRef<StringRef> known) {
  if (StringRef nearest = nearestName(name, known); !nearest.empty())
    return ("; did you mean '" + nearest + "'?").str();
  return "; expected " + listChoices(known);
}

std::string commsched::listChoices(ArrayRef<StringRef> choices) {
  if (choices.size() < 2)
    return join(choices, "");
  return join(choices.drop_back(), ", ") + " or " + choices.back().str();
}
