#include "sealring/control/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sealring {
namespace {

tl::unexpected<Error> malformed(std::string what) {
  return fail(Code::malformed, "control.message", std::move(what));
}

void put_text(ByteWriter& out, std::string_view text, std::size_t bytes_max) {
  text = text.substr(0, bytes_max);
  out.put(static_cast<std::uint16_t>(text.size())).put(as_bytes(text));
}

/// Empty optional: too long, or past the end.
std::optional<std::string> get_text(ByteReader& in, std::size_t bytes_max) {
  const auto bytes = in.get<std::uint16_t>();
  if (bytes > bytes_max) return std::nullopt;
  const ByteView raw = in.take(bytes);
  if (in.failed()) return std::nullopt;
  std::string text(raw.size(), '\0');
  if (!raw.empty()) std::memcpy(text.data(), raw.data(), raw.size());
  return printable(text);
}

template <class T>
bool known(std::span<const T> all, T value) {
  return std::find(all.begin(), all.end(), value) != all.end();
}

void put(ByteWriter& out, const Heartbeat& beat) {
  SR_CHECK(beat.groups.size() <= Heartbeat::kGroupsMax, "groups", beat.groups.size());
  out.put(static_cast<std::uint16_t>(beat.groups.size()));
  for (const GroupBeat& group : beat.groups) {
    SR_CHECK(group.marks.size() <= GroupBeat::kMarksMax, "marks", group.marks.size());
    out.put(ByteView(group.group)).put(group.last_seq).put(static_cast<std::uint16_t>(group.marks.size()));
    for (const OpMark& mark : group.marks) out.put(mark.seq).put(ByteView(mark.digest));
  }
}

void put(ByteWriter& out, const AbortReport& report) {
  out.put(static_cast<std::uint16_t>(report.code)).put(report.origin);
  out.put(static_cast<std::uint32_t>(report.peer));
  put_text(out, report.stage, AbortReport::kStageBytesMax);
  put_text(out, report.what, AbortReport::kWhatBytesMax);
}

void put(ByteWriter& out, const RecorderReport& report) {
  SR_CHECK(report.ops.size() <= RecorderReport::kOpsMax, "ops", report.ops.size());
  out.put(static_cast<std::uint16_t>(report.ops.size()));
  for (const OpContext& op : report.ops) {
    out.put(ByteView(op.signature())).put(static_cast<std::uint8_t>(op.state));
  }
}

void put(ByteWriter&, const Leave&) {}
void put(ByteWriter&, const LeaveSeen&) {}

ControlMessageType type_of(const ControlMessage& message) {
  static constexpr std::array kTypes{ControlMessageType::heartbeat, ControlMessageType::abort,
                                     ControlMessageType::recorder, ControlMessageType::leave,
                                     ControlMessageType::leave_seen};
  return kTypes[message.index()];
}

Result<ControlMessage> decode_heartbeat(ByteReader& in) {
  Heartbeat beat;
  const auto groups = in.get<std::uint16_t>();
  if (groups > Heartbeat::kGroupsMax) return malformed("a heartbeat names too many groups");
  for (std::uint16_t i = 0; i < groups && !in.failed(); ++i) {
    GroupBeat group;
    group.group = in.array<8>();
    group.last_seq = in.get<std::uint64_t>();
    const auto marks = in.get<std::uint16_t>();
    if (marks > GroupBeat::kMarksMax) return malformed("a heartbeat names too many operations");
    for (std::uint16_t k = 0; k < marks && !in.failed(); ++k) {
      OpMark mark;
      mark.seq = in.get<std::uint64_t>();
      mark.digest = in.array<8>();
      if (mark.seq > group.last_seq || (!group.marks.empty() && mark.seq <= group.marks.back().seq)) {
        return malformed("the operations of a heartbeat are out of order");
      }
      group.marks.push_back(mark);
    }
    beat.groups.push_back(std::move(group));
  }
  return beat;
}

Result<ControlMessage> decode_abort(ByteReader& in, std::uint16_t world) {
  AbortReport report;
  report.code = static_cast<Code>(in.get<std::uint16_t>());
  report.origin = in.get<std::uint16_t>();
  report.peer = static_cast<std::int32_t>(in.get<std::uint32_t>());
  auto stage = get_text(in, AbortReport::kStageBytesMax);
  auto what = stage ? get_text(in, AbortReport::kWhatBytesMax) : std::nullopt;
  if (!stage || !what) return malformed("the text of an abort is too long or cut short");
  if (report.code == Code::ok || code_info(report.code).code != report.code) {
    return malformed("an abort carries an error code that does not exist");
  }
  if (report.origin >= world || report.peer < -1 || report.peer >= static_cast<std::int32_t>(world)) {
    return malformed("an abort names a rank that does not exist");
  }
  report.stage = std::move(*stage);
  report.what = std::move(*what);
  return report;
}

Result<ControlMessage> decode_recorder(ByteReader& in) {
  RecorderReport report;
  const auto ops = in.get<std::uint16_t>();
  if (ops > RecorderReport::kOpsMax) return malformed("a recorder holds too many operations");
  for (std::uint16_t i = 0; i < ops && !in.failed(); ++i) {
    OpContext op;
    op.group_id = in.array<32>();
    op.seq = in.get<std::uint64_t>();
    op.op = static_cast<Op>(in.get<std::uint8_t>());
    op.redop = static_cast<RedOp>(in.get<std::uint8_t>());
    op.dtype = static_cast<DType>(in.get<std::uint8_t>());
    op.algorithm = static_cast<Algorithm>(in.get<std::uint8_t>());
    op.root = in.get<std::uint16_t>();
    op.elements = in.get<std::uint64_t>();
    op.state = static_cast<OpContext::State>(in.get<std::uint8_t>());
    if (!known(all_ops(), op.op) || !known(all_redops(), op.redop) || !known(all_dtypes(), op.dtype) ||
        !known(all_algorithms(), op.algorithm) || op.state < OpContext::State::started ||
        op.state > OpContext::State::failed) {
      return malformed("a recorder holds an operation that does not exist");
    }
    report.ops.push_back(op);
  }
  return report;
}

}  // namespace

GroupTag group_tag(const std::array<std::byte, 32>& group_id) {
  GroupTag out{};
  std::copy_n(group_id.begin(), out.size(), out.begin());
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code > 0x7e) {
      out += fmt::format("\\x{:02x}", code);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

Bytes encode(const ControlMessage& message) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(type_of(message)));
  std::visit([&out](const auto& body) { put(out, body); }, message);
  return out.take();
}

Result<ControlMessage> decode_control_message(ByteView bytes, std::uint16_t world) {
  ByteReader in(bytes);
  const auto type = static_cast<ControlMessageType>(in.get<std::uint8_t>());
  const auto body = [&]() -> Result<ControlMessage> {
    switch (type) {
      case ControlMessageType::heartbeat:
        return decode_heartbeat(in);
      case ControlMessageType::abort:
        return decode_abort(in, world);
      case ControlMessageType::recorder:
        return decode_recorder(in);
      case ControlMessageType::leave:
        return Leave{};
      case ControlMessageType::leave_seen:
        return LeaveSeen{};
      case ControlMessageType::reattest:
        break;
    }
    return malformed("a control message has an unknown type");
  };
  SR_TRY(ControlMessage message, body());
  if (!in.finished()) return malformed("a control message has not the length of its type");
  return message;
}

}  // namespace sealring
