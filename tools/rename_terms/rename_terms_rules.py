# Rules of rename_terms.py (executed there).
ANY = everywhere_but()
DOCS = lambda path: path.endswith(".md")
WINDOW = ("bench/window/", "tests/bench/window/", "scheduler/window/", "tests/scheduler/window/", "bench/scheduler-window/")

# ---------------------------------------------------------------- GPU channels, before lanes become channels
GPU_CHANNELS = under("docs/decisions/008", "docs/driver-waits.md", "docs/scheduling.md", "docs/mistakes.md",
                     "docs/limits.md", "scheduler/policies/look_ahead_policy.h", "server/executor/issue/gated_queues",
                     "tests/server/executor/issue/gated_queues", "server/executor/process/", "docs/metrics.md",
                     "tests/server/executor/process/", "server/daemon/metrics/metrics_list.cc",
                     "proto/control/executor_link_abi.h", "tests/integration/executor_pool_test.py",
                     "bench/server/time_slices_preload.cc")
phrases(GPU_CHANNELS, ("the GPU's channels", "GPU channels"), ("channels off the GPU's list", "GPU channels off the run list"),
        ("channels off the list", "GPU channels off the run list"), ("Streams that wait hold channels", "Streams that wait hold GPU channels"))

# ---------------------------------------------------------------- phrases: sequence numbers and the sequencer
SESSIONS = under("server/executor/", "tests/server/executor/", "proto/shm/", "client-shim/", "tests/client-shim/", "docs/",
                 "bench/server/", "tests/mutants/", "tests/integration/", "README.md")
phrases(SESSIONS,
        ("carries requests out in ticket order across the session's lanes. A request that waits gives up its turn first, so one thread's synchronise does not hold another's launch.",
         "carries requests out in the order of these numbers across the session's channels. One request at a time holds the session's *sequencer*. A request that waits releases it first, so one thread's synchronise does not hold another's launch."),
        ("Every request carries a ticket from a counter shared by the session's threads;",
         "Every request carries a *sequence number* from a counter shared by the session's threads;"),
        ("**The ticket.** Just before it publishes the record it takes the next ticket of the session.",
         "**The sequence number.** Just before it publishes the record it takes the session's next sequence number."),
        ("**The turn.** It waits until all lower tickets have been carried out;",
         "**The sequencer.** It waits until all lower sequence numbers have been carried out;"),
        ("Whoever holds the turn has the session's tables to itself", "Whoever holds the sequencer has the session's tables to itself"),
        ("The turn passes on.", "The sequencer is released."),
        ("**Order is the ticket's**, over all lanes of a session. A request that only waits gives its turn up first. A wait for callbacks needs no turn at all: its acknowledgement may be what the holder of the turn is waiting for.",
         "**Order is the sequence number's**, over all channels of a session. A request that only waits releases the sequencer first. A wait for callbacks never holds it: its acknowledgement may be what the holder of the sequencer is waiting for."),
        ("**Turns.** A session carries its calls out in order, one at a time. Calls that wait for the device give their turn up first",
         "**The sequencer.** A session carries its calls out in order, one at a time: whoever does so holds its sequencer. Calls that wait for the device release it first"),
        ("Different programs never wait for one another's turns.", "Different programs never wait for one another's sequencers."),
        ("turn order, meters", "the sequencer, meters"),
        ("`turn_order` runs records of all lanes in ticket order.", "`sequencer` runs records of all channels in the order of their sequence numbers."),
        ("What a session owns is guarded by its *turn*", "What a session owns is guarded by its *sequencer*"),
        ("the server carries out requests of all lanes in ticket order. A request that only waits (synchronise) gives its turn up before it waits.",
         "the server carries out requests of all channels in the order of these numbers. A request that only waits (synchronise) releases the session's sequencer before it waits."),
        ("Every request takes a ticket from the session region", "Every request takes a sequence number from the session region"),
        ("*ticket* = place of a request in the order of the whole session", "*sequence number* = place of a request in the order of the whole session"),
        ("The holder of a turn has the session to itself: everything that SessionState says is \"guarded by the turn\" needs no other lock. That holds against hostile clients too: of two requests with the same ticket only one gets the turn.",
         "The holder of the sequencer has the session to itself: everything that SessionState says is \"guarded by the sequencer\" needs no other lock. That holds against hostile clients too: of two requests with the same sequence number only one gets to hold it."),
        ("Waits until all lower tickets have passed, then holds the turn of `ticket` until Pass.",
         "Waits until all lower sequence numbers have passed, then holds the sequencer for `sequence_number` until Pass."),
        ("Declares that `ticket` needs no turn: it is passed over when its time comes.",
         "Declares that `sequence_number` need not hold the sequencer: it is passed over when its time comes."),
        ("twice the next ticket, plus 1 while it is held", "twice the next number, plus 1 while its request holds the sequencer"),
        ("the ticket was used before: the client lies", "the number was used before: the client lies"),
        ("Lets the next ticket go ahead.", "Lets the next number go ahead."),
        ("Looking first leaves the cache line with whoever has the turn.", "Looking first leaves the cache line with whoever holds the sequencer."),
        ("What the order of turns answered; false ends the lane.", "What the sequencer answered; false ends the channel."),
        ("The acknowledgement needs no turn: a lane that holds the turn may be waiting for just this.",
         "The acknowledgement does not hold the sequencer: a channel that does may be waiting for just this."),
        ("The lane has the turn of `ticket`: a new request begins.", "The channel holds the sequencer for `sequence_number`: a new request begins."),
        ("called by lane threads that hold their session's turn", "called by channels' threads that hold their session's sequencer"),
        ("A lane that waits has given its turn up", "A channel that waits has released the sequencer"),
        ("while it still has the turn", "while it still holds the sequencer"),
        ("a lane waits for without having the turn", "a channel waits for without holding the sequencer"),
        ("without having the turn", "without holding the sequencer"),
        ("after giving its turn up", "after releasing the sequencer"),
        ("gives the turn up", "releases the sequencer"), ("give the turn up", "release the sequencer"),
        ("gives its turn up", "releases the sequencer"), ("give its turn up", "release the sequencer"),
        ("gives up its turn", "releases the sequencer"), ("giving the turn up", "releasing the sequencer"),
        ("given the turn up", "released the sequencer"), ("given its turn up", "released the sequencer"),
        ("gave its turn up", "released the sequencer"), ("gave the turn up", "released the sequencer"),
        ("give their turn up", "release the sequencer"), ("give up the turn", "release the sequencer"), ("give up its turn", "release the sequencer"),
        ("has the turn", "holds the sequencer"), ("have the turn", "hold the sequencer"), ("had the turn", "held the sequencer"),
        ("holds its turn", "holds the sequencer"),
        ("With the turn.", "With the sequencer held."),
        ("With the turn held", "With the sequencer held"),
        ("with the session's turn held", "with the session's sequencer held"),
        ("on its turn", "when it holds the sequencer"),
        ("waits for the turn", "waits for the sequencer"), ("wait for the turn", "wait for the sequencer"),
        ("lanes (with their session's turn)", "channels (holding their session's sequencer)"),
        ("out of ticket order", "out of order"),
        ("in ticket order", "in the order of sequence numbers"),
        ("TheyWaitWithTheirSessionsTurnAndComeInOrder", "TheyWaitHoldingTheirSessionsSequencerAndComeInOrder"),
        ("LanesAreServedInTicketOrder", "ChannelsAreServedInTheOrderOfSequenceNumbers"),
        ("ATicketIsGivenOnce", "ASequenceNumberIsGivenOnce"),
        ("SkippedTicketsArePassedOver", "SkippedSequenceNumbersArePassedOver"),
        ("ThreadsTakeTicketsInTheOrderOfTheirCallsAndShareEndedLanes", "ThreadsTakeSequenceNumbersInTheOrderOfTheirCallsAndShareEndedChannels"))
