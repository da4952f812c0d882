//===- TextCursor.cpp - A place in HLO text ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lines and columns are counted only when there is something to say.
//
//===------------------------------------------------------------------------------------------===//

#include "TextCursor.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace commsched::hlo;

static bool isWordCharacter(char c) { return isAlnum(c) || c == '_' || c == '.' || c == '-'; }

TextCursor TextCursor::within(StringRef part) const {
  TextCursor inner = *this;
  inner.at = part.data() - text.data();
  inner.end = inner.at + part.size();
  return inner;
}

bool TextCursor::skipComment() {
  StringRef rest = text.slice(at, end);
  if (rest.starts_with("/*")) {
    size_t length = rest.find("*/");
    at = length == StringRef::npos ? end : at + length + 2;
    return true;
  }
  if (!rest.starts_with("//"))
    return false;
  skipLine();
  return true;
}

void TextCursor::skipSpace() {
  do
    while (at < end && isSpace(text[at]))
      ++at;
  while (skipComment());
}

void TextCursor::skipLine() {
  size_t length = text.slice(at, end).find('\n');
  at = length == StringRef::npos ? end : at + length;
}

bool TextCursor::atEnd() {
  skipSpace();
  return at == end;
}

char TextCursor::peek() {
  skipSpace();
  return at < end ? text[at] : '\0';
}

bool TextCursor::consume(StringRef token) {
  skipSpace();
  if (!text.slice(at, end).starts_with(token))
    return false;
  // A word ends where its characters end.
  if (isWordCharacter(token.back()) && at + token.size() < end && isWordCharacter(text[at + token.size()]))
    return false;
  at += token.size();
  return true;
}

Error TextCursor::expect(StringRef token) { return consume(token) ? Error::success() : expected("'" + token + "'"); }

StringRef TextCursor::word() {
  skipSpace();
  size_t begin = at;
  if (at < end && text[at] == '%')
    ++at;
  size_t first = at;
  while (at < end && isWordCharacter(text[at]))
    ++at;
  StringRef found = text.slice(first, at);
  if (found.empty())
    at = begin;
  return found;
}

Expected<StringRef> TextCursor::expectWord(StringRef what) {
  StringRef found = word();
  if (found.empty())
    return expected(what);
  return found;
}

std::optional<int64_t> TextCursor::integer() {
  skipSpace();
  size_t stop = at;
  if (stop < end && text[stop] == '-')
    ++stop;
  while (stop < end && isDigit(text[stop]))
    ++stop;
  int64_t value = 0;
  if (text.slice(at, stop).getAsInteger(10, value))
    return std::nullopt;
  at = stop;
  return value;
}

Expected<int64_t> TextCursor::expectInteger() {
  if (std::optional<int64_t> value = integer())
    return *value;
  return expected("a number");
}

Error TextCursor::readIntegers(char open, char close, SmallVectorImpl<int64_t> &values) {
  if (Error error = expect(StringRef(&open, 1)))
    return error;
  if (consume(StringRef(&close, 1)))
    return Error::success();
  do {
    Expected<int64_t> value = expectInteger();
    if (!value)
      return value.takeError();
    values.push_back(*value);
  } while (consume(","));
  return expect(StringRef(&close, 1));
}

/// Passes over a string. Returns false, at the end, if it is never closed.
bool TextCursor::skipString() {
  for (++at; at < end && text[at] != '"'; ++at)
    if (text[at] == '\\' && at + 1 < end)
      ++at;
  if (at == end)
    return false;
  ++at;
  return true;
}

std::optional<StringRef> TextCursor::quoted() {
  skipSpace();
  size_t begin = at;
  if (at == end || text[at] != '"')
    return std::nullopt;
  if (!skipString()) {
    at = begin;
    return std::nullopt;
  }
  return text.slice(begin + 1, at - 1);
}

Error TextCursor::skipBrackets() {
  skipSpace();
  // Where the brackets begin that are open.
  SmallVector<size_t, 8> open;
  do {
    char c = text[at];
    if (c == '"') {
      size_t begin = at;
      if (!skipString())
        return faultAt(text.substr(begin, 1), "expected the end of this string, got the end of the text");
      continue;
    }
    if (skipComment())
      continue;
    if (c == '(' || c == '[' || c == '{')
      open.push_back(at);
    if (c == ')' || c == ']' || c == '}')
      open.pop_back();
    ++at;
  } while (!open.empty() && at < end);
  if (open.empty())
    return Error::success();
  return faultAt(text.substr(open.back(), 1), "expected the end of this bracket, got the end of the text");
}

Expected<StringRef> TextCursor::value() {
  skipSpace();
  size_t begin = at;
  while (at < end && !StringRef(",\n\r)]}").contains(text[at]))
    if (StringRef("([{\"").contains(text[at])) {
      if (Error error = skipBrackets())
        return std::move(error);
    } else if (!skipComment()) {
      ++at;
    }
  return text.slice(begin, at).rtrim();
}

Error TextCursor::faultAt(StringRef place, const Twine &what) const {
  size_t position = place.data() - text.data();
  StringRef before = text.take_front(position);
  size_t newline = before.rfind('\n');
  size_t column = newline == StringRef::npos ? position + 1 : position - newline;
  return createStringError(file + ":" + Twine(before.count('\n') + 1) + ":" + Twine(column) + ": " + what);
}

Error TextCursor::fault(const Twine &what) {
  skipSpace();
  return faultAt(text.substr(at, 0), what);
}

Error TextCursor::expected(const Twine &what) {
  skipSpace();
  constexpr size_t kLongest = 30; // Characters of the text in a message.
  StringRef found = text.slice(at, end).take_until([](char c) { return isSpace(c) || !isPrint(c); });
  std::string got = found.empty() ? (at == end ? "its end" : "a character that is not text")
                                  : ("'" + found.take_front(kLongest) + (found.size() > kLongest ? "...'" : "'")).str();
  return fault("expected " + what + ", got " + got);
}
