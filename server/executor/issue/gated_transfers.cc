#include "server/executor/issue/gated_transfers.h"

#include <span>
#include <string>
#include <string_view>

#include "server/executor/issue/gated_queue.h"

namespace tally::server {
namespace {

constexpr uint32_t kThreads = 256;
// Of a block: eight turns of all threads at 16 bytes each. The text has it, too.
constexpr uint64_t kTransferPiece = 32'768;
// Pieces that are promised at once: 16 MiB, some 10 us.
constexpr uint32_t kPiecesAhead = 512;

// Each block does a piece: by 16 bytes if all is aligned so, else by 4, else by bytes. `source`: the third parameter,
// `begin` reads it; `byte`, `word` and `wide` have in %r4, or in %r4 to %r7, what goes to offset %d7.
std::string KernelText(std::string_view name, std::string_view source, std::string_view begin, std::string_view byte,
                       std::string_view word, std::string_view wide) {
  std::string text = ".visible .entry ";
  for (const std::string_view part :
       {name, std::string_view("(.param .u64 to, .param .u64 size, .param "), source, std::string_view(R"()
{
	.reg .pred %p<4>;
	.reg .b32 %r<8>;
	.reg .b64 %d<12>;
	ld.param.u64 %d0, [to];
	ld.param.u64 %d1, [size];
	cvta.to.global.u64 %d0, %d0;
	mov.u32 %r1, %ctaid.x;
	mul.wide.u32 %d2, %r1, 32768;
	add.u64 %d3, %d2, 32768;
	min.u64 %d3, %d3, %d1;
	mov.u32 %r2, %tid.x;
	cvt.u64.u32 %d4, %r2;
	or.b64 %d5, %d0, %d1;
)"),
        begin, std::string_view(R"(
	and.b64 %d6, %d5, 15;
	setp.eq.u64 %p0, %d6, 0;
	and.b64 %d6, %d5, 3;
	setp.eq.u64 %p1, %d6, 0;
	@%p0 bra WIDE;
	@%p1 bra WORDS;
	add.u64 %d7, %d2, %d4;
BYTES:
	setp.ge.u64 %p2, %d7, %d3;
	@%p2 bra DONE;
)"),
        byte, std::string_view(R"(
	add.u64 %d8, %d0, %d7;
	st.global.u8 [%d8], %r4;
	add.u64 %d7, %d7, 256;
	bra BYTES;
WORDS:
	shl.b64 %d7, %d4, 2;
	add.u64 %d7, %d2, %d7;
EACH:
	setp.ge.u64 %p2, %d7, %d3;
	@%p2 bra DONE;
)"),
        word, std::string_view(R"(
	add.u64 %d8, %d0, %d7;
	st.global.u32 [%d8], %r4;
	add.u64 %d7, %d7, 1024;
	bra EACH;
WIDE:
	shl.b64 %d7, %d4, 4;
	add.u64 %d7, %d2, %d7;
FOURS:
	setp.ge.u64 %p2, %d7, %d3;
	@%p2 bra DONE;
)"),
        wide, std::string_view(R"(
	add.u64 %d8, %d0, %d7;
	st.global.v4.u32 [%d8], {%r4, %r5, %r6, %r7};
	add.u64 %d7, %d7, 4096;
	bra FOURS;
DONE:
	ret;
}
)")}) {
    text += part;
  }
  return text;
}

std::string TransferText() {
  constexpr std::string_view kAllWords = R"(
	mov.u32 %r4, %r0;
	mov.u32 %r5, %r0;
	mov.u32 %r6, %r0;
	mov.u32 %r7, %r0;
)";
  return ".version 7.0\n.target sm_75\n.address_size 64\n" +
         KernelText("tally_gated_fill", ".u32 value", "ld.param.u32 %r0, [value];", R"(
	cvt.u32.u64 %r3, %d7;
	and.b32 %r3, %r3, 3;
	shl.b32 %r3, %r3, 3;
	shr.u32 %r4, %r0, %r3;
)",
                    kAllWords, kAllWords) +
         KernelText("tally_gated_copy", ".u64 from", R"(
	ld.param.u64 %d9, [from];
	cvta.to.global.u64 %d9, %d9;
	or.b64 %d5, %d5, %d9;
)",
                    "add.u64 %d8, %d9, %d7;\nld.global.u8 %r4, [%d8];",
                    "add.u64 %d8, %d9, %d7;\nld.global.u32 %r4, [%d8];",
                    "add.u64 %d8, %d9, %d7;\nld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d8];");
}

struct FillParameters {
  uint64_t to, size;
  uint32_t value;
};
struct CopyParameters {
  uint64_t to, size, from;
};

// Its elements one after another, as words would have them.
uint32_t WordOf(const Transfer& fill) {
  if (fill.element_bytes == 1) return (fill.value & 0xFF) * 0x01010101u;
  if (fill.element_bytes == 2) return (fill.value & 0xFFFF) * 0x00010001u;
  return fill.value;
}

}  // namespace

CUresult GatedTransfers::Load() {
  const CUresult result = module_.Load(TransferText());
  fill_ = module_.Find("tally_gated_fill");
  copy_ = module_.Find("tally_gated_copy");
  return result;
}

bool GatedTransfers::Takes(const Transfer& transfer) const {
  const uint32_t element_bytes = transfer.is_fill() ? transfer.element_bytes : 1;
  return fill_.function != nullptr && copy_.function != nullptr && transfer.rows == 1 &&
         transfer.row_bytes <= kMostBytes && transfer.to % element_bytes == 0;
}

PendingLaunch GatedTransfers::LaunchOf(const Transfer& transfer, GatedForm* form) const {
  const GatedModule::Kernel& code = transfer.is_fill() ? fill_ : copy_;
  form->function = code.function;
  form->hidden_offset = code.hidden_offset;
  form->chunk = kPiecesAhead;
  PendingLaunch launch;
  launch.shape.grid = {static_cast<uint32_t>((transfer.row_bytes + kTransferPiece - 1) / kTransferPiece), 1, 1};
  launch.shape.block = {kThreads, 1, 1};
  if (transfer.is_fill()) {
    const FillParameters parameters{transfer.to, transfer.row_bytes, WordOf(transfer)};
    launch.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
  } else {
    const CopyParameters parameters{transfer.to, transfer.row_bytes, transfer.from};
    launch.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
  }
  return launch;
}

}  // namespace tally::server