TURN = under("server/executor/", "proto/shm/", "tests/server/executor/session/", "docs/")
phrases(TURN, ("guarded by its turn", "guarded by its sequencer"), ("that it is for, its turn, and", "that it is for, the sequencer, and"),
        ("holds its turn", "holds its sequencer"), ("with its turn", "with its sequencer held"), ("without its turn", "without its sequencer"))
patterns(ANY, (r"\bWindow::Admission\b", "Window::Entry"))
patterns(TURN,
         (r"(?i)\b(holder of the session's|guarded by the session's|with(?:out)? (?:the|their|its) session's|the session's|session's|holder of the|guarded by the|with the|without the|holds the|hold the) turn\b(?! to)(?!s)", r"\1 sequencer"),
         (r"turn\)\.(?=\n)", "sequencer)."))

phrases(under("docs/shm-abi.md"), ("lane region      header |", "channel region   header |"))
phrases(SESSIONS, ("session socket, lanes, ticket order", "session socket, channels, the order of sequence numbers"),
        ("lanes, ticket order, handles", "channels, the sequencer, handles"))
patterns(under("proto/shm/channel_abi.h"), (r"\| LaneHeader, 4096 bytes        \|", "| ChannelHeader, 4096 bytes     |"))

# ---------------------------------------------------------------- phrases: admission
ADMISSION = under("server/executor/", "tests/server/executor/", "docs/", "scheduler/", "tests/scheduler/", "proto/control/",
                  "tests/mutants/", "bench/scheduler-sim/",
                  but=("scheduler/gate_choice", "server/executor/issue/", "tests/server/executor/issue/", "docs/cubin-gate.md",
                       "docs/decisions/007"))
