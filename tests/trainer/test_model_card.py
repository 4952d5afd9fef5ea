"""The model card of a checkpoint, read as the hub reads it."""

from huggingface_hub import ModelCard

from refblend.trainer.model_card import model_card

METRICS = {"step": 4, "val-core/arith/acc/mean@1": 0.25, "val-core/sanity/acc/mean@1": None}


def test_a_card_says_what_trained_the_model_on_what_with_which_scores(tiny_config):
    config = tiny_config()
    card = ModelCard(model_card(config, METRICS))
    assert card.data.library_name == "transformers"
    assert card.data.tags == ["refblend", "ppo"]
    assert "| arith | 0.250 |" in card.text
    assert "sanity" not in card.text
    assert config.algorithm.adv_estimator in card.text
    assert str(config.trainer.default_local_dir) not in card.content
