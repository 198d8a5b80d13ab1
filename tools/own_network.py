"""`python -m tools.own_network PROGRAM ARGUMENT...`: runs a program in a network of its own, loopback alone.

For servers that bind ports to all interfaces whatever they are told, as RocketMQ's broker does with the one
behind its own: nothing outside of this network reaches them. The program takes this process's place, so its
process ID, signals and exit code are those of the call.

Source: unshare(2), network_namespaces(7), netdevice(7).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_REQUEST = struct.Struct("16sh22x")  # struct ifreq: the name, the flags
REFUSED = 77  # the exit code where the kernel gives no network


def enter() -> None:
    """Give this process, and those that it starts, a network of its own. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    if libc.unshare(wanted):
        number = ctypes.get_errno()
        raise OSError(number, f"no network of its own: {os.strerror(number)}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        told = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _REQUEST.pack(b"lo", 0))
        name, flags = _REQUEST.unpack(told)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _REQUEST.pack(name, flags | _IFF_UP))


def main() -> None:
    """Enter the network and become the program."""
    try:
        enter()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