phrases(ADMISSION,
        ("One launch, or one piece of a copy or fill, on its way through the dispatch gate: before in the constructor, after in the destructor.",
         "One launch, or one piece of a copy or fill, on its way through admission: before in the constructor, after in the destructor."),
        ("One gate (`server/executor/dispatch/policy_dispatch.h`), and a queue for each device",
         "One admission (`server/executor/dispatch/policy_dispatch.h`), and a queue for each device"),
        ("**The gate.** A best-effort executor may have to wait here", "**Admission.** A best-effort executor may have to wait here"),
        ("**The dispatch gate.** Best-effort launches on a device", "**Admission.** Best-effort launches on a device"),
        ("Devices have gates of their own.", "Each device is for itself."),
        ("**Gate**: closed while there is high-priority work, here or in another executor. It stays closed for a hold-off after that,",
         "**Admission** of best-effort launches is closed while there is high-priority work, here or in another executor. It stays closed for a hold-off after that,"),
        ("They go on first when the gate opens.", "They go on first when admission opens."),
        ("pass without lock or event while the gate is open", "pass without lock or event while admission is open"),
        ("the gate before launches, copies and fills, policies and queues, the activity page",
         "admission of launches, copies and fills, policies and queues, the activity page"),
        ("Who goes when, per device: the gate that launches, copies and fills pass before they are put on a stream",
         "Who goes when, per device: admission, which launches, copies and fills pass before they are put on a stream"),
        ("tenant of the gate", "tenant of admission"),
        ("the gate with a policy of `scheduler/policy_list.h`", "admission by a policy of `scheduler/policy_list.h`"),
        ("passes the gate of [`dispatch/`]", "passes the admission of [`dispatch/`]"),
        ("`priority_gate.h`", "`hold_off_rule.h`"),
        ("the gate that keeps best-effort work back while high-priority work runs", "the rule that keeps best-effort work back while high-priority work runs"),
        ("policies, priority gate, look-ahead", "policies, hold-off, look-ahead"), ("(policies, priority gate)", "(policies, hold-off)"),
        ("| the gate before dispatch (`server/executor/dispatch`)", "| admission (`server/executor/dispatch`)"),
        ("| dispatch gate, printf capture      |", "| admission, printf capture          |"),
        ("bounded wait, closed gate, levels, at once", "bounded wait, hold-off, levels, at once"),
        ("had to wait at the dispatch gate", "had to wait for admission"),
        ("that had to wait at the dispatch gate", "that had to wait for admission"),
        ("PriorityGate: when a best-effort executor may dispatch, given what the high-priority class does.",
         "HoldOffRule: when a best-effort executor may dispatch, given what the high-priority class does."),
        ("So the gate stays closed for a *hold-off* after the last high-priority work ended.",
         "So best-effort work stays back for a *hold-off* after the last high-priority work ended."),
        ("the usual gap must not open the gate", "the usual gap must not let anything go"),
        ("the gate closed", "admission closed"),
        ("On its way through the dispatch gate", "On its way through admission"),
        ("how the dispatch gate knows it", "how admission knows it"),
        ("the gate's own", "admission's own"), ("zero: the gate's.", "zero: the one of all."),
        ("Past the gate.", "Past admission."),
        ("One session as the gate knows it.", "One session as admission knows it."),
        ("Whether copies and fills of best-effort sessions are to pass it", "Whether copies and fills of best-effort sessions are to pass it"),
        ("Tells the gate when that changed.", "Tells the rule when that changed."),
        ("as the gate was last told", "as the rule was last told"),
        ("given when the gate opened", "given when admission opened"),
        ("closed gate", "hold-off"))
patterns(under("scheduler/priority_gate.h"), (r"//      gate open                       \|<-hold-off->#####\|",
                                              r"//      may dispatch                    |<-hold-off->#####|"))
patterns(under("scheduler/policies/look_ahead_policy.h"), (r"//   gate              closed while", r"//   admission         closed while"))
patterns(under("server/", "tests/", "docs/", "scheduler/", "proto/", "bench/", "client-shim/"),
         (r"\b[Tt]he dispatch gate's\b", "admission's"), (r"(?<=// )The dispatch gate\b", "Admission"), (r"\bThe dispatch gate\b", "Admission"),
         (r"\bthe dispatch gate\b", "admission"), (r"\bdispatch gate\b", "admission"))
ADMISSION_ONLY = under("server/executor/dispatch/", "scheduler/", "tests/server/executor/dispatch/", "tests/scheduler/",
                       but=("scheduler/gate_choice", "tests/scheduler/gate_choice", "scheduler/variant_choice",
                            "tests/scheduler/variant_choice", "scheduler/policy_choice", "tests/scheduler/policy_choice"))
patterns(ADMISSION_ONLY, (r"\b[Tt]he gate's\b", "admission's"), (r"(?<=// )The gate\b", "Admission"), (r"\bThe gate\b", "Admission"),
         (r"\bthe gate\b", "admission"), (r"(?<=\*\*)Gate(?=\*\*)", "Admission"))
phrases(under("server/executor/issue/", "tests/server/executor/issue/"),
        ("the gate is passed", "admission is passed"), ("how they pass the gate", "how they pass admission"),
        ("which has yielded because the gate is closed", "which has yielded because admission is closed"),
        ("passes the gate by itself", "passes admission by itself"))
DEFERRED = under("docs/deferred-launches.md")
patterns(DEFERRED, (r"PendingLaunch        at the gate            in a queue of ours", "PendingLaunch        in admission           in a queue of ours"),
         (r"the (?:lane|channel) has its session's (?:turn|sequencer)    still the same turn    the turn has passed on", "its channel holds the sequencer    still holds it         the sequencer is released"))
phrases(DEFERRED, ("**At the gate**", "**In admission**"), ("holds nothing at the gate: its acknowledgement needs no turn", "holds nothing in admission: its acknowledgement does not hold the sequencer"),
        ("whoever waits at the gate has the turn", "whoever waits for admission holds the sequencer"), ("once the gate has let it go", "once admission has let it go"),
        ("before the gate", "before admission"), ("because the gate asks", "because admission asks"), ("at the gate", "in admission"),
        ("under the turn", "under the sequencer"), ("one turn per session", "one sequencer per session"), ("has a higher ticket", "has a higher sequence number"),
        ("ticket order", "the order of sequence numbers"))
phrases(under("server/executor/", "docs/"), ("keeps its session's turn", "holds its session's sequencer"), ("keeps the turn", "holds the sequencer"), ("keeps its turn", "holds the sequencer"))
phrases(under("tests/server/executor/session/"), ("requests that have had their turn", "requests that have been carried out"))
phrases(ANY, ("AHeldClientThatLeavesIsReleasedWhileTheGateIsClosed", "AHeldClientThatLeavesIsReleasedWhileAdmissionIsClosed"))
phrases(under("server/executor/session/"), ("Once the gate has let something go", "Once admission has let something go"),
        ("the gate of the executor", "the executor's admission"), ("passes the gate by itself", "passes admission by itself"))

