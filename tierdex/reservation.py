"""Whether a file system keeps reservations, so that a store into a mapping never lacks a block.

`fallocate` promises blocks. A file system that copies on write (btrfs, ZFS, bcachefs ...) still
writes changed bytes to new blocks: on a full disk the store faults, and the process dies of SIGBUS.
No file flag prevents this for certain: without copy-on-write (NOCOW) btrfs overwrites in place, but
not the blocks shared by a snapshot or a reflink, not on a compressed mount, and for mappings only
since Linux 6.16. So only file systems that are known to keep reservations get shared, writable
mappings::

    ext4, XFS, tmpfs   stores go into the page cache: one step, no system call
    all others         stores go into memory of the process, and from there by `pwrite`, which says ENOSPC

XFS may also share blocks, after `cp --reflink` of a file that is being written: see
docs/operations.md. A file that was copied so before it is written again gets its own (`own_blocks`).
Linux only.

Depends on nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from contextlib import suppress
from typing import Final

_KEEPING: Final = frozenset({0xEF53, 0x58465342, 0x01021994})  # ext2 to ext4, XFS, tmpfs
_STATFS_BYTES: Final = 256  # more than any architecture's struct; it begins with a long: the type
_FS_IOC_GETFLAGS: Final = 0x80086601
_FS_IOC_SETFLAGS: Final = 0x40086602
_FS_NOCOW_FL: Final = 0x00800000
_UNSHARE_RANGE: Final = 0x40  # FALLOC_FL_UNSHARE_RANGE of <linux/falloc.h>
_LIBC = ctypes.CDLL(None, use_errno=True)


def keeps_reserved(descriptor: int) -> bool:
    """Return whether stores into a file's reserved blocks cannot fail. Raises OSError."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _LIBC.fstatfs(descriptor, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_long.from_buffer(buffer).value in _KEEPING


def own_blocks(descriptor: int) -> None:
    """Give a file blocks of its own for those that it shares with a reflink. Raises OSError (ENOSPC).

    Where there are no reflinks, or stores are not shared, nothing has to be done.
    """
    size = os.fstat(descriptor).st_size
    if size and _LIBC.fallocate(descriptor, _UNSHARE_RANGE, ctypes.c_long(0), ctypes.c_long(size)):
        number = ctypes.get_errno()
        if number != errno.EOPNOTSUPP:
            raise OSError(number, os.strerror(number))


def ask_for_overwriting(descriptor: int) -> None:
    """Ask for an empty file to be overwritten in place; advice, which most file systems do not know.

    Where it is taken, reserved blocks mean something to `pwrite`, and the file does not fall to pieces.
    """
    with suppress(OSError):
        known = fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, bytes(8))
        flags = int.from_bytes(known, sys.byteorder) | _FS_NOCOW_FL
        fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, flags.to_bytes(8, sys.byteorder))
