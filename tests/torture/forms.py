"""The forms of a file, each with a judge: opened from given bytes, does it answer as it must?

`judge(data)` returns "unharmed" when every answer is the sound file's, "shorter" when the end of a
file being written is gone, and "refused" when a typed error said so. Whatever else happens is a
finding: an AssertionError for a wrong answer, any other exception for itself.
"""

from __future__ import annotations

from tests.torture.file_forms import (
    Compacted,
    InGroups,
    LocalSidecar,
    Published,
    Sealed,
    Streamed,
    Unsealed,
)
from tests.torture.log_forms import GroupedForm, JournalForm, LogSidecarForm, SealedJournalForm
from tests.torture.small_forms import (
    CheckpointForm,
    HintForm,
    LockForm,
    ManifestForm,
    NodeForm,
    RocketmqCompactedForm,
    RocketmqForm,
)

FORMS = (
    Unsealed, Sealed, Compacted, Published, InGroups, Streamed, LocalSidecar, ManifestForm, CheckpointForm,
    HintForm, LockForm, NodeForm, RocketmqForm, RocketmqCompactedForm, JournalForm, SealedJournalForm,
    GroupedForm, LogSidecarForm,
)  # fmt: skip