# ---------------------------------------------------------------- phrases: persistent blocks
PERSISTENT = under("server/executor/issue/", "server/executor/session/", "server/executor/dispatch/", "proto/", "scheduler/",
                   "ptx-transforms/", "tests/ptx-transforms/", "tests/sim-driver/differential/", "tests/server/executor/",
                   "tests/scheduler/", "docs/", "bench/preemption/", "bench/ptx-transforms/", "server/daemon/", "server/ctl/",
                   "server/executor/README.md", "server/executor/CMakeLists.txt", "server/executor/process/command_line.cc",
                   "tests/integration/variants_test.py", "tests/mutants/", "tools/launch_census", "tests/tools/launch_census",
                   "tests/bench/preemption/", "cubin-transforms/", "tests/server/daemon/", "tests/server/ctl/", "bench/server/")
phrases(PERSISTENT,
        ("a number of persistent worker blocks", "a number of persistent blocks"), ("persistent worker blocks", "persistent blocks"),
        ("persistent-worker launches", "persistent launches"), ("persistent workers", "persistent blocks"),
        ("worker blocks", "persistent blocks"), ("worker variants", "persistent variants"), ("worker runs", "persistent runs"),
        ("worker counts", "numbers of persistent blocks"),
        ("the workers' kernel", "the persistent kernel"), ("other workers' blocks", "other persistent blocks' work"),
        ("With a worker for every block there is no block boundary", "With a persistent block for every block there is no block boundary"),
        ("Workers of one thread that obey", "Persistent blocks of one thread that obey"),
        ("number of worker blocks", "number of persistent blocks"),
        ("| workers | a fixed number of blocks", "| persistent blocks (`workers`) | a fixed number of blocks"))
patterns(under("server/executor/issue/worker_runs.h"),
         (r"//   stream      \| workers run \.+ \| wait until", r"//   stream      | persistent blocks run | wait until"),
         (r"//                       \^ flag: they stop", r"//                       ^ flag: they stop"),
         (r"//   resume      \|                             workers run again",
          r"//   resume      |                             they run again"))
patterns(under("tests/sim-driver/differential/README.md"), (r"random orders, slices, worker counts", "random orders, slices, numbers of persistent blocks"))
phrases(ANY, ("tally_workers", "tally_persistent"))
patterns(ANY, (r"__tally_workers\b", "__tally_persistent"), (r"\bkernel__workers\b", "kernel__persistent"),
         (r'Symbol\("workers"\)', 'Symbol("persistent")'), (r'AddHiddenParameter\(variant, "workers"', 'AddHiddenParameter(variant, "persistent"'),
         (r'"worker-runs"', '"persistent-runs"'))

patterns(under("server/executor/issue/README.md"),
         (r"original \| slices \| workers \| gated \(session/launch_forms, launch_runs\)\n                  \^                                                \|\n                  \| durations, turnarounds                         v\n               LaunchTimer, WorkerRuns  <-------------------- the stream",
          "original | slices | persistent blocks | gated\n                  ^                                            |   (session/launch_forms, launch_runs)\n                  | durations, turnarounds                     v\n               LaunchTimer, PersistentRuns  <------------- the stream"))

# ---------------------------------------------------------------- phrases: busy periods, descheduling
phrases(under("bench/colocation/", "tests/bench/"), ("did not suspend its contexts", "did not deschedule its contexts"),
        ("contexts are to be suspended", "contexts are to be descheduled"))
phrases(ANY,
        ("all stretches together in which nothing was stopped", "all periods together in which nothing was stopped"),
        ("High-priority work comes in *stretches*", "High-priority work comes in *busy periods*"),
        ("The first kernel of a stretch of high-priority work waits", "The first kernel of a busy period of high-priority work waits"),
        ("kBusyPeriod", "kLookPeriod"), ("kLongBusyPeriod", "kLongLookPeriod"),
        ("who suspends best-effort", "who deschedules best-effort"))
patterns(ANY,
         (r"//      suspended           \|-+hold-off--\|", "//      descheduled         |--------------------------hold-off--|"),
         (r"//   suspending   at once if most of the last stretches were long; else once this one is",
          "//   descheduling at once if most of the last busy periods were long; else once this one is"),
         (r"//   suspension        where it is expected nobody", "//   descheduling      where it is expected nobody"))
phrases(under("docs/limits.md", "README.md", "docs/"),
        ("**Suspending takes about a millisecond.**", "**Descheduling takes about a millisecond.**"))

patterns(under("server/executor/process/switch_test.cc"), (r"microseconds suspending\{0\}", "microseconds taking_off{0}"),
         (r"found\.suspending", "found.taking_off"), (r"suspension\.suspending", "suspension.taking_off"))
patterns(under("server/daemon/metrics/metrics_list.cc"), (r'"suspensions", "domain, pid"', '"deschedulings", "domain, pid"'))

# ---------------------------------------------------------------- phrases: preemptibility
phrases(ANY, ("shown as `graph` in the coverage", "shown as `graph` by `tallyctl coverage`"),
        ("the names of how GPU time was covered", "the names of how GPU time is preemptible"),
        ("Figures by coverage", "Figures by preemptibility"),
        ("or counted by coverage", "or counted by preemptibility"), ("or by coverage", "or by preemptibility"))

