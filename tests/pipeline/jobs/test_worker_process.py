"""What a worker's first task loaded is left out of the collections that Spark's daemon makes after each."""

import gc

import pytest

from tierdex.pipeline.jobs import worker_process
from tierdex.pipeline.jobs.worker_process import worker_task


@pytest.fixture
def frozen(monkeypatch):
    """Record what is asked of the collector; nothing is frozen in this process."""
    asked: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: asked.append("freeze"))
    monkeypatch.setattr(gc, "collect", lambda: asked.append("collect"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.count("freeze"))
    return asked


def test_first_task_of_a_worker_freezes_once_also_when_it_fails(frozen, monkeypatch):
    monkeypatch.setattr(worker_process.TaskContext, "get", lambda: object())
    with pytest.raises(ValueError, match="lost"), worker_task():
        raise ValueError("lost")
    with worker_task():
        pass
    assert frozen == ["collect", "freeze"]


def test_a_read_outside_of_a_task_leaves_the_process_alone(frozen):
    with worker_task():
        pass
    assert frozen == []
