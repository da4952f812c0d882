//===- XlaTimes.cpp - Times of instructions from XLA's profile and its log ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The profile is a protobuf message (ProfiledInstructionsProto), as text or serialized. The log has the estimates of
// XLA's own scheduler, in the words of jaxlib 0.10.2 (sol_latency_estimator.cc, gpu_latency_hiding_scheduler).
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/Rounding.h"
#include "TraceReader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"
#include <cmath>

using namespace commsched;

/// The place of the first byte that is not UTF-8, which profiles are written in; empty if there is none.
static std::string findOtherBytes(llvm::StringRef text) {
  size_t offset = 0;
  return llvm::json::isUTF8(text, &offset) ? "" : "byte " + std::to_string(offset) + ": expected UTF-8";
}

/// Microseconds as ns; none if `text` is no number, or a negative one.
static std::optional<Ns> parseMicroseconds(llvm::StringRef text) {
  double value = 0;
  if (text.trim().getAsDouble(value) || !(value >= 0 && value < static_cast<double>(kMaxNs) / 1000))
    return std::nullopt;
  return std::llround(value * 1000);
}

static void addInstruction(llvm::StringRef name, Ns time, TraceSamples &samples) {
  if (time == 0)
    samples.addUnmatched(name.str(), "it took no time", 0);
  else
    samples.addOp(name.str(), {}, time, /*isPart=*/false);
}

//===-----------------------------------------------------------------------------------------===//
// The profile
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Reads the text form of a protobuf message: fields with a colon and a value, and messages in braces.
class PgleReader {
public:
  PgleReader(llvm::StringRef text, TraceSamples &samples) : rest(text), samples(samples) {}

  std::string read();

private:
  enum class Token { End, Word, Text, Colon, Open, Close, Bad };

  Token next();
  std::string fail(llvm::StringRef what);
  std::string readCost();
  std::string skipMessage();

  llvm::StringRef rest, value;
  TraceSamples &samples;
  int64_t line = 1;
};

} // namespace

PgleReader::Token PgleReader::next() {
  for (;;) {
    size_t blank =
        rest.take_while([](char c) { return c == ' ' || c == '\t' || c == '\r' || c == ',' || c == ';'; }).size();
    rest = rest.drop_front(blank);
    if (rest.consume_front("\n"))
      ++line;
    else if (rest.starts_with("#"))
      rest = rest.drop_until([](char c) { return c == '\n'; });
    else
      break;
  }
  if (rest.empty())
    return Token::End;
  if (rest.consume_front(":"))
    return Token::Colon;
  if (rest.consume_front("{"))
    return Token::Open;
  if (rest.consume_front("}"))
    return Token::Close;
  if (char quote = rest.front(); quote == '"' || quote == '\'') {
    size_t end = rest.find(quote, 1);
    if (end == llvm::StringRef::npos || rest.take_front(end).contains('\n'))
      return Token::Bad;
    value = rest.slice(1, end);
    rest = rest.drop_front(end + 1);
    return Token::Text;
  }
  value = rest.take_while([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '-' || c == '+'; });
  rest = rest.drop_front(value.size());
  return value.empty() ? Token::Bad : Token::Word;
}

std::string PgleReader::fail(llvm::StringRef what) {
  return ("line " + llvm::Twine(line) + ": expected " + what).str();
}

/// The rest of a message that says nothing of an instruction, such as the latency between two.
std::string PgleReader::skipMessage() {
  for (int depth = 1; depth > 0;) {
    Token token = next();
    if (token == Token::End || token == Token::Bad)
      return fail("'}' at the end of a message");
    depth += token == Token::Open ? 1 : token == Token::Close ? -1 : 0;
  }
  return "";
}