# ---------------------------------------------------------------- phrases: polling
POLL = everywhere_but("sim-driver/", "tests/sim-driver/", "docs/driver-waits.md")
phrases(POLL,
        ("while the executor is awake and the ring has room", "while the executor polls and the ring has room"),
        ("while the executor is awake", "while the executor polls"),
        ("after 1 us if it is awake", "after 1 us if it polls"),
        ("so that nobody need be awake", "so that nobody need poll"),
        ("That is no gain while that thread is awake", "That is no gain while that thread polls"),
        ("its thread stays awake", "its thread polls"), ("thread stays awake", "thread polls"),
        ("the threads stay awake between the pieces", "the threads keep polling between the pieces"),
        ("The thread that raises it is awake from the launch of workers on", "The thread that raises it polls from the launch of persistent blocks on"),
        ("keeps a core awake", "keeps a core polling"), ("keeps its lane awake", "keeps its channel polling"),
        ("Awake it is while a high-priority program exists", "It polls while a high-priority program exists"),
        ("Between two looks of a thread that stays awake", "Between two looks of a thread that polls"),
        ("and with one that stays awake", "and with one that polls"),
        ("Looks for high-priority work without falling asleep, where that is worth it", "Polls for high-priority work instead of falling asleep, where that is worth it"),
        ("stays awake", "keeps polling"), ("stay awake", "keep polling"), ("is awake", "polls"), ("are awake", "poll"))
patterns(POLL, (r"\bAwakeWatch\b", "PollingWatch"), (r"\bawake_watch\b", "polling_watch"), (r"\bPauseAwake\b", "PauseBetweenPolls"),
         (r"\bkLongestAwake\b", "kLongestPolling"), (r"\bkLookAwake\b", "kLookWhilePolling"), (r"\bMayStayAwake\b", "MayPoll"),
         (r"\bkRoundsAwakeForShort\b", "kPollingRoundsForShort"), (r"\bkRoundsAwake\b", "kPollingRounds"),
         (r"\brounds_awake\b", "polling_rounds"), (r"\bis_awake\b", "is_polling"),
         (r'"Awake" : "Asleep"', '"Polling" : "Sleeping"'))

# ---------------------------------------------------------------- phrases: throttle level
phrases(ANY,
        ("asks for more caution than before, or less", "asks for a higher throttle level than before, or a lower one"),
        ("whenever another caution is asked for", "whenever another throttle level is asked for"),
        ("more caution", "a higher throttle level"), ("less caution", "a lower throttle level"), ("all caution", "the highest throttle level"),
        ("of no caution at all", "at throttle level 0"), ("how careful SLO feedback is", "how careful SLO feedback is"),
        ("test_what_cannot_be_met_asks_for_all_caution_and_takes_it_along", "test_what_cannot_be_met_asks_for_the_highest_throttle_level_and_takes_it_along"),
        ("`caution`: the most careful of the programs with an objective", "`throttle_level`: the most careful of the programs with an objective"),
        ("CautionShortensWhatBestEffortWorkMayDo", "ThrottlingShortensWhatBestEffortWorkMayDo"),
        ("shows objective, last window and caution;", "shows objective, last window and throttle level (as `caution`);"),
        ("with what its last requests took and the caution that it asks for", "with what its last requests took and, as `caution`, the throttle level that it asks for"))

# ---------------------------------------------------------------- what stays: public names, other meanings
PROTECTED = [
    (ANY, r"\]\((?:https?:)[^)\s]*\)"),
    (ANY, r"channels_last|NumChannels|num_channels\b|numChannels|ChannelFormat\w*|CreateChannel\w*|cudaChannel\w*|create_channel|InsecureChannel\w*|channel_groups\.md"),
    (ANY, r"(?:--)?(?:no-)?suspend[-_]best[-_]effort|tally_executor_suspensions?(?:_total)?|\"--suspend\"|b\"--suspend\"|--suspend\b"),
    (ANY, r"\"(?:num_)?suspensions?\"|\bSUSPENDED\b|`SUSPENDED`|by=\"suspension\"|\+suspended|`suspension`|    suspension  +ok|h200-suspended|-suspension\.md"),
    (under("proto/control/control.proto"), r"\b(?:num_)?suspensions? = \d+|\bcoverage = \d+|\bslo_caution = \d+|FORM_WORKERS|worker_launches"),
    (under("server/ctl/", "server/daemon/rpc/", "tests/server/ctl/", "tests/server/daemon/"),
     r"\b(?:set_|add_|mutable_)?(?:num_)?(?:suspensions?|coverage)\("),
    (under("server/ctl/", "server/daemon/rpc/", "tests/server/ctl/", "tests/server/daemon/", "tests/bench/", "tests/integration/"),
     r"\bpart\[\"coverage\"\]"),
    (under("bench/colocation/", "tests/bench/"), r"(?<!contexts are )(?<!contexts )\bsuspend(?:s|ed)?\b(?! their)|_suspended|\bsuspension\b|num_suspensions"),
    (ANY, r"\"coverage\"|`coverage`|tallyctl coverage|TALLY_SANITIZER[^\n]*coverage|-fsanitize-coverage|[Ee]dge coverage|\| coverage \||'coverage'"),
    (ANY, r"tally_tenant_covered\w*|CoveredTime\b"),
    (ANY, r"tally_slo_caution|slo_caution|, caution \{:\.2f\}|caution 1\\\.00|as `caution`"),
    (ANY, r"\"workers\"|`workers`|\"workers(?=[:(])|\|workers\||slices, workers, gate|slices, workers or gated|gated, workers, slices|worker_launches|FORM_WORKERS|\"WORKERS\"|form=workers|\| workers \|(?= gated)|workers\[:PER_MULTIPROCESSOR\]"),
    (under("docs/preemption.md", "docs/metrics.md", "docs/tallyd.md", "docs/tallyctl.md"), r"# none \(default\), slices, workers, gate, all"),
    (ANY, r"TALLY_SIM_WORKERS|max_workers|worker_pool|WorkerPool|model_worker|persistent_workers=|DataLoader workers"),
    (under("tests/sim-driver/", "tests/frameworks/", "bench/sim-driver/"), r"\bnum_workers\b"),
    (under("tests/sim-driver/differential/", "docs/"), r"engine with one worker|One worker,|one worker\b"),
    (under("tests/server/executor/dispatch/"), r"std::thread worker\b|\bworker\.join"),
    (under("tests/bench/preemption/", "bench/preemption/"), r"\bworkers:\d|workers\(\d+\)|\| workers \||slices,workers|\"workers\"|`workers`"),
    (under("docs/"), r"workers\(\d+\)"),
    (under("server/executor/"), r"original \| slices\[:DEGREE\] \| workers|original, slices\[:DEGREE\], workers"),
    (ANY, r"server/executor/channel/?"),
]

