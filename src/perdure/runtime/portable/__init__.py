"""A session, or a tree of them, as one file: a line of JSON for every row, written in one go and verified before it is taken in.

The first line says what the file is and counts what follows; then come, for each session, its row, its entries with their chain, its
submissions and its effects; then the content by digest, in pieces; and a last line with the SHA-256 of all before it. Whatever the size,
only a line, and one content, is in memory at once, and no line is longer than `LINE_LIMIT`.
"""

from .export import export, rows_of
from .imports import import_file, take_in, verified_file
from .lines import FORMAT, LINE_LIMIT

__all__ = ["FORMAT", "LINE_LIMIT", "export", "import_file", "rows_of", "take_in", "verified_file"]
