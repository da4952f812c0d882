//===- CollectiveVariant.cpp - Ways to carry out a collective ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The texts of variants, in both directions.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/CollectiveVariant.h"

using namespace commsched;

llvm::StringRef commsched::stringify(VariantName::Means means) {
  return means == VariantName::Ring ? "ring" : means == VariantName::CopyEngine ? "copy_engine" : "symmetric";
}

bool VariantName::isValid() const {
  if (means == CopyEngine)
    return ctas == 0;
  return ctas >= (means == Ring ? 1 : 0) && ctas <= kMaxCtas;
}

std::string VariantName::text() const {
  std::string name = means == Ring ? "ring" : means == CopyEngine ? "copy-engine" : "symmetric";
  return ctas == 0 ? name : name + "-" + std::to_string(ctas);
}

std::optional<VariantName> VariantName::parse(llvm::StringRef text) {
  VariantName name;
  auto [word, number] = text.split("-");
  if (text == "copy-engine") {
    name.means = CopyEngine;
  } else if (word == "ring" || word == "symmetric") {
    name.means = word == "ring" ? Ring : Symmetric;
    if (!number.empty() && number.getAsInteger(10, name.ctas))
      return std::nullopt;
  } else {
    return std::nullopt;
  }
  // One way, one text: no leading zeros, no lonely dash.
  return name.isValid() && name.text() == text ? std::optional(name) : std::nullopt;
}

llvm::StringRef VariantName::expected() {
  return "\"ring-N\", \"copy-engine\", \"symmetric\" or \"symmetric-N\", with N from 1 to 64";
}