# ---------------------------------------------------------------- words
def word(where, kind, pattern, new):
    WORDS.append((where, kind, re.compile(pattern), new))


WORDS = []
WARP = under(*KERNEL_ROOMS, *WINDOW, "tests/programs/", "tests/frameworks/", "tests/gpu/", "bench/preemption/", "docs/ptx-opt.md",
             "proto/driver/driver_api.tsv", "proto/driver/getproc_map.tsv", "tests/mutants/scheduler.txt", "docs/driver-api-support.md")
LANES = lambda path: not WARP(path)

word(GPU_CHANNELS, "prose", r"(?<!GPU )(?<![\w./-])[cC]hannels(?!\w|/|\.[a-z])", "GPU channels")
word(GPU_CHANNELS, "prose", r"(?<!GPU )(?<![\w./-])[cC]hannel groups(?!\w|/|\.[a-z])", "GPU channel groups")
word(GPU_CHANNELS, "prose", r"(?<!GPU )(?<![\w./-])[cC]hannel group(?!\w|/|\.[a-z])", "GPU channel group")
word(GPU_CHANNELS, "prose", r"(?<!GPU )(?<![\w./-])channel(?!\w|/|\.[a-z])", "GPU channel")
word(ANY, "both", r"(?<!Gpu)ChannelGroups(?=Test|\b)", "GpuChannelGroups")
word(ANY, "both", r"(?<!gpu_)\bchannel_groups(?=_test\b|\b)", "gpu_channel_groups")
word(LANES, "both", r"(?<![A-Za-z])lane(s?)(?![a-z])", r"channel\1")
word(LANES, "both", r"Lane(s?)(?![a-z])", r"Channel\1")
word(under(*WINDOW, "tests/mutants/scheduler.txt"), "both", r"(?<![A-Za-z])lane(s?)(?![a-z])", r"track\1")
word(under(*WINDOW, "tests/mutants/scheduler.txt"), "both", r"Lane(s?)(?![a-z])", r"Track\1")
word(under(*WINDOW), "code", r"\bAdmission\b", "Entry")
word(under(*WINDOW), "code", r"\badmission\b", "entry")

# sequence numbers and the sequencer
TICKETS = everywhere_but(*KERNEL_ROOMS, "tests/programs/")
word(TICKETS, "prose", r"(?<![\w-])ticket(s?)(?![\w])", r"sequence number\1")
word(TICKETS, "prose", r"(?<![\w-])Ticket(s?)(?![\w])", r"Sequence number\1")
word(under("tests/mutants/"), "both", r"(?<=[\[\w-])ticket(s?)(?=[\]-])", r"sequence-number\1")
word(TICKETS, "both", r"(?<![A-Za-z])(?<![a-z]-)ticket(s?)(?![a-z])(?!-[a-z])", r"sequence_number\1")
word(TICKETS, "both", r"Ticket(s?)(?![a-z])", r"SequenceNumber\1")
word(ANY, "both", r"TurnOrder", "Sequencer")
word(ANY, "both", r"turn_order", "sequencer")
word(ANY, "both", r"\bGiveUpTurn\b", "ReleaseSequencer")
word(ANY, "both", r"\bHoldTurn\b", "HoldSequencer")
word(ANY, "both", r"\bhas_turn(_?)\b", r"holds_sequencer\1")
word(under("server/executor/", "tests/server/executor/"), "code", r"\bturns(_?)\b", r"sequencer\1")

# admission
word(ANY, "both", r"DispatchGate", "Admission")
word(ANY, "code", r"(?<![/\w])dispatch_gate\b(?!\.)", "its_admission")
word(ANY, "both", r"dispatch_gate", "admission")
word(ANY, "both", r"GateTenant", "AdmissionTenant")
word(ANY, "both", r"gate_tenant", "admission_tenant")
word(under("server/", "tests/server/"), "code", r"(?<=Admission& )gate(_?)\b|(?<=Admission> )gate(_?)\b|(?<=Admission\* )gate(_?)\b|(?<=Admission\* const )gate(_?)\b",
     lambda m: "admission" + "".join(g or "" for g in m.groups()))