/// The fields of `costs { name: "fusion.1" cost_us: 12.5 }` behind the brace.
std::string PgleReader::readCost() {
  std::string name;
  std::optional<Ns> time;
  for (;;) {
    Token token = next();
    if (token == Token::Close)
      break;
    std::string field = value.str();
    if (token != Token::Word || next() != Token::Colon)
      return fail("a field of an instruction's cost, such as 'cost_us: 12.5'");
    Token of = next();
    if (field == "name" && of == Token::Text) {
      name = value.str();
    } else if (field == "cost_us" && of == Token::Word) {
      time = parseMicroseconds(value);
      if (!time)
        return fail(("a time in microseconds as 'cost_us' of '" + llvm::Twine(name) + "', got '" + value + "'").str());
    } else if (of != Token::Text && of != Token::Word) {
      return fail(("a value of '" + llvm::Twine(field) + "'").str());
    }
  }
  if (name.empty() || !time)
    return fail("'name' and 'cost_us' of an instruction");
  addInstruction(name, *time, samples);
  return "";
}

std::string PgleReader::read() {
  for (;;) {
    Token token = next();
    if (token == Token::End)
      return "";
    std::string field = value.str();
    if (token != Token::Word)
      return fail("a field of a profile, such as 'costs { name: \"fusion.1\" cost_us: 12.5 }'");
    token = next();
    if (token == Token::Colon)
      token = next();
    if (token == Token::Text || token == Token::Word)
      continue;
    if (token != Token::Open)
      return fail(("a value of '" + llvm::Twine(field) + "'").str());
    if (std::string error = field == "costs" ? readCost() : skipMessage(); !error.empty())
      return error;
  }
}

namespace {

/// Reads the serialized form of the same message: costs are field 1, and of a cost, the name is field 1 and the time in
/// microseconds, a double, field 2. All other fields are passed over.
class SerializedPgleReader {
public:
  SerializedPgleReader(llvm::StringRef text, TraceSamples &samples) : whole(text), samples(samples) {}

  std::string read();

private:
  /// A field of a message: its number, and its bytes; of a number they are little-endian.
  struct Field {
    uint64_t number = 0;
    bool isBytes = false;
    llvm::StringRef bytes;
  };

  bool readNumber(llvm::StringRef &rest, uint64_t &number) const;
  bool readField(llvm::StringRef &rest, Field &field) const;
  std::string readCost(llvm::StringRef message);
  std::string fail(llvm::StringRef at, llvm::StringRef what) const {
    return ("byte " + llvm::Twine(at.data() - whole.data()) + ": expected " + what).str();
  }

  llvm::StringRef whole;
  TraceSamples &samples;
};

} // namespace

bool SerializedPgleReader::readNumber(llvm::StringRef &rest, uint64_t &number) const {
  number = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    auto byte = static_cast<uint8_t>(rest.front());
    rest = rest.drop_front();
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80)
      return true;
  }
  return false;
}

bool SerializedPgleReader::readField(llvm::StringRef &rest, Field &field) const {
  uint64_t tag = 0, size = 0;
  if (!readNumber(rest, tag))
    return false;
  field.number = tag >> 3;
  field.isBytes = (tag & 7) == 2;
  switch (tag & 7) {
  case 0:
    field.bytes = rest;
    return readNumber(rest, size);
  case 1:
    size = 8;
    break;
  case 2:
    if (!readNumber(rest, size))
      return false;
    break;
  case 5:
    size = 4;
    break;
  default:
    return false;
  }
  if (size > rest.size())
    return false;
  field.bytes = rest.take_front(size);
  rest = rest.drop_front(size);
  return true;
}

std::string SerializedPgleReader::readCost(llvm::StringRef message) {
  llvm::StringRef rest = message, name;
  std::optional<double> cost;
  while (!rest.empty()) {
    llvm::StringRef at = rest;
    Field field;
    if (!readField(rest, field))
      return fail(at, "a field of an instruction's cost");
    if (field.number == 1 && field.isBytes)
      name = field.bytes;
    if (field.number == 2 && !field.isBytes && field.bytes.size() == 8)
      cost = llvm::bit_cast<double>(llvm::support::endian::read64le(field.bytes.data()));
  }
  if (!llvm::json::isUTF8(name))
    return fail(name, "a name in UTF-8");
  if (name.empty() || !cost)
    return fail(message, "the name and the time of an instruction");
  if (!(*cost >= 0 && *cost < static_cast<double>(kMaxNs) / 1000))
    return fail(message, ("a time in microseconds of '" + llvm::Twine(name) + "', got " + std::to_string(*cost)).str());
  addInstruction(name, std::llround(*cost * 1000), samples);
  return "";
}

