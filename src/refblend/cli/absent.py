"""What to do about data and models of a scale that have not been made yet."""

import re
from pathlib import Path

from refblend.errors import RefblendError

_ABSENT = re.compile(
    r"(?:^|\s)(?:data/(?P<data>\w+)/(?:train|validation|test|sanity)\.parquet"
    r"|models/(?P<models>\w+)/(?P<part>actor|judge|tokenizer|base)\w*) "
    r"(?:is not a directory|does not exist)"
)


def told(problem: RefblendError) -> str:
    """The problem with its remedy, which is to make what the workflow makes for a scale."""
    found = _ABSENT.search(problem.reason)
    if found is None:
        return str(problem)
    scale = found["data"] or found["models"]
    params = Path("params")  # only in a checkout is there a workflow that makes them
    made_by = params / ("scale" if found["data"] else "embedded") / f"{scale}.yaml"
    if not made_by.is_file():
        return str(problem)
    command = "make prepare" if scale == "smoke" else f"make prepare SCALE={scale}"
    if found["part"] == "base":
        command = "make pretrained"
    otherwise = problem.remedy[:1].lower() + problem.remedy[1:]
    return f"{problem.reason}. Make it with `{command}`, or {otherwise}"
