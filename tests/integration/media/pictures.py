"""Small files that begin as real ones do."""

from __future__ import annotations

import struct
import zlib


def png(color: int = 0) -> bytes:
    """A picture of one pixel, whole and valid."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixel = zlib.compress(b"\x00" + bytes([color % 256, color // 256 % 256, 0]))
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def big_png(size: int, color: int = 0) -> bytes:
    """A picture with something behind its end, as long as is wanted."""
    start = png(color)
    return start + bytes(size - len(start))


JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(20)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(24)
MP3 = b"ID3\x04\x00\x00\x00\x00\x00\x00" + bytes(16)
PDF = b"%PDF-1.7\n1 0 obj\n"
OGG = b"OggS\x00\x02" + bytes(20)
