"""A neighbour on the machine can neither read nor replace anything of a run."""

import pytest

pytestmark = pytest.mark.engine


def test_what_a_run_makes_elsewhere_lies_below_one_folder_of_mode_0700(
    undisturbed, outside
) -> None:
    (folder,) = outside.made
    assert folder.name.startswith("refblend-ray-")
    assert outside.modes == {folder.name: 0o700, "token": 0o600}
    assert outside.sockets
    assert all(socket.startswith(f"{folder}/") for socket in outside.sockets)
    assert list(outside.folder.iterdir()) == [], "the run's end removes it"


def test_another_user_reads_and_replaces_nothing(undisturbed, outside) -> None:
    if not outside.neighbour:
        pytest.skip("only root can become another user")
    assert len(outside.neighbour) == 3
    for tried in outside.neighbour:
        assert tried.returncode != 0, tried.args
        assert "Permission denied" in tried.stderr
