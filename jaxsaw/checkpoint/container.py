"""The ZIP around a checkpoint's members: uncompressed, not encrypted, in one piece.

Only what such a file needs is written, and everything that is read is checked. Other tools may
have rewritten the file (other offsets, another order, ZIP64 fields, data descriptors), as long as
the members are stored.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

LARGE = 0xFFFFFFFF  # in place of a size or an offset: ZIP64 says it
MANY = 0xFFFF  # the same for the number of members
ZIP64_FROM = LARGE  # sizes and offsets from here on are written so
MAX_DIRECTORY = 64 << 20
CRC_FIELD = 14  # where a local header holds the checksum

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_DATE = 0x0021  # the first of January 1980: same content, same bytes
_DESCRIPTOR = 0x0008  # flag: sizes and checksum follow the data
_UTF8 = 0x0800
_ZIP64 = 0x0001  # the extra field with large values


class Member(NamedTuple):
    """One entry of the ZIP's directory.

    Args:
        name: Its file name.
        size: Its number of bytes.
        crc: The crc32 of these bytes.
        offset: Where its local header starts.
    """

    name: str
    size: int
    crc: int
    offset: int


def digest(members: Iterable[Member], manifest: bytes) -> bytes:
    """Return the checksum of a file's directory and manifest.

    Args:
        members: Every member but the one that holds this checksum, in any order.
        manifest: The manifest's bytes.

    Returns:
        Hexadecimal SHA-256 and a newline. Offsets have no part in it.
    """
    sha = hashlib.sha256(manifest)
    for member in sorted(members):
        sha.update(f"\n{member.name} {member.size} {member.crc:08x}".encode())
    return sha.hexdigest().encode() + b"\n"


def local_header(name: str, size: int, crc: int) -> bytes:
    """Return what precedes a member's bytes.

    Args:
        name: The member's ASCII name.
        size: Its number of bytes.
        crc: Their crc32.

    Returns:
        The local header.
    """
    extra = struct.pack("<2H2Q", _ZIP64, 16, size, size) if size >= ZIP64_FROM else b""
    short, version = _short(size), 45 if extra else 20
    head = (b"PK\3\4", version, 0, 0, 0, _DATE, crc, short, short, len(name), len(extra))
    return _LOCAL.pack(*head) + name.encode() + extra


def directory(members: list[Member], start: int) -> bytes:
    """Return the central directory and the records that end a ZIP.

    Args:
        members: All members.
        start: The offset at which these bytes will be written.

    Returns:
        The end of the file.

    Raises:
        ValueError: If there are more members than `read_directory` would accept.
    """
    entries = []
    for name, size, crc, offset in members:
        large = [value for value in (size, size, offset) if value >= ZIP64_FROM]
        extra = struct.pack(f"<2H{len(large)}Q", _ZIP64, 8 * len(large), *large) if large else b""
        short, at, version = _short(size), _short(offset), 45 if large else 20
        head = (b"PK\1\2", 0x0300 | version, version, 0, 0, 0, _DATE, crc, short, short)
        tail = (len(name), len(extra), 0, 0, 0, 0o100644 << 16, at)
        entries.append(_CENTRAL.pack(*head, *tail) + name.encode() + extra)
    body = b"".join(entries)
    if len(body) > MAX_DIRECTORY:
        raise ValueError(f"{len(members)} members are more than one file can hold.")
    count, size = len(members), len(body)
    end = b""
    if count >= MANY or size >= ZIP64_FROM or start >= ZIP64_FROM:
        end = _END64.pack(b"PK\6\6", 44, 0x0300 | 45, 45, 0, 0, count, count, size, start)
        end += _LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
    count, size, start = min(count, MANY), _short(size), _short(start)
    return body + end + _END.pack(b"PK\5\6", 0, 0, count, count, size, start, 0)


def _short(value: int) -> int:
    return LARGE if value >= ZIP64_FROM else value


def read_directory(file: int, length: int) -> tuple[list[Member], int]:
    """Read a ZIP's central directory.

    Args:
        file: A file descriptor.
        length: The file's length.

    Returns:
        The members in the directory's order, and where the directory starts.

    Raises:
        ValueError: If anything in it isn't as it has to be.
    """
    count, size, start = _read_end(file, length)
    if size > MAX_DIRECTORY or count * _CENTRAL.size > size:
        raise ValueError("the ZIP's directory has an impossible size")
    body = os.pread(file, size, start)
    members: list[Member] = []
    at = 0
    try:
        for _ in range(count):
            member, at = _parse_entry(body, at)
            members.append(member)
    except struct.error:
        raise ValueError("the ZIP's directory is cut off") from None
    if at != len(body) or at != size:
        raise ValueError("the ZIP's directory has another size than it says")
    return members, start


def _read_end(file: int, length: int) -> tuple[int, int, int]:
    # Number of members, size and offset of the directory, which ends where the end records start.
    tail = os.pread(file, min(length, _END.size + 0xFFFF), max(0, length - _END.size - 0xFFFF))
    found = tail.rfind(b"PK\5\6")
    if found < 0 or len(tail) - found < _END.size:
        raise ValueError("not a ZIP file, or cut off")
    end = length - len(tail) + found
    _, disk, first, here, count, size, start, comment = _END.unpack_from(tail, found)
    if found + _END.size + comment != len(tail):
        raise ValueError("bytes follow the end of the ZIP")
    short = (here, count, size, start)
    locator = os.pread(file, _LOCATOR.size, end - _LOCATOR.size) if end >= _LOCATOR.size else b""
    if locator.startswith(b"PK\6\7"):
        _, disk64, at, disks = _LOCATOR.unpack(locator)
        record = os.pread(file, _END64.size, at) if at < end else b""
        if not record.startswith(b"PK\6\6") or len(record) < _END64.size:
            raise ValueError("the ZIP64 end record isn't where it should be")
        _, more, _, _, disk, first, here, count, size, start = _END64.unpack(record)
        limits = (MANY, MANY, LARGE, LARGE)
        if any(
            value not in (limit, full)
            for value, limit, full in zip(short, limits, (here, count, size, start), strict=True)
        ):
            raise ValueError("the ZIP's end records contradict each other")
        if disk64 or disks > 1 or at + 12 + more != end - _LOCATOR.size:
            raise ValueError("the ZIP64 end record has another size than it says")
        end = at
    if disk or first or here != count:
        raise ValueError("a ZIP in several parts")
    if start + size != end:
        raise ValueError("the ZIP's directory isn't where it should be")
    return count, size, start


def _parse_entry(body: bytes, at: int) -> tuple[Member, int]:
    fields = _CENTRAL.unpack_from(body, at)
    signature, _, _, flags, method, _, _, crc, packed, size = fields[:10]
    name_length, extra_length, comment_length, disk, _, _, offset = fields[10:]
    if signature != b"PK\1\2":
        raise ValueError("the ZIP's directory is damaged")
    at += _CENTRAL.size
    name = _name(body[at : at + name_length])
    at += name_length
    large = [value == LARGE for value in (size, packed, offset)]
    if any(large):
        values = _zip64_values(body[at : at + extra_length], sum(large), name)
        size, packed, offset = (
            values.pop(0) if is_large else value
            for is_large, value in zip(large, (size, packed, offset), strict=True)
        )
    at += extra_length + comment_length
    if at > len(body):
        raise ValueError("the ZIP's directory is cut off")
    _check_stored(name, flags, method)
    if packed != size or disk:
        raise ValueError(f"member {name!r}: its sizes contradict each other")
    return Member(name, size, crc, offset), at


def locate(file: int, members: list[Member], end: int) -> dict[str, int]:
    """Find where each member's bytes start, checking that no two members share any.

    Args:
        file: A file descriptor.
        members: What `read_directory` returned.
        end: Where the directory starts.

    Returns:
        The offset of the bytes of each name.

    Raises:
        ValueError: If a local header isn't there or contradicts the directory, if members overlap
            or if a name occurs twice.
    """
    offsets: dict[str, int] = {}
    free = 0
    for member in sorted(members, key=lambda member: member.offset):
        if member.name in offsets:
            raise ValueError(f"member {member.name!r}: occurs twice")
        if not free <= member.offset <= end - member.size:
            raise ValueError(f"member {member.name!r}: overlaps another part of the file")
        offsets[member.name] = _data_offset(file, member)
        free = offsets[member.name] + member.size
        if free > end:
            raise ValueError(f"member {member.name!r}: overlaps another part of the file")
    return offsets


def _data_offset(file: int, member: Member) -> int:
    name, size, crc, offset = member
    head = os.pread(file, _LOCAL.size + len(name) + 64, offset)
    if not head.startswith(b"PK\3\4") or len(head) < _LOCAL.size:
        raise ValueError(f"member {name!r}: no local header at its offset")
    fields = _LOCAL.unpack_from(head)
    _, _, flags, method, _, _, local_crc, packed, local_size, name_length, extra_length = fields
    start = _LOCAL.size + name_length
    _check_stored(name, flags, method)
    if head[_LOCAL.size : start] != name.encode():
        raise ValueError(f"member {name!r}: its local header has another name")
    if LARGE in (packed, local_size):
        large = [value == LARGE for value in (local_size, packed)]
        extra = os.pread(file, extra_length, offset + start)
        values = _zip64_values(extra, sum(large), name)
        local_size = values.pop(0) if large[0] else local_size
        packed = values.pop(0) if large[1] else packed
    follows = flags & _DESCRIPTOR and local_crc == packed == local_size == 0
    if not follows and (local_crc, packed, local_size) != (crc, size, size):
        raise ValueError(f"member {name!r}: its local header contradicts the directory")
    return offset + start + extra_length


def _check_stored(name: str, flags: int, method: int) -> None:
    if method != 0:
        raise ValueError(f"member {name!r}: compressed; a checkpoint's members are stored as is")
    if flags & ~(_DESCRIPTOR | _UTF8):
        raise ValueError(f"member {name!r}: encrypted, or of an unknown kind")


def _name(raw: bytes) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError(f"member {raw!r}: not a name of a checkpoint's member") from None


def _zip64_values(extra: bytes, count: int, name: str) -> list[int]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _ZIP64 and length >= 8 * count and at + 4 + length <= len(extra):
            return list(struct.unpack_from(f"<{count}Q", extra, at + 4))
        at += 4 + length
    raise ValueError(f"member {name!r}: its large size or offset is missing")
