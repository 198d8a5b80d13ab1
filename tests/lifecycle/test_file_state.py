from itertools import product

import pytest

from tierdex.errors import IllegalTransitionError
from tierdex.lifecycle.file_state import RECOVERY_MAY_UNDO, FileState, check_transition, mermaid

S = FileState
FORWARD = {
    (S.UNSEALED, S.SEALED),
    (S.SEALED, S.COMPACTED),
    (S.COMPACTED, S.UPLOADED),
    (S.COMPACTED, S.EXPIRED),
    (S.UPLOADED, S.EXPIRED),
}
BACKWARD = {(S.SEALED, S.UNSEALED), (S.COMPACTED, S.SEALED)}


@pytest.mark.parametrize("in_recovery", [False, True])
@pytest.mark.parametrize(("source", "target"), list(product(S, repeat=2)))
def test_each_pair_is_allowed_or_raises(source, target, in_recovery):
    if (source, target) in FORWARD or (in_recovery and (source, target) in BACKWARD):
        check_transition(source, target, in_recovery=in_recovery)
    else:
        with pytest.raises(IllegalTransitionError):
            check_transition(source, target, in_recovery=in_recovery)


def test_values_are_the_folder_names():
    names = ["unsealed", "sealed", "compacted", "uploaded", "expired"]
    assert [state.folder for state in S] == names


def test_only_the_step_back_is_undone():
    pairs = [(s, t) for s, targets in RECOVERY_MAY_UNDO.items() for t in targets]
    assert all(target.age == source.age - 1 for source, target in pairs)


def test_diagram_has_one_line_for_each_edge():
    text = mermaid()
    assert text.startswith("stateDiagram-v2\n")
    for source, target in FORWARD | BACKWARD:
        assert text.count(f"    {source.value} --> {target.value}: ") == 1
