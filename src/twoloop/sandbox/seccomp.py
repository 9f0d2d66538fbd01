"""A system-call filter: what namespaces do not cover. Classic BPF as in seccomp(2), built without a library.

Refused are calls that reach kernel-wide state (keyrings, modules, kexec, the kernel log), calls with a long record of
kernel exploits that tests of ordinary code never need (bpf, io_uring, userfaultfd, perf), everything that mounts, and
sockets of any family but Unix, IPv4, IPv6 and netlink: AF_VSOCK passes straight through a network namespace.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

_LOAD, _JUMP_EQ, _JUMP_GE, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; low word of the argument, little-endian
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32_BIT = 0x40000000  # the x32 ABI shares x86-64's architecture value and sets this bit in the call's number
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK


@dataclass(frozen=True)
class _Machine:
    audit_arch: int  # AUDIT_ARCH_* of linux/audit.h
    socket: int
    refused: tuple[int, ...]
    unseen: tuple[int, ...]  # memory that belongs to no process and no mount: memfd_create, memfd_secret, shmget


# The numbers that both machines share, because they were added after the tables were unified (Linux 5.1):
# io_uring_{setup,enter,register}, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr.
_SHARED = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)

# add_key, request_key, keyctl; bpf, perf_event_open, userfaultfd; mount, umount2, pivot_root, chroot; unshare, setns;
# kexec_load, kexec_file_load; init_module, finit_module, delete_module; name_to_handle_at, open_by_handle_at;
# swapon, swapoff, reboot, acct, syslog.
_X86_64 = (248, 249, 250, 321, 298, 323, 165, 166, 155, 161, 272, 308, 246, 320, 175, 313, 176, 303, 304)
_X86_64_REST = (167, 168, 169, 163, 103)
_AARCH64 = (217, 218, 219, 280, 241, 282, 40, 39, 41, 51, 97, 268, 104, 294, 105, 273, 106, 264, 265)
_AARCH64_REST = (224, 225, 142, 89, 116)

_MACHINES = {
    "x86_64": _Machine(0xC000003E, 41, _X86_64 + _X86_64_REST + _SHARED, (319, 447, 29)),
    "aarch64": _Machine(0xC00000B7, 198, _AARCH64 + _AARCH64_REST + _SHARED, (279, 447, 194)),
}
MACHINES = tuple(_MACHINES)


def program(machine: str, *, memory_is_counted: bool) -> bytes:
    """The filter for `platform.machine()`, as an array of struct sock_filter. Raises KeyError for an unknown machine.

    Calls of a foreign architecture (32-bit, x32) do not exist (ENOSYS), refused ones are not permitted (EPERM). With
    `memory_is_counted` process by process rather than bounded by the kernel, memory outside of any process is refused.
    """
    known = _MACHINES[machine]
    no_such_call, not_permitted = _ERRNO | errno.ENOSYS, _ERRNO | errno.EPERM
    code = [
        _instruction(_LOAD, _ARCH),
        _instruction(_JUMP_EQ, known.audit_arch, 1, 0),
        _instruction(_RETURN, no_such_call),
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_GE, _X32_BIT, 0, 1),
        _instruction(_RETURN, no_such_call),
    ]
    for number in known.refused + (known.unseen if memory_is_counted else ()):
        code += [_instruction(_JUMP_EQ, number, 0, 1), _instruction(_RETURN, not_permitted)]
    code += [
        _instruction(_JUMP_EQ, known.socket, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _instruction(_LOAD, _FIRST_ARGUMENT),
    ]
    for family in _FAMILIES:
        code += [_instruction(_JUMP_EQ, family, 0, 1), _instruction(_RETURN, _ALLOW)]
    code.append(_instruction(_RETURN, _ERRNO | errno.EAFNOSUPPORT))
    return b"".join(code)


def _instruction(operation: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", operation, if_true, if_false, operand)
