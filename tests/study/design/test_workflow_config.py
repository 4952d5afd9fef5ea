"""What Snakemake may be configured with."""

import pytest

from refblend.errors import ConfigError
from refblend.study.design.workflow import workflow_config


def test_the_workflows_configuration_is_refused_in_one_line_and_completed() -> None:
    with pytest.raises(ConfigError) as caught:
        workflow_config({"scal": "cpu"})
    message = str(caught.value)
    assert message.endswith("unknown key scal. Did you mean scale?")
    assert "\n" not in message
    assert len(message) < 120
    assert workflow_config({"scale": "smoke"})["seeds_per_job"] == 10
