import threading

from tierdex.clock import ManualClock
from tierdex.lifecycle.file_number import NextNumber


def test_number_is_the_clocks_milliseconds():
    clock = ManualClock(5_000)
    assert NextNumber(clock).take() == 5_000


def test_numbers_rise_while_the_clock_steps_back():
    clock = ManualClock(5_000)
    source = NextNumber(clock)
    taken = [source.take()]
    clock.step(-4_000)
    taken += [source.take(), source.take()]
    assert taken == [5_000, 5_001, 5_002]


def test_number_lies_above_the_highest_known():
    clock = ManualClock(5_000)
    source = NextNumber(clock, highest_known=9_000)
    assert source.take() == 9_001
    source.see(20_000)
    source.see(3)
    assert source.take() == 20_001


def test_threads_never_share_a_number():
    source = NextNumber(ManualClock(5_000))
    taken: list[int] = []

    def take() -> None:
        taken.extend([source.take() for _ in range(500)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 2_000
