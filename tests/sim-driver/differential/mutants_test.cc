// The differential tests can fail: every one of these defects, put into what a pass writes, is found.
//
// A mutant is what a bug in the pass would have written instead. It is made in the text, so nothing of it is in the
// product; a text without the place is passed over. A pass that writes its code differently one day needs its mutants
// brought up to date: a mutant whose place is never found fails its test too.
#include <gtest/gtest.h>

#include <regex>

#include "tests/sim-driver/differential/differential.h"

namespace tally::differential {
namespace {

enum class Which : uint8_t { kFirst, kLast, kAll };

struct Mutant {
  const char* name;
  const char* pass;     // whose output: only pipelines with it are run
  const char* place;    // regular expression; `T` stands for the prefix of the passes' own names
  const char* instead;  // $1 and so on: what the expression caught
  Which which = Which::kAll;
};

constexpr Mutant kMutants[] = {
    // slice_grid
    {"slice_forgets_offset_x", "slice_grid", R"(add\.u32 %Tctaid_x, %Tctaid_x, %Tfirst_x;)", ""},
    {"slice_forgets_offset_y", "slice_grid", R"(add\.u32 %Tctaid_y, %Tctaid_y, %Tfirst_y;)", ""},
    {"slice_forgets_offset_z", "slice_grid", R"(add\.u32 %Tctaid_z, %Tctaid_z, %Tfirst_z;)", ""},
    {"slice_mixes_up_axes", "slice_grid", R"((ld\.param\.u32 %Tfirst_y, \[Tslice)\+4\];)", "$1+8];"},
    {"slice_tells_its_own_size_x", "slice_grid", R"(ld\.param\.u32 (%Tnctaid_x), \[Tslice\+12\];)",
     "mov.u32 $1, %nctaid.x;"},
    {"slice_tells_its_own_size_z", "slice_grid", R"(ld\.param\.u32 (%Tnctaid_z), \[Tslice\+20\];)",
     "mov.u32 $1, %nctaid.z;"},
    {"slice_leaves_one_index", "slice_grid", R"((mov\.\w+ [^%\n]*%?\w+, )%Tctaid_x;)", "$1%ctaid.x;", Which::kLast},
    {"slice_leaves_one_size", "slice_grid", R"((mov\.\w+ [^%\n]*%?\w+, )%Tnctaid_x;)", "$1%nctaid.x;", Which::kLast},
    // import_globals
    {"import_takes_the_wrong_entry", "import_globals", R"((\[Timports)\+8\])", "$1+0]"},
    {"import_forgets_one", "import_globals", R"(ld\.const\.b64 (%Taddress_0|lanes), \[Timports\];)", "mov.u64 $1, 0;"},
    // unify_barriers
    {"unify_leaves_an_exit", "unify_barriers", R"(bra \$Tend;)", "ret;", Which::kFirst},
    {"unify_leaves_the_last_exit", "unify_barriers", R"(bra \$Tend;)", "exit;", Which::kLast},
    {"unify_does_not_wait_for_those_inside", "unify_barriers", R"(@!%Tany_inside bra \$Tleave;)",
     "@!%Tis_inside bra $$Tleave;"},
    {"unify_counts_those_at_the_end", "unify_barriers", R"(setp\.ne\.u32 %Tis_inside, %Tplace, 0;)",
     "setp.ge.u32 %Tis_inside, %Tplace, 0;"},
    {"unify_forgets_that_it_is_inside", "unify_barriers", R"(setp\.ne\.u32 %Tis_inside, %Tplace, 0;)",
     "setp.lt.u32 %Tis_inside, %Tplace, 0;"},
    {"unify_drops_a_barrier", "unify_barriers", R"(bra \$Tmeet;)", "", Which::kFirst},
    {"unify_returns_to_another_place", "unify_barriers", R"(mov\.u32 %Tplace, 2;)", "mov.u32 %Tplace, 1;"},
    // As some lanes of a warp then wait at one instruction and the rest at another, the hardware hangs.
    {"unify_reduces_where_threads_stand", "unify_barriers", R"(mov\.u32 %Tplace, [1-9]\d*;\s+bra \$Tmeet;)",
     "setp.eq.u32 %Tis_inside, %Tplace, %Tplace; barrier.red.or.pred %Tany_inside, 0, %Tis_inside;"},
    {"unify_drops_the_second_round_at_the_end", "unify_barriers", R"(barrier\.red\.popc\.u32 %Tcount, )",
     "@%Tis_inside $&"},
    {"unify_adds_those_at_the_end", "unify_barriers", R"(mov\.pred %Tcounts, 0;(\s+\$Tmeet:))",
     "mov.pred %Tcounts, 1;$1"},
    {"unify_turns_and_round", "unify_barriers", R"(setp\.eq\.u32 (\S+), %Tcount, 0;)", "setp.ne.u32 $1, %Tcount, 0;"},
    {"lanes_are_not_counted", "unify_barriers", R"(vote\.sync\.ballot\.b32 %Tlanes, .*;)", ""},
    {"lanes_that_leave_are_counted", "unify_barriers", R"((vote\.sync\.ballot\.b32 %Tlanes, )!)", "$1"},
    {"lanes_that_leave_stay_named", "unify_barriers", R"((vote\.sync\.ballot\.b32 %Tlanes,) (.*), %Tlanes;)",
     "$1 $2, %Tlanes; mov.b32 %Tlanes, -1;"},
    {"lanes_that_left_are_not_back_in_the_next_block", "persistent_blocks",
     R"((\$Tnext:\s(?:.*\n){1,60}?)\s*mov\.u32 %Tlanes, -1;)", "mov.u32 %Tlanes, -1;\n$1"},
    {"lanes_are_named_by_the_program", "unify_barriers", R"(and\.b32 (%Tmembers), (\S+), %Tlanes;)", "mov.b32 $1, $2;"},
    {"lanes_are_all_named_once", "unify_barriers",
     R"(((?:shfl|match|redux|vote)\.sync\.[^;%]*\s[^;]*, )%Tlanes;(?!\s*@))", "$1-1;", Which::kLast},
    // persistent_blocks
    {"persistent_blocks_do_not_reduce_x", "persistent_blocks", R"(rem\.u32 %Tctaid_x, .*;)", ""},
    {"persistent_blocks_do_not_reduce_y", "persistent_blocks", R"(rem\.u32 (%Tctaid_y), (\S+), .*;)",
     "mov.u32 $1, $2;"},
    {"persistent_blocks_forget_z", "persistent_blocks", R"(div\.u32 %Tctaid_z, .*;)", ""},
    {"persistent_blocks_forget_planes", "persistent_blocks", R"((mul\.lo\.u32 %Tnum_blocks, %Tgrid_y, )%Tgrid_z;)",
     "$1 1;"},
    {"persistent_blocks_tell_their_own_number", "persistent_blocks", R"(mov\.u32 (%Tnctaid_x), %Tgrid_x;)",
     "mov.u32 $1, %nctaid.x;"},
    {"persistent_blocks_do_not_meet_at_the_end", "persistent_blocks", R"(barrier\.sync \d+;(\s+bra \$Tnext;))", "$1"},
    {"persistent_blocks_do_not_wait_for_the_index", "persistent_blocks", R"((\$Ttaken:\s+)barrier\.sync \d+;)", "$1"},
    {"persistent_blocks_run_the_next_block", "persistent_blocks", R"(ld\.shared\.u32 %Tindex, \[%Tslot\];)",
     "ld.shared.u32 %Tindex, [%Tslot]; add.u32 %Tindex, %Tindex, 1;"},
    {"persistent_blocks_go_one_too_far", "persistent_blocks", R"(setp\.ge\.u32 %Tis_done,)", "setp.gt.u32 %Tis_done,"},
    {"persistent_blocks_miss_the_last_block", "persistent_blocks", R"((mul\.lo\.u32 (%Tnum_blocks), \S+ %Tgrid_x;))",
     "$1 sub.u32 $2, $2, 1;"},
    {"persistent_blocks_take_one_index_per_thread", "persistent_blocks", R"(@%Tis_follower bra \$Ttaken;)", ""},
    {"persistent_blocks_take_without_counting", "persistent_blocks",
     R"(atom\.global\.add\.u32 (%Tindex, \[%Tcontrol\]), 1;)", "atom.global.add.u32 $1, 0;"},
    {"persistent_blocks_take_two", "persistent_blocks", R"(atom\.global\.add\.u32 (%Tindex, \[%Tcontrol\]), 1;)",
     "atom.global.add.u32 $1, 2;"},
    {"persistent_blocks_publish_in_the_kernel_s_memory", "persistent_blocks", R"(sub\.u32 (%Tslot, %Tslot), 8;)",
     "sub.u32 $1, 24;"},
    {"persistent_blocks_leave_an_exit", "persistent_blocks", R"(bra \$Tend;)", "exit;", Which::kFirst},
    {"persistent_blocks_end_after_one_block", "persistent_blocks", R"(bra \$Tnext;)", "ret;"},
    {"persistent_blocks_count_no_block", "persistent_blocks", R"(add\.u32 %Tcompleted, %Tcompleted, 1;)", ""},
    {"persistent_blocks_count_only_their_last_block", "persistent_blocks", R"(add\.u32 (%Tcompleted), %Tcompleted, 1;)",
     "mov.u32 $1, 1;"},
    {"persistent_blocks_count_the_block_that_is_not_there", "persistent_blocks",
     R"(setp\.ge\.u32 %Tis_done,(?=[^$]*\$Twork;))", "add.u32 %Tcompleted, %Tcompleted, 1;\n$&"},
    {"persistent_blocks_count_once_per_thread", "persistent_blocks", R"(@%Tis_follower ret;)", ""},
    {"persistent_blocks_count_in_the_next_index", "persistent_blocks", R"((\[%Tcontrol)\+4\], %Tcompleted)",
     "$1], %Tcompleted"},
    {"persistent_blocks_overwrite_what_others_counted", "persistent_blocks",
     R"(atom\.global\.add\.u32 %Tindex, (\[%Tcontrol\+4\], %Tcompleted;))", "st.global.u32 $1"},
    // gate_entry
    {"gate_does_not_add_its_base", "gate_entry", R"(add\.u32 %Tnumber, %Tnumber, %Tplace;)", ""},
    {"gate_forgets_y", "gate_entry", R"(mov\.u32 %Treach, %ctaid\.y;)", "mov.u32 %Treach, 0;"},
    {"gate_forgets_z", "gate_entry", R"(mov\.u32 %Tplace, %ctaid\.z;)", "mov.u32 %Tplace, 0;"},
    {"gate_reads_one_axis", "gate_entry", R"(and\.b32 %Tplace, %Tflags, \d+;)", "mov.b32 %Tplace, 0;"},
    {"gate_runs_what_ran", "gate_entry", R"(setp\.lt\.u32 (%Tleaves, %Tnumber, %Tstart;))",
     "setp.lt.u32 %Tleaves, 1, 0;"},
    {"gate_repeats_one", "gate_entry", R"(setp\.lt\.u32 (%Tleaves, %Tnumber, %Tstart;))",
     "add.u32 %Treach, %Tnumber, 1; setp.lt.u32 %Tleaves, %Treach, %Tstart;"},
    {"gate_skips_one", "gate_entry", R"(setp\.lt\.u32 (%Tleaves, %Tnumber, %Tstart;))", "setp.le.u32 $1"},
    {"gate_runs_at_the_watermark", "gate_entry", R"(setp\.lt\.u32 (%Truns, %Tnumber, %Twatermark;))", "setp.le.u32 $1"},
    {"gate_does_not_stop", "gate_entry", R"(setp\.eq\.u32 (%Truns, %Tstopped, %Tepoch;))", "setp.ge.u32 $1"},
    {"gate_raises_nothing", "gate_entry", R"(atom\.global\.max\.u64 (%Tlook, \[%Trecord\]), %Traised;)",
     "atom.global.max.u64 $1, %Tlook;"},
    {"gate_raises_too_little", "gate_entry", R"(add\.u32 (%Treach, %Tnumber), %Tchunk;)", "add.u32 $1, 0;"},
    {"gate_raises_what_is_stopped", "gate_entry", R"(mov\.b64 %Traised, \{%Treach, %Tepoch\};)",
     "mov.b64 %Traised, {%Treach, %Tstopped};"},
    {"gate_overwrites_the_watermark", "gate_entry", R"(red\.global\.max\.u64 )", "st.global.u64 "},
    {"gate_lets_the_first_lane_only_know", "gate_entry", R"(shfl\.sync\.idx\.b32 %Tstopped, .*;)", ""},
    {"gate_ends_lanes", "gate_entry", R"(\$Tleave:)", "$& @!%Tis_first bra $$Tbody;"},
    {"gate_does_not_ask_whether_it_is_there", "gate_entry", R"(@%Tis_simple bra \$Tbody;)", ""},
    // yield_check
    {"yield_loses_the_block_it_took", "yield_check", R"((mov\.u32 (%Tindex), -1;\s+bra \$Tpublish;))",
     "atom.global.add.u32 $2, [%Tcontrol], 1; $1"},
    {"yield_is_not_noticed", "yield_check", R"(ld\.volatile\.global\.u32 (%Tflag_value), \[%Tflag\];)",
     "mov.u32 $1, 0;"},
    {"yield_is_the_other_way_round", "yield_check", R"(setp\.eq\.u32 (%Tis_clear, %Tflag_value, 0;))",
     "setp.ne.u32 $1"},
    {"yield_does_not_ask_whether_there_is_a_flag", "yield_check",
     R"((setp\.eq\.u64 %Tis_clear, %Tflag, 0;\s+)@%Tis_clear bra \$Tunasked;)", "$1"},
    {"yield_starts_again_from_the_start", "yield_check", R"((mov\.u32 %Tindex, -1;\s+bra \$Tpublish;))",
     "st.global.u32 [%Tcontrol], 0; $1"},
};

std::string Replaced(const std::string& text, const std::string& prefix, const Mutant& mutant) {
  // Letters T that stand for the prefix are followed by a lower-case one; no other capital T is in the expressions.
  const auto with_prefix = [&](const char* pattern) {
    return std::regex_replace(std::string(pattern), std::regex("T(?=[a-z])"), prefix);
  };
  const std::regex place(with_prefix(mutant.place));
  const std::string instead = with_prefix(mutant.instead);
  if (mutant.which == Which::kAll) return std::regex_replace(text, place, instead);
  std::sregex_iterator at(text.begin(), text.end(), place);
  std::sregex_iterator end;
  if (at == end) return text;
  std::smatch match = *at;
  if (mutant.which == Which::kLast)
    for (; at != end; ++at) match = *at;
  return text.substr(0, static_cast<size_t>(match.position())) + match.format(instead) +
         text.substr(static_cast<size_t>(match.position() + match.length()));
}

class Mutants : public testing::TestWithParam<Mutant> {};

TEST_P(Mutants, IsFound) {
  constexpr uint64_t kMaxTried = 400;
  constexpr uint64_t kMaxSeeds = 4000;
  const Mutant& mutant = GetParam();
  Differential differential;
  uint64_t damaged = 0;
  differential.set_damage([&](const std::string& pipeline, std::string text) -> std::optional<std::string> {
    // unify_barriers runs before persistent_blocks and is looked at there too.
    bool concerns = pipeline.find(mutant.pass) != std::string::npos;
    if (std::string_view(mutant.pass) == "unify_barriers") concerns |= pipeline.starts_with("persistent");
    if (!concerns) return std::nullopt;
    static const std::regex kPrefix(
        "%(tally\\d*_)(?:any_inside|first_x|first_y|first_z|nctaid_x|control|ctaid_[xyz]|nctaid_[yz]|address_0|lanes|"
        "record)");
    std::smatch prefix;
    if (!std::regex_search(text, prefix, kPrefix)) return std::nullopt;
    std::string changed = Replaced(text, prefix[1].str(), mutant);
    if (changed == text) return std::nullopt;
    ++damaged;
    return changed;
  });
  for (uint64_t seed = 1; seed < kMaxSeeds && damaged < kMaxTried; ++seed) {
    auto failure = differential.Check(GenerateModule(seed));
    if (!failure) continue;
    EXPECT_EQ(failure->what.find("original"), std::string::npos) << failure->what;
    EXPECT_EQ(failure->what.find("INVALID_ARGUMENT"), std::string::npos) << "no PTX: " << failure->what;
    RecordProperty("modules", static_cast<int>(damaged));
    std::printf("    found in damaged module %d: %.200s\n", static_cast<int>(damaged), failure->what.c_str());
    return;
  }
  FAIL() << mutant.name << " was not found in " << damaged << " damaged modules";
}

INSTANTIATE_TEST_SUITE_P(Passes, Mutants, testing::ValuesIn(kMutants),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace tally::differential
