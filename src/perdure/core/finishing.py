"""How a turn comes to its end besides the usual one: words that a model reads, and names that it uses."""

from __future__ import annotations

__all__ = ["ALL_ARGUMENTS", "FINISH", "FINISHED", "NOBODY_ANSWERED", "NOT_FINISHED", "OUTPUT_INVALID", "REFUSED"]

FINISH = "finish"
"""The built-in tool that ends a turn, where an answer alone doesn't."""

FINISHED = "The work is finished."
"""What the call of `FINISH` returns that ends the turn."""

ALL_ARGUMENTS = "*"
"""The output of a call that ended its turn is all of its arguments."""

NOT_FINISHED = f"This answer doesn't end the work. Go on, and call {FINISH} with the result once it is done."
"""What a model is told that answered where only a call ends the turn."""

NOBODY_ANSWERED = "Nobody answered in time. Go on with what you know."
"""What a model is told that asked the user, where nobody's silence is to end the turn."""

OUTPUT_INVALID = "output_invalid"
"""The code of a turn's failure whose answer was not what it has to be."""

REFUSED = "the model refuses to answer"
"""What is wrong with an answer that is a refusal, where it has to be of a certain kind."""
