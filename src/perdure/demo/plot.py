"""The plot. Every kill waits for a moment that it can see, never for a time; what else is going on then is hit as it comes."""

from __future__ import annotations

from .stage import Stage

__all__ = ["LATE_MAIL", "play"]

LATE_MAIL = "mail-09"


async def play(stage: Stage) -> None:
    """From the first start to the last answer."""
    await stage.start()

    await stage.kill("the model was in the middle of a sentence", stage.writing())
    await stage.start()

    await stage.kill("a payment was asked for, no money had moved", stage.holding("before"))
    await stage.start()

    await stage.kill("a receipt had just been committed", stage.receipt())
    await stage.start()

    await stage.kill("the money had moved, nobody here knew", stage.holding("after"))
    lookup = stage.holding("lookup")
    await stage.start(go_on=False)
    await stage.kill("it was just asking what became of that payment", lookup)
    await stage.start()

    await stage.kill("a person's approval was awaited", stage.waiting("mail-05"))
    await stage.approve("mail-05")  # while no process is there to hear it
    await stage.start()

    await stage.kill("the model was in the middle of a sentence", stage.writing())
    await stage.start()

    await stage.kill("a receipt had just been committed", stage.receipt())
    await stage.start()

    await stage.kill("a person's approval was awaited", stage.waiting("mail-08"))
    await stage.start()
    await stage.deny("mail-08", "a year is too long")

    await stage.kill("the model had written one word", stage.writing(1))
    await stage.start()

    await stage.kill("a person's approval was awaited", stage.waiting("mail-11"))
    edited = stage.holding("after", "B-111")
    await stage.approve("mail-11", cents=24_000)
    await stage.start(go_on=False)
    await stage.kill("the amount that a person had changed was paid, nobody here knew", edited)
    await stage.start()

    await stage.kill("the model was in the middle of a sentence", stage.writing())
    await stage.start()
    await stage.end()

    doubts = await stage.runtime.sessions.uncertain(LATE_MAIL)
    stage.scene.tell("doubt", f"every mail is answered; {len(doubts)} payment is honestly unknown")
    await stage.clear_payments()
    await stage.start()
    await stage.kill("the model was telling that customer the good news", stage.writing())
    await stage.start()
    await stage.end()
