"""Jobs of others that begin all the time must not make the watcher ask all the time."""

from __future__ import annotations

from gpuq.usecases.watch.begun import SOON, Begun


def test_looks_that_find_nothing_new_become_rare_and_one_that_does_is_soon_again() -> None:
    begun = Begun(30.0)
    now, looks = 1000.0, 0
    while now < 1600:
        now = begun.look_at(now)
        begun.looked(False)
        looks += 1
    assert looks < 30, "a foreign job a second has cost a look a second"
    assert begun.look_at(now) == now + 30
    begun.looked(True)
    assert begun.look_at(now) == now + SOON


def test_an_own_look_makes_no_later_one_slower_and_a_quiet_while_is_forgotten() -> None:
    begun = Begun(30.0)
    for _ in range(10):
        begun.looked(False)
    assert begun.look_at(1000.0) == 1000.0 + SOON
    begun.looked(False)
    assert begun.look_at(1001.0) == 1001.0 + 2 * SOON
    assert begun.look_at(1100.0) == 1100.0 + SOON