word(under("server/executor/", "tests/server/executor/"), "code", r"(?<=\bowner\.)gate\b|(?<=\bowner->)gate\b|(?<=\bowner_\.)gate\b|(?<=\bparts\.)gate\b|(?<=\bparts_\.)gate\b|\bgate(?=\(std::move\(parts)", "admission")
word(ANY, "both", r"GatedDispatch", "AdmittedDispatch")
word(ANY, "both", r"gated_dispatch", "admitted_dispatch")
word(ANY, "both", r"GatedCopies", "AdmittedCopies")
word(ANY, "both", r"gated_copies", "admitted_copies")
word(ANY, "both", r"PriorityGate", "HoldOffRule")
word(ANY, "both", r"priority_gate", "hold_off_rule")
word(ANY, "both", r"kClosedGate", "kHoldOff")
word(ANY, "both", r"gate_is_open_at", "may_go_at")
word(ANY, "both", r"\bCreateGate\b", "CreateAdmission")
word(ANY, "both", r"NewExecutorsGate", "NewAdmission")
word(lambda path: os.path.basename(path).startswith(("gated_dispatch", "gated_copies")), "code", r"\bgate_\b", "admission_")
word(under("server/executor/", "tests/server/executor/"), "code",
     r"\bgate(_?)\b(?=->(?:BeforeDispatch|AfterDispatch|AddTenant|holds_copies|ExpectSuspension|ExpectDescheduling|LeaveToTimeSlices|Tune|Open|watch|Submit)\b)", r"admission\1")
HOLD_OFF = under("scheduler/", "tests/scheduler/", but=("scheduler/gate_choice", "tests/scheduler/gate_choice", "scheduler/variant_choice",
                                                      "tests/scheduler/variant_choice", "scheduler/policy_choice", "tests/scheduler/policy_choice"))
word(under("server/executor/dispatch/high_priority_announcer"), "code", r"\bgate\b", "hold_off_rule")
word(HOLD_OFF, "code", r"\bgate_\b", "hold_off_rule_")
word(under("tests/scheduler/priority_gate_test"), "code", r"\bgate\b", "rule")
word(under("server/executor/dispatch/", "tests/server/executor/dispatch/"), "both", r"(?<![A-Za-z])gate(?![a-z])", "admission")
word(under("server/executor/dispatch/", "tests/server/executor/dispatch/"), "both", r"Gate(?![a-z])", "Admission")
word(under("server/executor/", but=("server/executor/issue/", "server/executor/session/", "server/executor/dispatch/", "server/executor/process/",
                                     "server/executor/driver/", "server/executor/channel/")), "code", r"(?<![\w-])gate(?=\b)(?!\")", "admission")
word(under("server/executor/", "tests/server/executor/"), "code", r"(?<=core\.)gate\b|(?<=core_\.)gate\b|(?<=core->)gate\b|(?<=core\(\)\.)gate\b", "admission")
word(under("server/executor/session/executor_core.h"), "code", r"\bgate;", "admission;")
# the daemon's listener
word(ANY, "both", r"ClientGate", "ClientListener")
word(ANY, "both", r"client_gate", "client_listener")
word(under("server/daemon/"), "code", r"\bgate(_?)\b(?!\")", r"listener\1")
phrases(under("server/daemon/client_gate"), ("must outlive the gate", "must outlive the listener"))
word(under("tests/integration/support/daemon_fixture.py"), "code", r"\bgate\b", "connection")
word(under("tests/integration/daemon_test.py", "tests/integration/doctor_test.py"), "both", r"\bgate\b", "listener")

# persistent blocks
word(PERSISTENT, "both", r"WorkerOwner", "RunsOwner")
word(PERSISTENT, "both", r"worker_owner", "runs_owner")
word(PERSISTENT, "both", r"Worker(?=[A-Z])", "Persistent")
word(PERSISTENT, "both", r"(?<![A-Za-z])worker_(?=[a-z])", "persistent_")
word(under("tests/mutants/"), "both", r"(?<=[\[-])worker(s?)(?=[\]-])", r"persistent-block\1")
word(PERSISTENT, "prose", r"(?<![\w-])worker(s?)(?![\w-])", r"persistent block\1")
word(PERSISTENT, "prose", r"(?<![\w-])Worker(s?)(?![\w-])", r"Persistent block\1")
word(PERSISTENT, "both", r"(?<![A-Za-z])(?<![a-z]-)worker(s?)(?![a-z])(?!-[a-z])", r"persistent_block\1")
word(PERSISTENT, "both", r"Worker(s?)(?![a-z])", r"PersistentBlock\1")

# busy periods
word(ANY, "prose", r"(?<![\w-])stretch(es)?(?![\w-])", lambda m: "busy period" + ("s" if m.group(1) else ""))
word(ANY, "prose", r"(?<![\w-])Stretch(es)?(?![\w-])", lambda m: "Busy period" + ("s" if m.group(1) else ""))
word(ANY, "both", r"stretch_since", "busy_since")
word(ANY, "both", r"(?<![A-Za-z])stretch(es)?(?![a-z])", lambda m: "busy_period" + ("s" if m.group(1) else ""))
word(ANY, "both", r"Stretch(es)?(?![a-z])", lambda m: "BusyPeriod" + ("s" if m.group(1) else ""))

# descheduled
DESCHEDULED = everywhere_but("sim-driver/", "tests/sim-driver/", "ptx-transforms/", "tests/ptx-transforms/", "tests/programs/")
for old, new in (("suspensions", "deschedulings"), ("suspension", "descheduling"), ("suspenders", "deschedulers"), ("suspender", "descheduler"),
                 ("suspended", "descheduled"), ("suspending", "descheduling"), ("suspends", "deschedules"), ("suspend", "deschedule")):
    word(DESCHEDULED, "both", rf"(?<![A-Za-z]){old}(?![a-z])", new)
    word(DESCHEDULED, "both", rf"{old[0].upper()}{old[1:]}(?![a-z])", new[0].upper() + new[1:])

