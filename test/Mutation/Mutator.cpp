//===- Mutator.cpp - Deterministic damage to a program's text ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See Mutator.h.
//
//===------------------------------------------------------------------------------------------===//

#include "Mutator.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include <vector>

using namespace llvm;

namespace {

/// A number below `bound`, which is not 0.
size_t below(std::mt19937_64 &random, size_t bound) { return random() % bound; }

/// Splits into identifiers with their sigils, numbers, strings, blanks and single characters. Joined again they give
/// `text`.
std::vector<std::string> tokenize(StringRef text) {
  auto isWord = [](char c) { return isAlnum(c) || c == '_' || c == '.' || c == '$'; };
  std::vector<std::string> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (isWord(text[i]) || StringRef("%@#!^").contains(text[i])) {
      while (end < text.size() && isWord(text[end]))
        ++end;
    } else if (text[i] == '"') {
      while (end < text.size() && text[end] != '"' && text[end] != '\n')
        ++end;
      end = std::min(end + 1, text.size());
    } else if (text[i] == ' ') {
      while (end < text.size() && text[end] == ' ')
        ++end;
    }
    tokens.push_back(text.slice(i, end).str());
    i = end;
  }
  return tokens;
}

/// What replaces a number.
StringRef extremeNumber(std::mt19937_64 &random) {
  static constexpr StringRef numbers[] = {
      "0",  "-1", "1",   "9223372036854775807",  "-9223372036854775808", "4294967296",
      "7",  "?",  "1e9", "18446744073709551616", "2147483648",           "0x7F",
      "64", "3"};
  return numbers[below(random, std::size(numbers))];
}

void mutateTokens(std::vector<std::string> &tokens, std::mt19937_64 &random) {
  size_t at = below(random, tokens.size());
  switch (below(random, 8)) {
  case 0:
    tokens.erase(tokens.begin() + at);
    break;
  case 1:
    tokens.insert(tokens.begin() + at, std::string(tokens[at]));
    break;
  case 2:
    std::swap(tokens[at], tokens[below(random, tokens.size())]);
    break;
  case 3: // Another token of the same first character, so that a type stays a type and a value a value.
    for (size_t tries = 0; tries < 200; ++tries) {
      const std::string &other = tokens[below(random, tokens.size())];
      if (other[0] == tokens[at][0] && other != tokens[at]) {
        tokens[at] = other;
        break;
      }
    }
    break;
  case 4:
  case 5:
  case 6: // The next number.
    for (size_t i = at; i < tokens.size(); ++i) {
      if (isDigit(tokens[i][0])) {
        size_t digits = StringRef(tokens[i]).take_while(isDigit).size();
        tokens[i] = (extremeNumber(random) + StringRef(tokens[i]).drop_front(digits)).str();
        break;
      }
    }
    break;
  default:
    tokens[at][below(random, tokens[at].size())] = static_cast<char>(random());
  }
}

void mutateLines(std::string &text, std::mt19937_64 &random) {
  SmallVector<StringRef> lines;
  StringRef(text).split(lines, '\n');
  size_t at = below(random, lines.size());
  switch (below(random, 3)) {
  case 0:
    lines.erase(lines.begin() + at);
    break;
  case 1:
    lines.insert(lines.begin() + below(random, lines.size()), StringRef(lines[at]));
    break;
  default:
    std::swap(lines[at], lines[below(random, lines.size())]);
  }
  text = llvm::join(lines, "\n");
}

} // namespace

std::string commsched::test::mutateText(StringRef text, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string result = text.str();
  for (size_t i = 0, count = 1 + below(random, 4); i < count && !result.empty(); ++i) {
    size_t kind = below(random, 16);
    if (kind == 0) {
      result.resize(below(random, result.size()) + 1);
    } else if (kind < 4) {
      mutateLines(result, random);
    } else {
      std::vector<std::string> tokens = tokenize(result);
      mutateTokens(tokens, random);
      result = llvm::join(tokens, "");
    }
  }
  return result;
}

std::string commsched::test::truncateBytes(StringRef bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  return bytes.take_front(1 + below(random, bytes.size() - 1)).str();
}
