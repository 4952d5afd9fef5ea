"""The committed runs are ones that today's code goes on from: they are never trained again."""

import json
import tarfile
from pathlib import Path

import pytest

from refblend.data.splits import write_splits
from refblend.embedded.prepare import recipe_rows
from refblend.embedded.recipe import load_recipe
from refblend.files import sha256_file
from refblend.identity import RunIdentity
from refblend.numerics import versions

ROOT = Path(__file__).parents[3]
PIECES = sorted((ROOT / "results" / "cpu" / "pieces").glob("[0-9]*.tar.xz"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> dict[str, str]:
    """Today's prompt files of scale cpu, each with its hash."""
    folder = tmp_path_factory.mktemp("data")
    write_splits(folder, recipe_rows(load_recipe(ROOT / "params" / "embedded" / "cpu.yaml")))
    return {f"data/cpu/{file.name}": sha256_file(file) for file in folder.iterdir()}


@pytest.mark.parametrize("piece", PIECES, ids=lambda path: path.name)
def test_data_and_numbers_are_those_of_today(piece: Path, data: dict[str, str]) -> None:
    with tarfile.open(piece) as pack:
        for member in pack:
            if member.name.endswith("/test.json"):
                tested = json.load(pack.extractfile(member))["of"]["data"]  # type: ignore[arg-type]
                assert tested == data["data/cpu/test.parquet"]
            elif member.name.endswith("/identity.json"):
                run = RunIdentity.from_record(json.load(pack.extractfile(member)))  # type: ignore[arg-type]
                used = {path: digest for path, digest in run.data.items() if path in data}
                assert "data/cpu/train.parquet" in used, member.name
                assert used.items() <= data.items(), member.name
                assert run.numerics == versions(*run.numerics), member.name
