"""Durable runs: the first scenario step by step, what is unknown, memory, and the end that is told for ever.

The known defects of older engines of this kind are tests here and elsewhere, each of a run that would meet it:

D1   an error of the store counts as one of the memory, and the run fails
         runs/test_session_memory: no error of the store becomes one of the memory, the model or the run
D2   a tool call counts twice after a restart
         unit/core/test_budgets: a tool call is counted once however often its process dies
D3   a call that looks for something to remember counts as a step
         unit/core/test_budgets: steps count answers and no call that was made for something else
D4   a fact that is told twice gets stuck, since its time is another one
         sweep: a death at any point changes nothing, and neither does a second one right after it
D5   a model call that was under way when its process died can't be taken over
         runs/test_session_memory: a model call that was under way at a takeover is an accounted attempt of unknown usage
D6   a hook sees a stored result twice
         runs/test_ambiguity: a receipt is used whole, and what a hook made of it is made once
D7   a request that can't be built again loses its receipt or its turn
         runtime/test_deploy: a request that can not be built again is another one and loses no receipt
D8   a changed memory file between crash and resume loses facts
         runs/test_session_memory: whatever stands in the copy between crash and resume makes no difference
D9   what a tool call left in shared state is lost, or there twice
         runs/test_ambiguity: what a hook noted of a result is there once wherever the process dies
D10  any exception of a tool stops the run
         runs/test_ambiguity: a timeout or a lost connection is unknown unless the tool says for certain …, and the turn goes on
D11  a provider's code that exits like a process leaves its call unknown
         runs/test_ambiguity: a model that ends like a process fails its turn and leaves nothing unknown
D12  a receipt of a failure keeps its code and nothing else
         runs/test_ambiguity: a receipt is used whole (``fails``)
D13  what is remembered is not told where a run is durable
D14  output of no use is looked for again and again, or said nowhere
         runs/test_session_memory: what a turn learns is told to the next one; output of no use is told … and asked for once
D15  a tool without support for keys has none, or has one
         runs/test_ambiguity: every tool sees its key and no model does (every class of tool)
D16  a refusal that nobody raises
         runs/test_store_seam: a claim is answered …, every write says what it builds on …
D17  two sessions share a file, or a fact's importance is read in two ways
         runs/test_memory_file: every other id has a name of its own; unit/core/test_memory
D18  a reader hears an event twice and can't tell
         catalogue/test_consumers: what was not acknowledged … comes again; runs/test_terminal_replay: each consumer hears of an end …
D19  an abort over an unknown outcome forgets what is unknown
         runs/test_ambiguity: aborting over an unknown outcome ends the turn, and the unknown stays to be seen and settled
D20  an approved call runs outside of the journal
         runs/test_ambiguity: a call that waits for approval is planned, and one that was denied never started
D21  a half-written memory file, and nobody is told
         runs/test_memory_file: a write that fails leaves the old content and nothing else
D22  a definition doesn't see what decides about the run
         runtime/test_deploy: another directory is another workspace; what decides about a turn is part of its definition
"""
