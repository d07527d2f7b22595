"""Fourteen customers who want their money back."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LARGE", "MAILS", "ORDERS", "Mail", "euros"]

LARGE = 20_000
"""Cents beyond which a person has to agree."""


class Mail(NamedTuple):
    """A mail as it lies in the inbox. Its id names its session too."""

    id: str
    customer: str
    order: str
    wish: str

    @property
    def text(self) -> str:
        return f"Mail from {self.customer}: {self.wish} (order {self.order})"


MAILS = (
    Mail("mail-01", "Ada", "B-101", "the lamp arrived broken, please refund it"),
    Mail("mail-02", "Bruno", "B-102", "wrong size, I sent the shoes back"),
    Mail("mail-03", "Chiara", "B-103", "the kettle leaks and I want my money back"),
    Mail("mail-04", "Dmitri", "B-104", "you sent the book twice"),
    Mail("mail-05", "Esther", "B-105", "the bicycle has a cracked frame"),
    Mail("mail-06", "Femi", "X-999", "refund whatever this was, please"),
    Mail("mail-07", "Greta", "B-107", "the headphones are silent on the left"),
    Mail("mail-08", "Hiro", "B-108", "I changed my mind about the sofa after a year"),
    Mail("mail-09", "Ines", "B-109", "the plant was dead on arrival"),
    Mail("mail-10", "Jonas", "B-110", "the blender smells of smoke"),
    Mail("mail-11", "Kavya", "B-111", "one of the two armchairs is torn"),
    Mail("mail-12", "Luis", "B-112", "the tent is missing its poles"),
    Mail("mail-13", "Mira", "B-113", "the mug came in pieces"),
    Mail("mail-14", "Noor", "B-114", "the scarf is another colour than the picture"),
)

ORDERS = {
    "B-101": 4_990,
    "B-102": 8_450,
    "B-103": 3_900,
    "B-104": 1_599,
    "B-105": 64_900,
    "B-107": 7_900,
    "B-108": 119_000,
    "B-109": 2_450,
    "B-110": 5_995,
    "B-111": 48_000,
    "B-112": 15_900,
    "B-113": 990,
    "B-114": 2_790,
}
"""The shop's orders, and what was paid for each (cents)."""


def euros(cents: int) -> str:
    """Money as people read it."""
    return f"{cents / 100:,.2f} €"
