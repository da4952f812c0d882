//===- TextCursor.h - A place in HLO text -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads words, numbers and brackets one after the other, and says where text differs from what was expected. All
// functions pass over white space and comments first. A function that returns false or nothing has not moved, except
// where it says so.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_TEXTCURSOR_H
#define COMMSCHED_LIB_FRONTENDS_HLO_TEXTCURSOR_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <optional>

namespace commsched::hlo {

class TextCursor {
public:
  /// `file` names the text in messages.
  TextCursor(llvm::StringRef text, llvm::StringRef file) : text(text), file(file), end(text.size()) {}

  /// A cursor at the begin of `part`, a piece of this text, that ends with it.
  TextCursor within(llvm::StringRef part) const;

  bool atEnd();
  /// The next character; '\0' at the end.
  char peek();
  /// Whether `token` is next; passes over it if so.
  bool consume(llvm::StringRef token);
  /// As consume(), and an error if the token is not next.
  llvm::Error expect(llvm::StringRef token);
  /// A word of letters, digits, '_', '.' and '-', which may begin with '%'; the sign is left out. Empty if there is
  /// none.
  llvm::StringRef word();
  /// As word(), and an error that says what kind of word was expected if there is none.
  llvm::Expected<llvm::StringRef> expectWord(llvm::StringRef what);
  std::optional<int64_t> integer();
  llvm::Expected<int64_t> expectInteger();
  /// Integers between two brackets, separated by commas: "{0,1}".
  llvm::Error readIntegers(char open, char close, llvm::SmallVectorImpl<int64_t> &values);
  /// A string in quotes, without them, as it is written. Nothing if there is none.
  std::optional<llvm::StringRef> quoted();
  /// Everything up to the comma, the bracket or the line's end that ends a value. Brackets and strings inside the value
  /// belong to it. Fails if a bracket is never closed.
  llvm::Expected<llvm::StringRef> value();
  /// Passes over a bracket with all that is in it, or over a string. One of them has to be next.
  llvm::Error skipBrackets();
  /// Passes over the rest of the line.
  void skipLine();

  /// "FILE:LINE:COLUMN: what", at the next character, or at `at`, a piece of the text. Columns count bytes from 1.
  llvm::Error fault(const llvm::Twine &what);
  llvm::Error faultAt(llvm::StringRef at, const llvm::Twine &what) const;
  /// "expected WHAT, got ..." at the next character.
  llvm::Error expected(const llvm::Twine &what);

  /// Number of bytes before the cursor.
  size_t position() const { return at; }
  llvm::StringRef whole() const { return text; }

private:
  void skipSpace();
  bool skipComment();
  bool skipString();

  llvm::StringRef text, file;
  size_t at = 0, end;
};

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_TEXTCURSOR_H