# preemptibility
PREEMPTIBLE = everywhere_but("tests/ptx-transforms/", "cmake/", "CMakeLists.txt", "CMakePresets.json", "tools/fuzz", "docs/mutants")
word(PREEMPTIBLE, "both", r"CoveredTimes\b", "TimesByPreemptibility")
word(PREEMPTIBLE, "both", r"Coverages(?![a-z])", "Preemptibilities")
word(PREEMPTIBLE, "both", r"Coverage(?![a-z])", "Preemptibility")
word(PREEMPTIBLE, "both", r"(?<![A-Za-z])coverage(?![a-z])", "preemptibility")

# throttle level
word(ANY, "prose", r"(?<![\w-])caution(s?)(?![\w-])", r"throttle level\1")
word(ANY, "prose", r"(?<![\w-])Caution(s?)(?![\w-])", r"Throttle level\1")
word(under("tests/mutants/"), "both", r"(?<=\[)caution(?=-)", "throttle-level")
word(ANY, "both", r"kCautionSteps", "kThrottleSteps")
word(ANY, "both", r"caution_steps", "throttle_steps")
word(ANY, "both", r"(?<![A-Za-z])(?<![a-z]-)caution(s?)(?![a-z])(?!-[a-z])", r"throttle_level\1")
word(ANY, "both", r"Caution(?![a-z])", "ThrottleLevel")

# ---------------------------------------------------------------- last, over everything
LAST = [
    (under("proto/shm/channel_abi.h"), r'kChannelMagic = 0x454E414C;(\s*)// "LANE"', r'kChannelMagic = 0x454E414C;\1// "LANE", its former name'),
    (under("scheduler/window/shape.h"), r"//      track (\d)   \[", r"//     track \1   ["),
    (ANY, r"\ba GPU channel's\b", "a GPU channel's"),
    (ANY, r"(?<=\w )persistent blocks blocks\b", "persistent blocks"),
    (ANY, r"\bTurnOrder\b", "Sequencer"),
    (ANY, r"\bGPU GPU channel", "GPU channel"),
]

# ---------------------------------------------------------------- paths
PATH_PARTS = [
    (LANES, r"(?<![a-z])lane(s?)(?![a-z])", r"channel\1"),
    (ANY, r"(?<!gpu_)channel_groups", "gpu_channel_groups"),
    (ANY, r"turn_order", "sequencer"),
    (ANY, r"dispatch_gate", "admission"),
    (ANY, r"gated_dispatch", "admitted_dispatch"),
    (ANY, r"gated_copies", "admitted_copies"),
    (ANY, r"priority_gate", "hold_off_rule"),
    (ANY, r"client_gate", "client_listener"),
    (under("server/", "tests/server/"), r"worker_runs", "persistent_runs"),
    (ANY, r"awake_watch", "polling_watch"),
    (ANY, r"suspension_rule", "descheduling_rule"),
    (ANY, r"suspender", "descheduler"),
    (ANY, r"suspending-contexts", "descheduling-contexts"),
    (PREEMPTIBLE, r"(?<![a-z])coverage(?![a-z])", "preemptibility"),
]
PATHS = {}
ANCHORS = [("suspending", "descheduling"), ("suspended-contexts", "descheduled-contexts")]


GLOSSARY = {
    "descheduled": "of a context: its GPU channels are off the run list, so that nobody turns to it; what it was running stands still and goes on later; off by default (`suspend_best_effort`)",
    "GPU channel": "the GPU's own: a context's work reaches the GPU through it; those that are scheduled together are a **GPU channel group**. A *channel* is something else",
    "channel": "the shared memory of one client thread: a request ring, a reply ring, an arena; a thread of the executor serves it",
    "sequence number": "a request's place in the order of its whole session",
    "sequencer": "has a session's requests carried out one at a time, in the order of their sequence numbers; whoever **holds the sequencer** has the session's tables to itself, and releases it before it only waits",
    "poll": "look again and again without sleeping",
    "admission": "where launches, copies and fills of an executor wait until they may go to the driver; **open** while best-effort ones may go, else **closed**",
    "preemptibility": "of GPU time: by what high-priority work could take the GPU from it; `coverage` in `tallyctl` and its JSON",
    "SLO": "a latency objective of a high-priority service, `p99=2ms`",
    "throttle level": "how careful with best-effort work SLO feedback is, 0 to 1; `caution` in metrics and output",
    "persistent block": "a block of a persistent launch that takes the blocks of the grid one after another; as a form `workers` in options and output",
}
BEHIND = {"GPU channel": "descheduled", "sequencer": "sequence number", "poll": "doorbell", "admission": "dispatch",
          "preemptibility": "turnaround latency", "throttle level": "SLO"}


def glossary(text):
    lines, made = text.split("\n"), []
    after = {}
    for term, before in BEHIND.items():
        if not re.search(rf"^\| \*\*{re.escape(term)}\*\* \|", text, re.M):
            after.setdefault(before, []).append(term)
    for line in lines:
        found = re.match(r"\| \*\*([^*]+)\*\* \|", line)
        term = found.group(1) if found else None
        made.append(f"| **{term}** | {GLOSSARY[term]} |" if term in GLOSSARY else line)
        for new in after.pop(term, []):
            made.append(f"| **{new}** | {GLOSSARY[new]} |")
    assert not after, after
    return "\n".join(made)


PAGES = {"docs/glossary.md": glossary}
