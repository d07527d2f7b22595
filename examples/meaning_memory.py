"""A memory that searches by meaning, for all sessions of an owner, in one SQLite file.

    pip install wordllama
    python examples/meaning_memory.py             # two sessions: what the one says, the other finds
    python examples/meaning_memory.py --measure   # how often the right fact is found, and what full-text search finds

It needs no key and no network: wordllama's wheel brings its weights along (16 MB), and the model of the conversation is scripted.
"""

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

try:
    import numpy
    import wordllama
except ModuleNotFoundError as missing:
    raise SystemExit(f"this example needs {missing.name}: pip install wordllama") from None

import perdure
from perdure import Agent, FunctionModel, HookContext, Message, ModelRequest

FOUND = 3
"""How many facts a message is told."""

NEAR = 0.25
"""How near a fact has to be (cosine)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (
    owner TEXT, key TEXT, place INTEGER, text TEXT, vector BLOB, PRIMARY KEY (owner, key, place)
) WITHOUT ROWID
"""


class MeaningMemory:
    """What people said, found again by what it means. One owner never sees another's."""

    name = "meaning"

    def __init__(self, file: Path) -> None:
        self._file = file
        # The wheel has both files; without this, the tokenizer would be looked for in a cache and downloaded.
        self._model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
        with self._open() as database:
            database.execute(SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file)) as database, database:
            yield database

    def vectors(self, texts: Sequence[str]) -> numpy.ndarray:
        return self._model.embed(list(texts), norm=True)

    async def recall(self, ctx: HookContext, message: Message) -> list[str]:
        return await asyncio.to_thread(self.search, ctx.identity.owner, message.text)

    async def remember(self, ctx: HookContext, messages: Sequence[Message], key: str) -> None:
        said = [message.text for message in messages if message.role == "user" and message.text.strip()]
        await asyncio.to_thread(self.keep, ctx.identity.owner, key, said)

    def keep(self, owner: str, key: str, texts: Sequence[str]) -> None:
        """The same key is the same turn: it is kept once, however often it comes."""
        if not texts:
            return
        vectors = [vector.tobytes() for vector in self.vectors(texts)]
        rows = [(owner, key, place, text, vector) for place, (text, vector) in enumerate(zip(texts, vectors, strict=True))]
        with self._open() as database:
            database.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?, ?, ?, ?)", rows)

    def search(self, owner: str, text: str, *, found: int = FOUND, near: float = NEAR) -> list[str]:
        """The nearest facts, the best first. It looks at all of them: some ten thousand take a few milliseconds."""
        with self._open() as database:
            rows = database.execute("SELECT text, vector FROM facts WHERE owner = ?", (owner,)).fetchall()
        if not rows or not text.strip():
            return []
        scores = numpy.stack([numpy.frombuffer(vector, numpy.float32) for _, vector in rows]) @ self.vectors([text])[0]
        return [rows[index][0] for index in numpy.argsort(-scores)[:found] if scores[index] >= near]


# --------------------------------------------------------------------------------------------------------------- how good it is

LABELLED = [
    ("Ann is allergic to peanuts.", "What food must we avoid when we order lunch for her?"),
    ("The office moved to Hamburg in March.", "In which city do they work now?"),
    ("Deployments are only allowed before Thursday noon.", "Can we ship this release on Friday?"),
    ("The customer wants invoices as PDF, not on paper.", "How should bills be sent?"),
    ("The database password is rotated every quarter by the platform team.", "Who changes the credentials?"),
    ("Bob left the company; Carla took over his accounts.", "Who is responsible for his clients now?"),
    ("The mobile app crashes on phones with less than 2 GB of memory.", "Why does the software fail on old handsets?"),
    ("Refunds above 500 euros need the approval of a manager.", "May I give the money back to this buyer, it is a large sum?"),
    ("The meeting with the supplier was moved from Monday to Wednesday.", "When do we see the vendor?"),
    ("She prefers to be called in the afternoon.", "What is a good time to phone her?"),
    ("The warehouse is closed on public holidays.", "Will parcels leave the depot at Christmas?"),
    ("The new colour of the logo is dark green.", "How does the brand look?"),
    ("The contract ends on 31 December and is not renewed by itself.", "When does the agreement run out?"),
    ("Tests run twice a day, at six in the morning and at noon.", "How often is the code checked automatically?"),
    ("The car needs winter tyres before the trip to Norway.", "What has to be done with the vehicle before we drive north?"),
    ("His daughter starts school in September.", "Does he have children?"),
    ("The API allows 100 requests a minute for each key.", "How fast may I call the service?"),
    ("The printer on the second floor is out of toner.", "Why can't I get anything on paper upstairs?"),
    ("They chose PostgreSQL because two services write at the same time.", "Which storage did we decide for, and why?"),
    ("The flight lands at 22:40 and the last train leaves at 23:05.", "Do we reach the connection after we arrive at the airport?"),
]
"""Facts, and questions about them that share hardly a word with them."""


def measure(directory: Path) -> None:
    facts = [fact for fact, _ in LABELLED]
    memory = MeaningMemory(directory / "meaning.db")
    memory.keep("", "all", facts)
    words = sqlite3.connect(":memory:")
    words.execute("CREATE VIRTUAL TABLE facts USING fts5(text, tokenize = 'porter')")
    words.executemany("INSERT INTO facts VALUES (?)", [(fact,) for fact in facts])

    def full_text(question: str) -> list[str]:
        asked = " OR ".join(f'"{word}"' for word in "".join(c if c.isalnum() else " " for c in question).split())
        return [text for (text,) in words.execute("SELECT text FROM facts WHERE facts MATCH ? ORDER BY bm25(facts)", (asked,))]

    for name, search in (
        ("by meaning", lambda question: memory.search("", question, found=len(facts), near=-1)),
        ("full text", full_text),
    ):
        found = [sum(fact in search(question)[:first] for fact, question in LABELLED) for first in (1, 3, 5)]
        print(f"{name}: first {found[0]}, first three {found[1]}, first five {found[2]}, of {len(LABELLED)}")


# ---------------------------------------------------------------------------------------------------------------- two sessions


def answer(request: ModelRequest) -> str:
    """Stands in for a model: it repeats what it was told before the message."""
    told = [message.text for message in request.messages if message.text.startswith("[note]")]
    return told[-1].splitlines()[1] if told else "I see."


async def main(directory: Path) -> None:
    agent = Agent("helper", model=FunctionModel(answer), memory=MeaningMemory(directory / "meaning.db"))
    async with perdure.open(str(directory / "agents.db")) as runtime:
        for number, said in enumerate(["Ann is allergic to peanuts.", "The office moved to Hamburg in March."]):
            await runtime.run(agent, said, session=f"talk-{number}", submission="m1", owner="acme")
        asked = "What food must we avoid when we order lunch for Ann?"
        print((await runtime.run(agent, asked, session="lunch", submission="m1", owner="acme")).output)
        print((await runtime.run(agent, asked, session="theirs", submission="m1", owner="others")).output)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        if "--measure" in sys.argv:
            measure(Path(place))
        else:
            asyncio.run(main(Path(place)))
