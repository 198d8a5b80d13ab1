"""Places as a caller gives them -> columns of numbers, by one kernel that keeps the GIL.

Depends on layout, objects, places and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

from tierdex.fileparts.kernels.compile import short_kernel
from tierdex.fileparts.kernels.objects import take_place
from tierdex.logfile import layout
from tierdex.logfile.kernels.places import A_NAME, A_NAME_BYTES, A_OFFSET, A_QUEUE_ID

_QUEUE_ID_MAX: Final = layout.QUEUE_ID_MAX


@short_kernel
def take_places(items: int, asked: Any) -> bool:
    """Take the list of (topic, queue id, offset) at `items`; False when one is out of the ordinary.

    Topics are any text here. What is noted of them holds as long as the list's items do.
    """
    for i in range(asked.shape[0]):
        name, name_bytes, queue_id, offset, are_numbers = take_place(items, i)
        if name_bytes <= 0 or are_numbers == 0 or not 0 <= queue_id <= _QUEUE_ID_MAX or offset < 0:
            return False
        asked[i, A_NAME], asked[i, A_NAME_BYTES] = name, name_bytes
        asked[i, A_QUEUE_ID], asked[i, A_OFFSET] = queue_id, offset
    return True