std::string SerializedPgleReader::read() {
  llvm::StringRef rest = whole;
  while (!rest.empty()) {
    llvm::StringRef at = rest;
    Field field;
    if (!readField(rest, field))
      return fail(at, "a field of a profile");
    if (field.number == 1 && field.isBytes)
      if (std::string error = readCost(field.bytes); !error.empty())
        return error;
  }
  return "";
}

/// Returns true for a serialized message that begins with the cost of an instruction: text has no control characters.
static bool isSerialized(llvm::StringRef text) {
  constexpr size_t head = 16;
  return text.starts_with("\n") &&
         llvm::any_of(text.take_front(head), [](char c) { return !llvm::isPrint(c) && !llvm::isSpace(c); });
}

bool commsched::isPgle(llvm::StringRef text) {
  if (isSerialized(text))
    return true;
  text = text.ltrim();
  while (text.starts_with("#"))
    text = text.split('\n').second.ltrim();
  return text.starts_with("costs") || text.starts_with("latencies");
}

std::string commsched::readPgle(const TimelineText &trace, TraceSamples &samples) {
  if (isSerialized(trace.text))
    return SerializedPgleReader(trace.text, samples).read();
  std::string error = findOtherBytes(trace.text);
  return error.empty() ? PgleReader(trace.text, samples).read() : error;
}

//===-----------------------------------------------------------------------------------------===//
// The log
//===-----------------------------------------------------------------------------------------===//

/// The name and the time in a line as "...FIRST name BETWEEN time LAST"; no name if it is another line.
static std::pair<llvm::StringRef, llvm::StringRef> readLine(llvm::StringRef line, llvm::StringRef first,
                                                            llvm::StringRef between, llvm::StringRef last) {
  size_t at = line.find(first);
  if (at == llvm::StringRef::npos)
    return {};
  auto [name, time] = line.drop_front(at + first.size()).split(between);
  if (name.contains(' ') || time.empty())
    return {};
  time = time.rtrim();
  return last.empty() || time.consume_back(last) ? std::pair(name, time)
                                                 : std::pair<llvm::StringRef, llvm::StringRef>();
}

std::string commsched::readXlaLog(const TimelineText &trace, TraceSamples &samples) {
  // An estimate is logged as often as the scheduler asks for it.
  std::map<std::string, Ns> times;
  int64_t number = 0;
  for (llvm::StringRef line : llvm::split(trace.text, '\n')) {
    ++number;
    std::pair<llvm::StringRef, llvm::StringRef> found;
    if (size_t at = line.find("NodeCost: "); at != llvm::StringRef::npos)
      found = readLine(line.drop_front(at), " for ", ": ", " us");
    if (found.first.empty())
      found = readLine(line, "calculated cost for: ", ". Cost: ", "");
    if (found.first.empty())
      found = readLine(line, "Computed collective time for ", ": ", " us");
    if (found.first.empty())
      continue;
    if (!llvm::json::isUTF8(found.first))
      return "line " + std::to_string(number) + ": expected a name in UTF-8";
    std::optional<Ns> time = parseMicroseconds(found.second);
    if (!time)
      return "line " + std::to_string(number) + ": expected a time in microseconds of '" + found.first.str() +
             "', got '" + found.second.str() + "'";
    times[found.first.str()] = *time;
  }
  // XLA estimates views, too, as 0.
  for (const auto &[name, time] : times)
    if (time > 0)
      addInstruction(name, time, samples);
  return "";
}
